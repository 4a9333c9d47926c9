"""Two hospitals with tables of their own learn one classifier: with scikit-learn, and without PyTorch."""

from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer

from repshare import Board, CommonSpaceClassifier, LocalExchange
from repshare.board import Wants

HIGH = (30, 40, 200, 2600, 0.2, 0.4, 0.5, 0.25, 0.4, 0.1)  # largest values that a measurement can have: no one's data

cells = load_breast_cancer()
X, y = cells.data[:, :10], np.array(["malignant", "benign"])[cells.target]  # ten measurements of each patient
ill, healthy = np.flatnonzero(y == "malignant"), np.flatnonzero(y == "benign")
patients = {
    "north": np.concatenate([ill[:40], healthy[:4]]),  # a clinic for cancer
    "south": np.concatenate([ill[40:44], healthy[4:64]]),  # a general hospital
}
others = np.concatenate([ill[100:], healthy[100:]])

agreed: dict[str, Any] = {"classes": ("benign", "malignant"), "low": 0.0, "high": HIGH, "features": 512}
agreed["accept_exposure"] = True  # these samples are public: who is among them may be seen
hospitals = {name: CommonSpaceClassifier(**agreed).fit(X[rows], y[rows]) for name, rows in patients.items()}
for name, hospital in hospitals.items():
    print(f"{name} alone: {hospital.score(X[others], y[others]):.1%} of other patients")

board = Board(hospitals["north"].task_)  # or a relay: RelayExchange(url, token=…) in place of LocalExchange
for _ in range(10):
    for name, hospital in hospitals.items():
        exchange = LocalExchange(board, name)
        exchange.publish(hospital.partial_release())
        hospital.absorb(exchange.collect(Wants(0, 0)))
for name, hospital in hospitals.items():
    release = hospital.partial_release()
    print(f"{name} together: {hospital.score(X[others], y[others]):.1%}, {len(release):,} bytes a round")
