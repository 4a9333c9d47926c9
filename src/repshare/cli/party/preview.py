"""A table of all that would leave a party's machine, and warnings before it does."""

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console

from repshare.cli.terminal import make_table, say
from repshare.config import Policy
from repshare.errors import ConfigError

if TYPE_CHECKING:
    from repshare.client import Client
    from repshare.samples import Samples
    from repshare.sharing.representations import Release


LISTED = 4  # values of a list that are shown


def show_preview(client: "Client", console: Console, *, also: Sequence[str]) -> None:
    """Show what would leave in a round, and what `also` would."""
    from repshare.party.audit import describe_release, read_limits
    from repshare.sharing import wire

    learner, space = client.learner, client.learner.preview()
    body = learner.release(1)
    read_limits().check(describe_release(client, body), int(learner.shared_counts().sum()))
    release, described = wire.decode_release(body), learner.describe()
    for line in list_data(client.samples, client.test):
        say(console, line)
    console.print(make_table(*_rows(client, release, space.get("agreement")), "what leaves in a round"))
    count = len(release.means.labels) + len(release.observations.labels)
    vectors = f"{count} vectors of {learner.dimension} numbers"
    beside, made = _tell_made(space.get("agreement"), noisy=client.guard is not None)
    say(console, f"{vectors} ({described.precision}), {beside}: {len(body):,} bytes a round")
    say(console, f"Each is {made.format(described.representation)}")
    if space:
        _show_space(space, console)
    exposure = client.exposure()
    if exposure is not None:
        accepted = "accepted by --accept-exposure" if client.policy.accept_exposure else "refused: nothing leaves"
        allowed = "allowed" if exposure.allowed else accepted
        say(console, f"What it shows, {allowed}: {exposure}.", "" if exposure.allowed else "yellow")
    say(console, f"Nothing else leaves but {'; and '.join(also)}. Nothing has been sent now.")
    for warning in list_warnings(client):
        say(console, warning, "yellow")


def _tell_made(agreement: Mapping[str, Any] | None, *, noisy: bool) -> tuple[str, str]:
    """What accompanies the vectors, and what each is made of."""
    counted = "their classes and counts"
    if agreement is None:
        return counted, "an average of representations: {}"
    if agreement["loss"] != "discriminant":
        weighted = "weighted by what the classifier still needs of each sample"
        return counted, f"an average of representations: {{}}, {weighted}"
    return "their classes, counts under noise" if noisy else counted, "a sum of representations: {}"


def ask(console: Console) -> None:
    """Wait for yes to what was shown; raise ConfigError for any other answer, or if nobody is there."""
    say(console, "Share this, in each round? yes or no:", "bold")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise ConfigError("not approved: nothing has left")


def _rows(client: "Client", release: "Release", agreement: Mapping[str, Any] | None) -> tuple[str, list[list[str]]]:
    """The heads and the rows of the table: what leaves of each class."""
    rows = []
    for label, here in enumerate(np.bincount(client.samples.labels, minlength=client.learner.classes).tolist()):
        over, each = int(release.means.of(label).counts.sum()), release.observations.of(label).counts.tolist()
        mean = f"1 over {_samples(over)}" if over else "–"
        rows.append([str(label), str(here), mean, f"{len(each)} over {_samples(each[0])}" if each else "–"])
    if agreement is None:
        return "class|samples here|class mean|observations, each", rows
    named = agreement["class_names"] or [row[0] for row in rows]
    if agreement["loss"] != "discriminant":
        named_rows = [[name, here, mean] for name, (_, here, mean, _) in zip(named, rows, strict=True)]
        return "class|samples here|weighted average", named_rows
    kind, empty = ("sum", "–") if client.guard is None else ("noised sum", "noise alone")
    told = [f"{kind} over {over} samples" if over else empty for over in client.learner.shared_counts().tolist()]
    sums = [[name, row[1], what] for name, row, what in zip(named, rows, told, strict=True)]
    return "class|samples here|what leaves", sums


def _samples(count: int) -> str:
    return "1 sample: itself!" if count == 1 else f"{count} samples"


def list_data(*several: "Samples | None") -> list[str]:
    """What is found in the tables that samples were read from, if they were."""
    return [line for each in several if each is not None and each.table for line in each.table.found.lines()]


def list_doubts(*several: "Samples | None") -> list[str]:
    """Warnings of columns whose values may be in another unit than agreed on."""
    found = [each.table.found for each in several if each is not None and each.table]
    return [f"warning: {each.place}: {doubt}" for each in found for doubt in each.doubts]


def _show_space(space: Mapping[str, Any], console: Console) -> None:
    from repshare.space.agreement import tell_unusual
    from repshare.space.inspection import Findings

    agreement = space["agreement"]
    stated = {**agreement, "columns": [each["name"] for each in agreement.get("columns", ())]}
    agreed = [f"{name} {_list(value)}" for name, value in stated.items() if value not in (None, [])]
    say(console, f"The clients agree on: {', '.join(agreed)}")
    differs = tell_unusual(space["unusual"])
    say(
        console,
        f"Not this package's own choice of a space: {differs}"
        if differs
        else "The space is this package's own choice.",
    )
    say(console, f"Tried on your samples: {Findings(**space['tried'])}")
    held = f"{space['held_out']} samples are held out: nothing of them leaves in any form."
    few = "None are held out: there are too few. Each sample is left out in turn, to see what others gain you."
    say(console, held if space["held_out"] else few)
    for label, count in space["left_out"].items():
        named, samples = (agreement["class_names"] or range(label + 1))[label], f"sample{'s'[count == 1 :]}"
        say(console, f"Class {named} is left out: it has {count} {samples}, fewer than --minimum-count.")


def _list(value: Any) -> str:
    """A value of the agreement; of a long list the first and the number of all."""
    if not isinstance(value, list) or len(value) <= LISTED:
        return str(value)
    return f"{', '.join(map(str, value[:LISTED]))} … ({len(value)})"


def list_warnings(client: "Client") -> list[str]:
    """Warnings before this is shared."""
    found = list_doubts(client.samples, client.test) + policy_warnings(client.policy)
    if client.exchange is not None and (shown := client.exposure()) is not None and not shown.allowed:
        found.append(f"warning: what leaves shows who is among your samples: {shown}")
    representation = client.learner.describe().representation
    if representation.shares_inputs:
        found.append(f"warning: what leaves are averages of your data ({representation})")
    labels = client.learner.single_samples()
    if labels and client.policy.epsilon is None:
        named = f"class {labels[0]}" if len(labels) == 1 else f"classes {', '.join(map(str, labels))}"
        alone = "an average of one sample leaves, which is that sample's features"
        found.append(f"warning: of {named} {alone}: leave --minimum-count out")
    return found


def policy_warnings(policy: Policy) -> list[str]:
    """Warnings about the privacy of this policy."""
    found = []
    if policy.n_avg == 1 and policy.m_up and policy.minimum_count in (None, 1):
        found.append(
            "warning: with n_avg = 1, every observation that you release is a single sample's features, "
            "from which the sample may be recognised or rebuilt"
        )
    if policy.epsilon is not None:
        found.append(f"releases are (ε = {policy.epsilon:g}, δ = {policy.delta:g})-differentially private")
    if policy.epsilon is not None and policy.seeded_noise:
        found.append("warning: the noise is drawn from the seed: it gives no privacy")
    return found
