"""The promise of an exchange."""

import time
from typing import NamedTuple

from repshare.sharing.representations import Wants


class Traffic(NamedTuple):
    """Bytes that an exchange has sent and received since it began."""

    sent: int
    received: int


class Exchange:
    """A client's connection to other clients. It never waits for them, and publishing twice changes nothing.

    Raises Unreachable if it is unavailable and Refused if it refuses; the client's own work continues either way. An
    exchange of your own is a subclass with `publish` and `collect`.
    """

    hides_single_releases: bool = False
    """Whether nobody sees what one client adds, so that a share of the noise is enough."""

    hidden: frozenset[int] = frozenset()
    """Classes that too few clients have, so that samples of them must not be shared."""

    def publish(self, body: bytes) -> None:
        """Share this release, in place of the client's last one.

        Args:
            body: The release as bytes, made by `sharing.wire.encode_release`.
        """
        raise NotImplementedError

    def collect(self, wants: Wants) -> bytes:
        """Return a teacher as bytes. It has no rows while no other client has shared anything.

        Args:
            wants: What the client wants to learn from.
        """
        raise NotImplementedError

    def others(self) -> int | None:
        """Return the number of other clients behind the last total. Default: None, not known."""
        return None

    def wait(self, since: int, seconds: float) -> int:
        """Return a version that grows as clients publish, once it is not `since` or the seconds have passed.

        Default: the same version, after these seconds.

        Args:
            since: The version that is known already.
            seconds: Seconds to wait for another one.
        """
        time.sleep(seconds)
        return since

    def gather(self) -> bool:
        """Whether enough others are there to publish. Default: none need be."""
        return True

    def wait_for_more(self) -> None:
        """Do not publish among those whom `gather` found. Default: it found none."""

    def has_begun(self) -> bool:
        """Whether the others wait for this client in a meeting. Default: clients do not meet."""
        return False

    def may_have_left(self) -> bool:
        """Whether others may have seen the last release. Default: yes, also if publishing it failed."""
        return True

    def behind(self, own: int) -> float:
        """Return the samples behind the least difference that anybody sees of what is published. Default: the own ones.

        Args:
            own: The samples of the client that publishes. ∞: nobody sees any difference.
        """
        return own

    def holds(self) -> bool:
        """Whether the other end has a release of this client. Default: yes, it loses none."""
        return True

    def traffic(self) -> Traffic | None:
        """Return the bytes so far. Default: None, releases and teachers and nothing else."""
        return None
