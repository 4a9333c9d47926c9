"""Every table, figure and study by its name."""

from repshare_lab.experiments.ablation import ABLATION
from repshare_lab.experiments.backbone import BACKBONE
from repshare_lab.experiments.bound import BOUND
from repshare_lab.experiments.curves import CURVES, START
from repshare_lab.experiments.experiment import Experiment
from repshare_lab.experiments.faults import FAULTS
from repshare_lab.experiments.field import FIELD, RATES
from repshare_lab.experiments.leakage import LEAKAGE
from repshare_lab.experiments.partners import PARTNERS
from repshare_lab.experiments.privacy import PRIVACY
from repshare_lab.experiments.studies import STUDIES
from repshare_lab.experiments.table import TABLE
from repshare_lab.experiments.topologies import TOPOLOGIES
from repshare_lab.experiments.traffic import TRAFFIC
from repshare_lab.experiments.tsne import TSNE_FIGURE

PAPER = (TABLE, START, ABLATION, CURVES, TSNE_FIGURE, TRAFFIC, BOUND)
BEYOND = (TOPOLOGIES, PRIVACY, PARTNERS, *STUDIES, RATES, FIELD, LEAKAGE, FAULTS, BACKBONE)
EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in PAPER + BEYOND}
