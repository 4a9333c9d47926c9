"""LGFEDAVG: LG-FedAvg, the opposite of FedPer: each client has layers of its own, and their heads are averaged.

θ_g ← Σ_i n_i/n · θ_g,i after a round of local training of both parts, (θ_l,i, θ_g). Clients may have different models
with heads of one shape. Training begins with random weights: the paper's experiments begin after some rounds of FedAvg.
"""

from functools import partial

from repshare.methods import policies
from repshare.methods.method import Method
from repshare.methods.split import HeadAverage, receive, send

LGFEDAVG = Method(
    "LGFEDAVG", "averaged heads on personal layers (LG-FedAvg)", send, HeadAverage, receive,
    adapt=partial(policies.refuse_privacy, "LGFEDAVG"), models="part",
    source="Liang et al., 2020: Think locally, act globally: federated learning with local and global representations",
)  # fmt: skip
