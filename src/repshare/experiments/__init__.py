"""Lists of runs: comparisons, and the evidence, each table or figure by its name."""

from repshare.experiments.ablation import ABLATION
from repshare.experiments.bound import BOUND
from repshare.experiments.comparison import (
    Progress,
    carry_out,
    choose_methods,
    describe,
    name_of,
    plan_comparison,
    summaries,
    who_has_what,
)
from repshare.experiments.curves import CURVES
from repshare.experiments.experiment import Cell, Experiment, arrange, choose, fill, missing
from repshare.experiments.partners import PARTNERS
from repshare.experiments.privacy import PRIVACY
from repshare.experiments.studies import STUDIES
from repshare.experiments.table import PAIRED, PUBLISHED, TABLE
from repshare.experiments.topologies import TOPOLOGIES
from repshare.experiments.traffic import TRAFFIC
from repshare.experiments.tsne import TSNE_FIGURE

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        TABLE,
        ABLATION,
        CURVES,
        TSNE_FIGURE,
        TRAFFIC,
        BOUND,
        TOPOLOGIES,
        PRIVACY,
        PARTNERS,
        PAIRED,
        *STUDIES,
    )
}

__all__ = [
    "EXPERIMENTS",
    "PUBLISHED",
    "Cell",
    "Experiment",
    "Progress",
    "arrange",
    "carry_out",
    "choose",
    "choose_methods",
    "describe",
    "fill",
    "missing",
    "name_of",
    "plan_comparison",
    "summaries",
    "who_has_what",
]
