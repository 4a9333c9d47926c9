"""The ways to learn together, and alone, by their letters: those of this package, and of others that are installed.

A package adds a `Method` as an entry point of the group `repshare.methods`, as this one does with its own.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points

from repshare.methods.method import Method
from repshare.methods.sharing import IL, RS
from repshare.methods.space import CA, CS

__all__ = ["CA", "CS", "IL", "METHODS", "RS", "Method"]

FIRST = ("CL", "IL", "FL", "FD", "RS", "CA", "CS")  # the paper's table begins like this, and so does the help


class _Installed(Mapping[str, Method]):
    """All methods by name. A method's module is imported when it is asked for."""

    @cached_property
    def _found(self) -> dict[str, EntryPoint]:
        found = {each.name: each for each in entry_points(group="repshare.methods")}
        return {name: found[name] for name in [*filter(found.__contains__, FIRST), *sorted(found.keys() - {*FIRST})]}

    def __getitem__(self, name: str) -> Method:
        method: Method = self._found[name].load()
        return method

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


METHODS: Mapping[str, Method] = _Installed()
