"""The grid of settings that an audit tries: the command line, and its help."""

from dataclasses import dataclass

from repshare.fields import check_fits, check_least


@dataclass(frozen=True)
class Grid:
    """The settings that are tried."""

    epsilons: tuple[float, ...] = (1.0, 4.0, 16.0)
    """Privacy budgets ε of all releases together."""
    releases: int = 5
    """Number of releases that the attacker sees. One release is attacked, too."""
    delta: float = 1e-5
    """δ: the probability that ε does not hold."""
    trials: int = 2000
    """Number of trials of each attack, with and without the sample: at least this, and as many as it takes to notice
    that half of the noise is left out."""
    broken: bool = False
    """Leave half of the noise out on purpose, which the audit must notice."""

    def __post_init__(self) -> None:
        check_least(self, trials=100, releases=1)
        check_fits(self, ["epsilons"], "one or more numbers above 0", lambda values: min(values, default=0) > 0)
        check_fits(self, ["delta"], "above 0 and below 1", lambda value: 0 < value < 1)
