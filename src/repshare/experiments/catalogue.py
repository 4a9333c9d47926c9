"""Every table, figure and study by its name."""

from repshare.experiments.ablation import ABLATION
from repshare.experiments.bound import BOUND
from repshare.experiments.curves import CURVES, START
from repshare.experiments.experiment import Experiment
from repshare.experiments.field import FIELD, RATES
from repshare.experiments.leakage import LEAKAGE
from repshare.experiments.partners import PARTNERS
from repshare.experiments.privacy import PRIVACY
from repshare.experiments.studies import STUDIES
from repshare.experiments.table import TABLE
from repshare.experiments.topologies import TOPOLOGIES
from repshare.experiments.traffic import TRAFFIC
from repshare.experiments.tsne import TSNE_FIGURE

PAPER = (TABLE, START, ABLATION, CURVES, TSNE_FIGURE, TRAFFIC, BOUND)
BEYOND = (TOPOLOGIES, PRIVACY, PARTNERS, *STUDIES, RATES, FIELD, LEAKAGE)
EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in PAPER + BEYOND}
