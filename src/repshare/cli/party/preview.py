"""A table of all that would leave a party's machine, and warnings before it does."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console

from repshare.cli import terminal
from repshare.cli.parsing import print_json
from repshare.cli.terminal import say
from repshare.config import Policy

if TYPE_CHECKING:
    from repshare.client import Client
    from repshare.samples import Samples
    from repshare.space.exposure import Exposure


def show_preview(client: "Client", console: Console, *, as_json: bool, also: Sequence[str]) -> None:
    """Show what would leave in a round, and what `also` would."""
    from repshare.party.preview import preview

    exposure = client.exposure()
    shown = {**preview(client), "also": list(also)}
    if exposure is not None:
        shown["exposure"] = {**exposure._asdict(), "allowed": exposure.allowed, "auc": round(exposure.auc, 4)}
    if as_json:
        print_json(shown)
        return
    heads, rows = "class|samples here|class mean|observations, each", list[Sequence[str]](_rows(shown["classes"]))
    if "agreement" in shown:
        names = shown["agreement"]["class_names"] or list(map(str, shown["classes"]))
        heads = "class|samples here|weighted average"
        rows = [(name, *row[1:3]) for name, row in zip(names, rows, strict=True)]
        if shown["agreement"]["loss"] == "discriminant":
            heads = "class|samples here|what leaves"
            kind = "sum" if client.guard is None else "noised sum"
            rows = [(name, here, f"{kind} over {here} samples" if here != "0" else kind) for name, here, _ in rows]
    for line in list_data(client.samples, client.test):
        say(console, line)
    console.print(terminal.make_table(heads, rows, "what leaves in a round"))
    vectors, size = f"{shown['vectors']} vectors of {shown['dimension']} numbers", f"{shown['bytes']:,} bytes a round"
    say(console, f"{vectors} ({shown['precision']}), their classes and counts: {size}")
    say(console, f"Each is an average of representations: {shown['representation']}")
    if "agreement" in shown:
        columns = [each["name"] for each in shown["agreement"].get("columns", ())]
        stated = {**shown["agreement"], "columns": columns}
        agreed = {name: str(value)[:60] for name, value in stated.items() if value not in (None, [])}
        say(console, f"The clients agree on: {', '.join(f'{name} {value}' for name, value in agreed.items())}")
        _show_space(shown, console)
        say(console, f"{shown['held_out']} samples are held out: nothing of them leaves in any form.")
        for label, count in shown["left_out"].items():
            named = shown["agreement"]["class_names"][label] if shown["agreement"]["class_names"] else label
            say(
                console,
                f"Class {named} is left out: it has {count} sample{'s'[count == 1 :]}, fewer than --minimum-count.",
            )
    if told := _tell_exposure(client, exposure):
        say(console, told, "" if exposure is None or exposure.allowed else "yellow")
    say(console, f"Nothing else leaves but {'; and '.join(also)}. Nothing has been sent now.")
    for warning in list_warnings(client):
        say(console, warning, "yellow")


def show_data(data: "Samples", test: "Samples | None", console: Console, *, as_json: bool) -> None:
    """Show what is found in a party's samples and test data, before anything is done with them."""
    from repshare.party.preview import describe_data

    if as_json:
        print_json(describe_data(data, test))
        return
    for line in list_data(data, test) or [f"{len(data):,} samples, which are no table with named columns"]:
        say(console, line)
    for warning in list_doubts(data, test):
        say(console, warning, "yellow")
    say(console, "Nothing has been sent.")


def list_data(*several: "Samples | None") -> list[str]:
    """What is found in the tables that samples were read from, if they were."""
    return [line for each in several if each is not None and each.table for line in each.table.found.lines()]


def list_doubts(*several: "Samples | None") -> list[str]:
    """Warnings of columns whose values may be in another unit than agreed on."""
    found = [each.table.found for each in several if each is not None and each.table]
    return [f"warning: {each.place}: {doubt}" for each in found for doubt in each.doubts]


def _show_space(shown: Mapping[str, Any], console: Console) -> None:
    from repshare.space.agreement import tell_unusual
    from repshare.space.inspection import Findings

    differs = tell_unusual(shown["unusual"])
    say(console, f"Not this package's own choice of a space: {differs}" if differs else "The space is the usual one.")
    say(console, f"Tried on your samples: {Findings(**shown['tried'])}")


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


def _rows(classes: Mapping[int, Mapping[str, Any]]) -> Iterator[tuple[str, str, str, str]]:
    for label, counts in classes.items():
        over = counts["observations_over"]
        mean = f"1 over {_samples(counts['mean_over'])}" if counts["mean_over"] else "–"
        observed = f"{len(over)} over {_samples(over[0])}" if over else "–"
        yield str(label), f"{counts['samples']}", mean, observed


def _samples(count: int) -> str:
    return "1 sample: itself!" if count == 1 else f"{count} samples"


def _tell_exposure(client: "Client", shown: "Exposure | None") -> str:
    if shown is None:
        return ""
    accepted = "accepted by --accept-exposure" if client.policy.accept_exposure else "refused: nothing leaves"
    return f"What it shows, {'allowed' if shown.allowed else accepted}: {shown}."


def policy_warnings(policy: Policy) -> list[str]:
    """Warnings about the privacy of this policy."""
    found = []
    if policy.n_avg == 1 and policy.m_up and policy.minimum_count in (None, 1) and policy.epsilon is None:
        found.append(
            "warning: with n_avg = 1 and no epsilon, every observation that you release is a single sample's features, "
            "from which the sample may be recognised or rebuilt"
        )
    if policy.epsilon is not None:
        promise = f"(ε = {policy.epsilon:g}, δ = {policy.delta:g})-differentially private"
        found.append(
            f"releases are {promise}; those of a network's features given the network, whose training is not private"
        )
    if policy.epsilon is not None and policy.seeded_noise:
        found.append("warning: the noise is drawn from the seed: it gives no privacy")
    return found
