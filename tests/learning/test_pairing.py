"""A client's own network beside the common classifier."""

import numpy as np
import pytest
import torch

from repshare.board import Board
from repshare.client import Client
from repshare.config import Policy
from repshare.errors import ConfigError
from repshare.exchange import LocalExchange
from repshare.learning.common.pairing import Mixture
from repshare.learning.models import LeNet5
from repshare.learning.samples import Samples
from repshare.learning.training import Learner
from repshare.methods import CS
from repshare.sharing.task import make_common_task
from repshare.spaces import Patches
from repshare.spaces.agreement import Common

COMMON = Common(Patches((1, 8, 8), sizes=(3,), filters=8))


def make_clients(digits, pair, **options):
    (images, labels), test = digits
    board = Board(make_common_task(10, COMMON.space.dimension, COMMON.name))
    policy = Policy(pair=pair, held_out=0.2, epochs=3, **options)
    clients = []
    for name, start in (("a", 0), ("b", 100)):
        torch.manual_seed(start)
        data, exchange = (images[start : start + 100], labels[start : start + 100]), LocalExchange(board, name)
        clients.append(Client(LeNet5(), data, exchange, name=name, policy=policy, method=CS, test=test, common=COMMON))
    return clients


def play(clients, rounds):
    for _ in range(rounds):
        records = [client.round(test=False) for client in clients]
    return records


@pytest.mark.parametrize(("share", "expected"), [(0.0, "logits"), (1.0, "scores")])
def test_a_mixture_is_one_or_the_other_at_its_ends(share, expected):
    given = {name: torch.randn(5, 3) for name in ("logits", "scores")}
    mixed = Mixture(share, 1.0)(given["logits"], given["scores"])
    assert torch.allclose(mixed, given[expected].log_softmax(dim=1), atol=1e-6)
    assert torch.allclose(mixed.exp().sum(dim=1), torch.ones(5))


def test_the_mixture_is_the_best_of_all_on_held_out_samples(digits):
    client = make_clients(digits, "pair")[0]
    client.round(test=False)
    learner = client.learner
    logits = torch.cat([logits for (_, logits), _ in learner._outputs(learner._held_samples)])
    scores, labels = learner.classifier()(learner.held[0]), learner.held[1]

    def loss(mixture):
        return float(torch.nn.functional.nll_loss(mixture(logits, scores), labels))

    assert loss(learner.mixture) <= min(loss(Mixture(0.0, 1.0)), loss(Mixture(1.0, 1.0)), loss(Mixture(0.5, 10.0)))


def test_the_network_never_trains_on_held_out_samples(digits):
    (_, labels), _ = digits
    learner = make_clients(digits, "pair")[0].learner
    held = set(learner.held_rows.tolist())
    assert len(held) == 20
    assert len(learner.samples) == 80
    trained = [labels[row] for row in range(100) if row not in held]
    assert learner.samples.labels.tolist() == torch.stack(trained).tolist()


def test_a_pair_is_better_than_its_network_and_distilling_helps_the_network(digits):
    paired, distilled = make_clients(digits, "pair"), make_clients(digits, "distil")
    for clients in (paired, distilled):
        play(clients, 15)
    chosen = Learner.scores(paired[0].learner, paired[0].test).argmax(1)
    network = float((chosen == paired[0].test.labels).double().mean())
    assert paired[0].evaluate() > network + 0.02
    assert distilled[0].evaluate() > network + 0.02


def test_a_paired_client_goes_on_to_the_same_bits(digits):
    whole, resumed = make_clients(digits, "distil"), make_clients(digits, "distil")
    play(whole, 4)
    play(resumed, 2)
    kept, again = [client.save() for client in resumed], make_clients(digits, "distil")
    for old, new, state in zip(resumed, again, kept, strict=True):
        new.exchange = old.exchange
        new.load(state)
    play(again, 2)
    for a, b in zip(whole, again, strict=True):
        assert a.learner.mixture == b.learner.mixture
        ours, theirs = (torch.cat([p.flatten() for p in c.learner.network.model.parameters()]) for c in (a, b))
        assert torch.equal(ours, theirs)
        assert torch.equal(a.learner.dual.published.alpha, b.learner.dual.published.alpha)


def test_a_pair_without_held_out_samples_is_refused(digits):
    (images, labels), _ = digits
    with pytest.raises(ConfigError, match="client holds no sample out, which a pair needs: raise held_out"):
        Client(LeNet5(), (images[:50], labels[:50]), policy=Policy(pair="pair"), method=CS, common=COMMON)


def test_a_part_of_samples_is_a_view_of_the_whole(digits):
    (images, labels), _ = digits
    some = Samples((images, labels), rows=torch.arange(10, 20)).part(torch.tensor([0, 3]))
    inputs, found = some.batch(torch.arange(2))
    assert np.array_equal(inputs.numpy(), images[[10, 13]].numpy())
    assert found.tolist() == labels[[10, 13]].tolist() == some.labels.tolist()
