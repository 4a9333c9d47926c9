"""The audit through clients: what attacks on published bytes prove, below what ledgers say, and above it if broken."""

import numpy as np
import pytest

from repshare.config import Policy
from repshare.space import learner
from repshare_lab.audit.bounds import judge
from repshare_lab.audit.clients import CASES, attack_clients

TRIALS = 100


def prove(case, epsilon, share=1.0, trials=TRIALS):
    worlds, accounted = attack_clients(case, epsilon, trials, share=share)
    assert accounted == pytest.approx(epsilon, rel=1e-3), "the whole budget, by the client's own ledger"
    return judge(worlds, Policy.delta)


@pytest.mark.parametrize("case", CASES)
def test_clients_keep_their_promise_and_are_caught_when_half_of_their_noise_is_left_out(case):
    right, broken = prove(case, 10.0), prove(case, 10.0, 0.5)
    assert max(right.gaussian[0], right.proved) < 10.0 < broken.gaussian[0]
    assert right.auc > 0.6, "the attack sees what there is to see"


def test_samples_held_out_by_a_permutation_are_noticed(monkeypatch):
    def permute(batches, known, secret):
        for place in np.random.default_rng(0).permutation(len(known)):
            yield place / len(known), b""

    right = prove("client, added", 2.0)
    monkeypatch.setattr(learner, "_toss", permute)
    broken = prove("client, added", 2.0)
    assert max(right.gaussian[0], right.proved) < 2.0 < broken.gaussian[0]
