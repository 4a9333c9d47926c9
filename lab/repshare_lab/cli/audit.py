"""`repshare privacy audit`: attack your own releases."""

import json as jsonlib
import math
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from repshare.cli.interrupts import interruptible
from repshare.cli.parsing import Json, print_json
from repshare.cli.terminal import make_table, say
from repshare.errors import ConfigError
from repshare.files import explain_errors, write_atomically
from repshare_lab.audit.grid import Grid
from repshare_lab.cli.learning import load
from repshare_lab.cli.progress import progress
from repshare_lab.config import Setting
from repshare_lab.data import Splits


def audit(
    grid: Grid,
    samples: tuple[int, ...] = (),
    dataset: str = Setting.dataset,
    members: int = 1,
    space: tuple[str, ...] = (),
    output: Path = Path("audit"),
    json: Json = False,
) -> None:
    """Attack releases made by the shipped mechanisms: whose sample is in them?

    The attacker knows the model, every other sample and both candidates, and says by the likelihood ratio which of two
    data sets was released, in the worst case that there can be. From its rates follows a lower bound on ε (95 %
    confidence), which must stay below the accounted ε. Sequences of noisy class sums in a common space are attacked: a
    sample added, replaced by its opposite, or by one of another class; and through noise that a group shares out. It
    needs no data set.

    With --samples, releases without noise instead: clients of a data set learn together in a common space, and attacks
    that know images of the same kind tell from what the relay sees who is among the samples.

    repshare privacy audit

    repshare privacy audit --broken            (half of the noise is left out: the audit must notice)

    repshare privacy audit --samples 120 1200 --members 10 --space patches components=14

    Args:
        samples: Numbers of samples behind a release without noise, or a total of such, that is attacked.
        dataset: With --samples: mnist, fashion_mnist, cifar10, digits, or your own as file.py:function.
        members: With --samples: clients whose total is attacked, as a group's; 1: a client's own releases.
        space: With --samples: the common space, as in `relay tasks create`. Default: the one that suits the data.
        output: Folder for audit.json; with --samples, for leakage.json.
    """
    console = Console(stderr=json)
    if samples:
        splits, _ = load(Setting(dataset=dataset), None, console)
        _audit_releases(splits, grid.releases, samples, members, space, output, console, json=json)
    else:
        _audit_noise(grid, output, console, json=json)


def _audit_releases(
    splits: Splits, releases: int, samples: Sequence[int], members: int, space: tuple[str, ...], output: Path,
    console: Console, *, json: bool,
) -> None:  # fmt: skip
    """Attack releases without noise of clients that learn together."""
    from repshare.space import exposure
    from repshare_lab.audit.pool import Pool, attack_releases, lay_ground

    if members < 1:
        raise ConfigError(f"members must be at least 1, not {members}")
    _make_folder(output)
    pool = Pool(splits)
    ground, lines = lay_ground(pool, space), list[dict[str, Any]]()
    for count in samples:
        seen = pool.capture(ground.common, samples=count, members=members, releases=releases)
        lines += [{"members": members, **line} for line in attack_releases(ground, seen, sorted({1, releases}))]
    write_atomically(output / "leakage.json", jsonlib.dumps(lines, indent=2) + "\n")
    if json:
        print_json({"leakage": lines})
        return
    rows = []
    for line in lines:
        most = exposure.most_numbers(int(line["behind"]), pool.classes)
        areas = " ".join(f"{area:.2f}" for area in line["auc"])
        rows.append([f"{line['behind']:,.0f}", f"{line['releases']}", f"{line['d']:,}", f"{most:,}", areas])
    title = f"who is in it? {'a client alone' if members == 1 else f'a total of {members} clients'}"
    caption = "AUC of the best attack, two draws: 0.5 is a guess; allowed: numbers of a row by the exposure rule"
    console.print(make_table("samples|releases|d|allowed|AUC", rows, title, caption))
    say(console, f"{'figures':<16}{output / 'leakage.json'}")


def _audit_noise(grid: Grid, output: Path, console: Console, *, json: bool) -> None:
    """Attack noisy sequences of releases."""
    from repshare_lab.audit import clients, sums

    _make_folder(output)
    lines, share = [], sums.BROKEN if grid.broken else 1.0
    with progress(console, "attacks") as bar, interruptible("nothing was written") as until_interrupted:
        total = sums.count_attacks(grid) + len(grid.epsilons) * len(clients.CASES)
        task = bar.add_task("", total=total)
        for line in until_interrupted(_attack(grid, share)):
            lines.append(line)
            bar.update(task, advance=1, description=f"ε = {line['epsilon']:g}, {line['case']}")
    document = {"membership": [_finite(line) for line in lines], "broken": grid.broken}
    write_atomically(output / "audit.json", jsonlib.dumps(document, indent=2) + "\n")
    if json:
        print_json(document)
        return
    console.print(membership_table(lines))
    _say_outcome(lines, console)
    say(console, f"{'figures':<16}{output / 'audit.json'}")


def _attack(grid: Grid, share: float) -> Generator[dict[str, Any]]:
    """Attack the guard, in as many trials as it takes, and then what leaves clients."""
    from repshare_lab.audit import clients, sums

    yield from sums.infer_membership(grid, share=share)
    yield from clients.infer_membership(grid, share=share)


def _make_folder(path: Path) -> None:
    with explain_errors(f"{path} cannot be made"):
        path.mkdir(parents=True, exist_ok=True)


def _say_outcome(lines: Sequence[dict[str, Any]], console: Console) -> None:
    over = sum(map(is_broken, lines))
    outcome = f"{over} of {len(lines)} attacks on noisy releases proved more than the accounted ε"
    say(console, outcome, "bold red" if over else "bold green")


def membership_table(lines: Sequence[dict[str, Any]]) -> Table:
    """Make a table with a row for each attack."""
    explained = "TPR: at 1 % false positives; ε ≥: proved, whatever the mechanism"
    table = make_table(
        "<case|releases|AUC|TPR|ε ≥|if Gaussian|accounted", title="is a sample in it?", caption=explained
    )
    for line in lines:
        low, high = line["gaussian"]
        table.add_row(
            *(line["case"], f"{line['releases']:,}"),
            *(f"{line['auc']:.3f}", f"{line['tpr']:.1%}"),
            f"{line['proved']:.2f}",
            f"{low:.2f} … " + ("∞" if math.isinf(high) else f"{high:.2f}"),
            f"{line['accounted']:.2f}",
            style="bold red" if is_broken(line) else "",
        )
    return table


def is_broken(line: dict[str, Any]) -> bool:
    """Whether an attack proved more than was promised."""
    return bool(max(line["proved"], line["gaussian"][0]) > line["accounted"])


def _finite(line: dict[str, Any]) -> dict[str, Any]:
    """Return the number as JSON can hold it: None for what has no bound."""
    bounds = [None if math.isinf(end) else end for end in line["gaussian"]]
    return {**line, "gaussian": bounds}
