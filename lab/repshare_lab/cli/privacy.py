"""`repshare privacy plan`: what a budget means before it is spent."""

import statistics
from collections.abc import Sequence
from typing import Literal

from rich.console import Console

from repshare.cli.parsing import Json, print_json
from repshare.cli.terminal import make_table, say
from repshare.config import Policy
from repshare_lab.config import Setting

DRAWS = 3  # of samples and noise
FACTORS = (0.1, 0.3, 1.0, 3.0, 10.0)  # of ε, for which CS is tried


def plan(
    epsilon: float,
    method: Literal["RS", "CS"] = "RS",
    delta: float = Policy.delta,
    releases: int | None = None,
    n_avg: int = Policy.n_avg,
    m_up: int = Policy.m_up,
    adjacency: Literal["replace", "add-remove"] = Policy.adjacency,
    class_sizes: tuple[int, ...] = (12, 120, 1200),
    dimension: int = 84,
    clients: int = 10,
    dataset: str = Setting.dataset,
    samples: int | None = None,
    space: tuple[str, ...] = (),
    json: Json = False,
) -> None:
    """Show how much noise a budget means, and what it does, before it is spent. Nothing is released.

    RS: the error of class means and observations. It is the length of the noise divided by the longest that a mean can
    be (the clip norm): above 1 there is more noise than mean.

    CS: the accuracy to expect. The mechanism runs here, on training samples of a data set that stands for the clients'
    own; some are held out to be tested on. Compare with "nothing shared", each client alone in the same space: where a
    row is not above it, sharing does not help.

    repshare privacy plan --epsilon 8 --releases 10 --class-sizes 12 120 --clients 10

    repshare privacy plan --epsilon 1 --m-up 0 --class-sizes 1000 --json

    repshare privacy plan --method CS --epsilon 1 --dataset mnist --samples 1200 --clients 10

    Args:
        epsilon: ε: the privacy budget of all releases together. CS: it is tried from a tenth to ten times of it.
        method: RS: averages of each client's features. CS: class sums in a common space, with the loss discriminant.
        delta: δ: the probability that ε does not hold. It should be well below one over the number of samples.
        releases: Number of releases that the budget is spread over. Default: 20; CS: 1.
        n_avg: Number of samples averaged into each observation.
        m_up: M↑: number of observations of each class in a release. With 0, the class means get the whole budget.
        adjacency: Which change of the data ε hides: one sample replaced by another (RS: of its class), or one added or
            removed.
        class_sizes: Number of samples that a client has of each class. With replace, the smallest decides the noise.
        dimension: d', the length of a representation.
        clients: Number of clients that share.
        dataset: mnist, fashion_mnist, cifar10, digits, or your own as file.py:function. Its test samples are not used.
        samples: Number of samples of all clients together. If the dataset has fewer, its sums are multiplied.
            Default: all that it has for training, less those held out.
        space: The common space and its options, as in `patches filters=24 components=128`. More components tell more,
            and need more noise. Default: patches with 256 components.
    """
    if method == "CS":
        from repshare.secure import usual_threshold

        chosen = Policy(
            epsilon=epsilon, delta=delta, planned_releases=1 if releases is None else releases, adjacency=adjacency,
            noise_shares=usual_threshold(clients), seeded_noise=True,
        )  # fmt: skip
        setting = Setting(dataset=dataset, samples=samples, clients=clients, space=space)
        _rehearse(setting, chosen, json=json)
        return
    from repshare.privacy.planning import forecast

    releases = Policy.planned_releases if releases is None else releases
    policy = Policy(
        epsilon=epsilon, delta=delta, planned_releases=releases, n_avg=n_avg, m_up=m_up, adjacency=adjacency
    )
    outlook = forecast(policy, class_sizes, dimension, clients)
    if json:
        print_json({**outlook._asdict(), "classes": [each._asdict() for each in outlook.classes]})
        return
    console = Console()
    heads = f"samples of a class|a class mean|the mean of {clients} clients|an observation"
    rows = [
        [f"{each.size:,}", *(f"{x:.2g}" for x in (each.mean, each.together, each.observation))]
        for each in outlook.classes
    ]
    noise = f"noise of deviation {outlook.deviation:.4g} on each number of a class sum"
    say(console, f"{noise} ({outlook.noise:.4g} times what one sample can move it; clip {outlook.clip:.4g})")
    console.print(make_table(heads, rows, "error ÷ longest possible mean"))
    say(console, "release-only: this protects samples given the model, not what training put into the model")


def _rehearse(setting: Setting, policy: Policy, *, json: bool) -> None:
    """Try CS on samples that stand for the clients' own, with budgets around the chosen one."""
    from repshare.cli.interrupts import interruptible
    from repshare.cli.terminal import progress
    from repshare.privacy.sums import check_shares
    from repshare_lab.cli.learning import load
    from repshare_lab.simulation import rehearsal

    clients, epsilons = setting.clients, [float(f"{(policy.epsilon or 0) * factor:.3g}") for factor in FACTORS]
    console = Console(stderr=json)
    splits, _ = load(setting, None, console)
    splits = splits.prepared(standardise=setting.standardise)
    stand_in = rehearsal.set_scene(
        splits.train, splits.classes, setting.space, samples=setting.samples, clients=clients, draws=DRAWS
    )
    lines = []
    with progress(console, "steps") as bar, interruptible("nothing was written") as until_interrupted:
        task = bar.add_task("embedding", total=rehearsal.count_steps(stand_in, policy, epsilons))
        for line in until_interrupted(rehearsal.rehearse(stand_in, policy, epsilons)):
            bar.update(task, advance=1, description="embedding" if line is None else f"draw {line['draw'] + 1}")
            lines += [] if line is None else [line]
    if json:
        about = {"dimension": stand_in.common.space.dimension, "samples": stand_in.samples, "used": stand_in.used}
        print_json({**about, "held_out": stand_in.held_out, "clients": clients, "lines": lines})
        return

    rows = []
    for epsilon, shares in rehearsal.budgets(policy, epsilons):
        found = [line for line in lines if (line["epsilon"], line["shares"]) == (epsilon, shares)]
        whose = "none" if epsilon is None else "shared out" if shares > 1 else "each its own"
        accuracies = (_percent([line[name] for line in found]) for name in ("common", "personal"))
        rows.append(["–" if epsilon is None else f"{epsilon:g}", whose, f"{found[0]['deviation']:.3g}", *accuracies])
    rows.append(["–", "nothing shared", "", "", _percent([line["alone"] for line in lines if line["epsilon"] is None])])
    size = f"{stand_in.samples:,} samples, d = {stand_in.common.space.dimension}"
    title = f"{clients} clients, {size}: accuracy to expect [%]"
    caption = "deviation: of the noise on each number of the total, in which a sample is at most 1 long"
    heads = "ε|<noise|deviation|common part|with own samples"
    console.print(make_table(heads, rows, title, caption))
    say(console, f"tested on {stand_in.held_out:,} training samples held out, {DRAWS} draws; nothing was released")
    if stand_in.used < stand_in.samples:
        told = f"{stand_in.used:,} samples stand for {stand_in.samples:,}: their sums are multiplied"
        say(console, f"{told}, as if everybody's data were like these", "yellow")
    if policy.noise_shares > 1:
        say(console, f"shared out: {check_shares(policy, clients, policy.noise_shares)}")


def _percent(values: Sequence[float]) -> str:
    spread = f" ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{100 * statistics.fmean(values):.1f}{spread}"
