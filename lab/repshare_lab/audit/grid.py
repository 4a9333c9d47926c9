"""The grid of settings that an audit tries: the command line, and its help."""

from dataclasses import dataclass

from repshare.config import Policy
from repshare.fields import check_fits, check_least


@dataclass(frozen=True)
class Grid:
    """The settings that are tried."""

    epsilons: tuple[float, ...] = (1.0, 4.0, 16.0)
    """Privacy budgets ε of all releases together."""
    n_avgs: tuple[int, ...] = (1, 10)
    """Numbers of samples averaged into an observation."""
    class_sizes: tuple[int, ...] = (12, 120)
    """Numbers of samples of a class (12 in the paper with 10 clients)."""
    releases: int = 5
    """Number of releases that the attacker sees. CS: one release is attacked, too."""
    m_up: int = 1
    """M↑: number of observations in each release."""
    delta: float = 1e-5
    """δ: the probability that ε does not hold."""
    trials: int = 2000
    """Number of trials of each attack, with and without the sample. More trials prove more.
    CS: at least this, and as many as it takes to notice that half of the noise is left out."""
    epochs: int = 20
    """Number of epochs for which the attacked model is trained."""
    broken: bool = False
    """Leave half of the noise out on purpose, which the audit must notice."""

    def __post_init__(self) -> None:
        check_least(self, trials=100, releases=1, m_up=0, epochs=1)
        lists = ["epsilons", "n_avgs", "class_sizes"]
        check_fits(self, lists, "one or more numbers above 0", lambda values: min(values, default=0) > 0)
        check_fits(self, ["class_sizes"], "at least 3", lambda sizes: min(sizes) >= 3)
        check_fits(self, ["delta"], "above 0 and below 1", lambda value: 0 < value < 1)

    def policy(self, epsilon: float | None, n_avg: int) -> Policy:
        """Return the policy of a client that is attacked."""
        return Policy(
            epsilon=epsilon, n_avg=n_avg, m_up=self.m_up, planned_releases=self.releases, delta=self.delta,
            seeded_noise=True,
        )  # fmt: skip

    @property
    def attacks(self) -> int:
        """The number of attacks."""
        return 2 * len(self.class_sizes) * len(self.n_avgs) * (1 + len(self.epsilons))
