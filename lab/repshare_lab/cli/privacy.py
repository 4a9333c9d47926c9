"""`repshare privacy plan`: what a budget means before it is spent."""

from rich.console import Console

from repshare.cli.parsing import Json, print_json
from repshare.cli.terminal import make_table, say
from repshare.config import Policy


def plan(
    epsilon: float,
    delta: float = Policy.delta,
    releases: int = Policy.planned_releases,
    n_avg: int = Policy.n_avg,
    m_up: int = Policy.m_up,
    class_sizes: tuple[int, ...] = (12, 120, 1200),
    dimension: int = 84,
    clients: int = 10,
    json: Json = False,
) -> None:
    """Show how much noise a budget means for averages of features, before it is spent. Nothing is released.

    The error of class means and observations is the length of the noise divided by the longest that a mean can be (the
    clip norm): above 1 there is more noise than mean. For class sums in a common space, `repshare compare --loss
    discriminant --epsilon E --methods CA CS` shows the accuracy to expect, on data that stands for the clients' own.

    repshare privacy plan --epsilon 8 --releases 10 --class-sizes 12 120 --clients 10

    repshare privacy plan --epsilon 1 --m-up 0 --class-sizes 1000 --json

    Args:
        epsilon: ε: the privacy budget of all releases together.
        delta: δ: the probability that ε does not hold. It should be well below one over the number of samples.
        releases: Number of releases that the budget is spread over.
        n_avg: Number of samples averaged into each observation.
        m_up: M↑: number of observations of each class in a release. With 0, the class means get the whole budget.
        class_sizes: Number of samples that a client has of each class. The smallest decides the noise.
        dimension: d', the length of a representation.
        clients: Number of clients that share.
    """
    from repshare_lab.experiments.forecast import forecast

    policy = Policy(epsilon=epsilon, delta=delta, planned_releases=releases, n_avg=n_avg, m_up=m_up)
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
