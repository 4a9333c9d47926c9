"""What a party's site knows of its releases: a limit that nobody else can lower, and a line for each that leaves."""

import getpass
import hashlib
import os
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from repshare import __version__
from repshare.errors import BudgetExhausted, ConfigError
from repshare.fields import check_positive, check_whole
from repshare.imports import in_one_line
from repshare.records import Journal
from repshare.sharing import wire

if TYPE_CHECKING:
    from repshare.client import Client

AUDIT = "audit.jsonl"
USUAL = Path("/etc/repshare/limits.toml")
VARIABLE = "REPSHARE_LIMITS"  # names the site's file, where the usual one is not there


@dataclass(frozen=True)
class Limits:
    """A site's limits, for all its parties, whatever a task or a party's own file says."""

    minimum_count: int = 1
    """The least number of samples in an average."""
    numbers_per_sample: float | None = None
    """The most numbers in a release for each sample behind it."""
    releases: int | None = None
    """The most different releases from a state folder, over its whole life."""
    spaces: tuple[str, ...] | None = None
    """The only spaces in which anything may be shared (fourier, patches, backbone); "" stands for RS."""

    def __post_init__(self) -> None:
        check_whole(self, 1, "minimum_count", "releases")
        check_positive(self, "numbers_per_sample")

    def check_space(self, name: str) -> None:
        """Raise ConfigError if nothing may be shared in this space."""
        if self.spaces is not None and name not in self.spaces:
            allowed = ", ".join(filter(None, self.spaces)) or "none"
            raise ConfigError(f"the site's limits allow the spaces {allowed}, not {name or 'a network of its own'}")

    def check(self, release: dict[str, Any], samples: int) -> None:
        """Raise ConfigError if a release has too many numbers for the samples behind it."""
        most = self.numbers_per_sample
        if most is not None and release["numbers"] > most * samples:
            raise ConfigError(
                f"the site's limits allow {most:g} numbers for each sample: {release['numbers']:,} of {samples:,} "
                "samples would leave"
            )


def read_limits() -> Limits:
    """The limits in the site's file. Without a file there are none."""
    given = os.environ.get(VARIABLE)
    path = Path(given) if given and not USUAL.exists() else USUAL
    if not path.exists() and path == USUAL:
        return Limits()
    try:
        stated: dict[str, Any] = tomllib.loads(path.read_text())
        stated |= {name: tuple(value) for name, value in stated.items() if isinstance(value, list)}
        return Limits(**stated)
    except (OSError, ValueError, TypeError, ConfigError) as error:
        raise ConfigError(f"the site's limits in {path} cannot be used: {in_one_line(error)}") from error


def describe_release(client: "Client", body: bytes) -> dict[str, Any]:
    """What is to be known of a release, without its values. With a budget, no count is in it."""
    release, learner = wire.decode_release(body), client.learner
    return {
        "client": client.name,
        "round": release.round,
        "space": release.space,
        "classes": [*map(str, learner.class_names or range(learner.classes))],
        "samples": None if client.guard else int(learner.shared_counts().sum()),
        "numbers": release.means.vectors.size + release.observations.vectors.size,
        "bytes": len(body),
        "sha256": hashlib.sha256(body).hexdigest(),
        "epsilon": None if client.guard is None else client.guard.spent,
        "repshare": __version__,
    }


class Audit:
    """The log of a party's releases in its state folder. Each line is written before its release leaves."""

    def __init__(self, folder: Path, task: str, limits: Limits) -> None:
        self.task, self.limits, self._journal = task, limits, Journal(folder / AUDIT, private=True)

    def approve(self) -> None:
        """Note that somebody has approved of what the preview showed."""
        self._journal.add([{"time": _now(), "task": self.task, "approved_by": getpass.getuser()}])

    def note(self, client: "Client", body: bytes) -> None:
        """Note a release that is about to leave, or raise what keeps it here."""
        told, counts = describe_release(client, body), client.learner.shared_counts()
        self.limits.check(told, int(counts.sum()))
        before = {line.get("sha256") for line in self._journal.read()} - {None}
        most = self.limits.releases
        if most is not None and len(before - {told["sha256"]}) >= most:
            raise BudgetExhausted(f"the site's limits allow {most} releases, and these have left: it only receives now")
        here = np.bincount(client.samples.labels, minlength=client.learner.classes)
        left_out = [name for name, own, shared in zip(told["classes"], here, counts, strict=True) if own and not shared]
        self._journal.add(
            [{"time": _now(), "task": self.task, **told, "counts": counts.tolist(), "left_out": left_out}]
        )


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
