"""A party of the demo, for `repshare join … --party …/party.py:party`: it is in the folder that REPSHARE_DEMO names."""

import os
import time
from pathlib import Path

import numpy as np

from repshare import LeNet5, Party, Policy
from repshare_lab.networks import MLP, ConvNet

DIMENSION = 84  # d', which all networks agree on
VARIABLE, DATA, READY, BEGIN = "REPSHARE_DEMO", "data.npz", "ready", "begin"
POLICY = Policy(learning_rate=0.003, held_out=0.2, accept_exposure=True)  # a demo is short, and its data are public
NETWORKS = {"LeNet5": LeNet5, "ConvNet": ConvNet, "MLP": MLP}  # dealt out in turn


def party() -> Party:
    """Return the party, once its act begins. Real clients need not wait, but processes take seconds to start."""
    place = Path(os.environ[VARIABLE])
    with np.load(place / DATA) as kept:
        model = NETWORKS[str(kept["network"])](classes=int(kept["classes"]), dimension=DIMENSION)
        data, test = ((kept[f"{part}_images"], kept[f"{part}_labels"]) for part in ("train", "test"))
    (place / READY).touch()
    while not (place / BEGIN).exists():
        time.sleep(0.05)
    return Party(model=model, data=data, test=test, policy=POLICY)
