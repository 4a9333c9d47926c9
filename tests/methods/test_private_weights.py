"""FL end to end: weights leave after DP-SGD only, and each time pay for the steps since the last."""

from dataclasses import replace

import dp_accounting
import pytest
import torch
from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent
from opacus.accountants import PRVAccountant, RDPAccountant
from torch import nn

from repshare import Client, LocalExchange, Policy, Task
from repshare.board import Wants
from repshare.cli.main import main
from repshare.config import Run, Setting
from repshare.errors import ConfigError, ModelError, Unreachable
from repshare.methods import FL, RS
from repshare.methods.averaging import read_weights
from repshare.privacy.end_to_end import FREE, Steps, total_epsilon
from repshare.sharing import wire
from repshare.simulation import Inline, simulate

DELTA = 1e-5
BUDGET = Policy(
    epsilon=3.0, end_to_end=True, adjacency="add-remove", planned_releases=2, seeded_noise=True, epochs=2, batch_size=16
)
ROUND = 6  # steps: two epochs of 40 samples, 16 at a time


def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def read_model(body):
    """The model whose weights these bytes are."""
    model, (weights, *_) = make_model(), wire.decode_weights(body)
    model.load_state_dict({name: torch.from_numpy(array.copy()) for name, array in weights.items()})
    return model


def make_client(server=None, policy=BUDGET, model=None, **options):
    generator = torch.Generator().manual_seed(1)
    data = torch.randn(40, 3, generator=generator), torch.arange(40) % 2
    exchange = LocalExchange(server or FL.serve(Task(2, 4), None, None), "a")
    return Client(model or make_model(), data, exchange, name="a", policy=policy, **{"method": FL, **options})


def opacus(accountant, steps):
    accountant.history = [(steps.noise, steps.rate, steps.number)]
    return float(accountant.get_epsilon(DELTA))


def flat(client):
    return torch.cat([parameter.detach().flatten() for parameter in client.learner.network.model.parameters()])


@pytest.mark.parametrize("steps", [Steps(0.1, 200, 2.0), Steps(0.05, 600, 0.9), Steps(0.9, 50, 5.0)], ids=str)
def test_training_costs_what_opacus_says(steps):
    ours = total_epsilon(frozenset({steps}), frozenset({(FREE, 3)}), DELTA, "add-remove")
    assert ours == pytest.approx(opacus(PRVAccountant(), steps), rel=0.02)
    assert 0.8 < ours / opacus(RDPAccountant(), steps) < 1, "a looser bound"
    assert ours < total_epsilon(frozenset({steps}), frozenset(), DELTA, "replace")


@pytest.mark.parametrize("adjacency", ["add-remove", "replace"])
def test_every_release_of_weights_pays_for_the_steps_since_the_last(adjacency):
    one = make_client(policy=replace(BUDGET, adjacency=adjacency))
    told = list(one.rounds(2))
    assert [record.bytes_up > 0 for record in told] == [True, True]
    assert one.guard.steps[:2] == (16 / 40, ROUND)
    assert [entry["steps"] for entry in one.guard.ledger.entries] == [[one.guard.steps]] * 2
    for number, record in enumerate(told, start=1):
        event = PoissonSampledDpEvent(16 / 40, GaussianDpEvent(one.guard.steps.noise))
        oracle = opacus(PRVAccountant(), one.guard.steps._replace(number=number * ROUND))
        if adjacency == "replace":
            accountant = dp_accounting.pld.PLDAccountant(NeighboringRelation.REPLACE_ONE)
            oracle = accountant.compose(event, number * ROUND).get_epsilon(DELTA)
        assert record.epsilon == pytest.approx(oracle, rel=0.02)
    assert 2.98 < told[1].epsilon <= 3.0, "no part of it is kept for noise on the release itself"


def test_once_the_budget_is_spent_a_client_trains_no_more_and_has_the_average():
    server = FL.serve(Task(2, 4), None, None)
    one, richer = make_client(server), make_client(server, replace(BUDGET, epsilon=6.0, planned_releases=4))
    list(one.rounds(2))
    saved, told = one.save(), list(one.rounds(2))
    assert [record.bytes_up for record in told] == [0, 0]
    assert "the privacy budget is spent: training cost" in told[0].trouble
    assert told[0].ce > 0, "losses are told all the same"
    average = read_model(server.teach("a", Wants(0, 0)))
    assert torch.equal(flat(one), torch.cat([parameter.detach().flatten() for parameter in average.parameters()]))
    assert len(one.guard.ledger.entries) == 2
    richer.load(saved)
    record = richer.round()
    assert record.bytes_up, "what is in the model is paid for, so that a larger budget may continue"
    steps = {one.guard.steps._replace(number=2 * ROUND), richer.guard.steps}
    assert record.epsilon == total_epsilon(frozenset(steps), frozenset({(FREE, 3)}), DELTA, "add-remove")


def test_training_that_never_left_is_paid_for_with_the_next_release():
    one = make_client(policy=replace(BUDGET, planned_releases=4))
    exchange, one.exchange = one.exchange, None
    list(one.rounds(2))
    one.exchange = exchange
    list(one.rounds(2))
    assert [[steps.number for steps in entry["steps"]] for entry in one.guard.ledger.entries] == [[3 * ROUND], [ROUND]]


def test_weights_that_did_not_arrive_are_sent_again_and_paid_for_once(tmp_path, capsys):
    class Away:
        offered: list[bytes] = []

        def collect(self, wants):
            raise Unreachable("away")

        def publish(self, body):
            self.offered.append(body)
            raise Unreachable("away")

    one = make_client(ledger=tmp_path / "privacy.jsonl")
    one.exchange = Away()
    one.round()
    weights = read_weights(one.learner.network.model)
    again = make_client(ledger=tmp_path / "privacy.jsonl")  # after a crash: only the folder is left
    again.exchange = Away()
    again.round()
    first, second = Away.offered
    assert first == second
    sent = read_model(first)
    assert all((array == weights[name]).all() for name, array in read_weights(sent).items())
    assert len(again.guard.ledger.entries) == 1
    main(["privacy", "ledger", str(tmp_path / "privacy.jsonl")])
    assert "1 releases charged: ε = " in capsys.readouterr().out


def test_without_private_training_no_weights_leave():
    for policy, words in (
        (Policy(epsilon=1.0), "not FL's weights: use --end-to-end"),
        (replace(BUDGET, release_every=2), "release_every"),
    ):
        with pytest.raises(ConfigError, match=words):
            make_client(policy=policy)
    with pytest.raises(ConfigError, match="DP-SGD charges all alike"):
        make_client(levels=[1.0] * 40)
    with pytest.raises(ConfigError, match="adjacency replace"):
        make_client(method=RS)
    other = make_client(method=FL._replace(models="own"), policy=replace(BUDGET, adjacency="replace"))
    with pytest.raises(ConfigError, match="only if their training was private"):
        other.round()
    assert other.guard.ledger.entries == []
    with pytest.raises(ConfigError, match="averages of samples would have no noise"):
        make_client(method=FL._replace(share=RS.share)).round()


class Remembering(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = make_model()
        self.register_buffer("seen", torch.zeros(3))

    def forward(self, inputs):
        if self.training:
            self.seen += inputs.detach().sum(0)
        return self.body(inputs)


def test_a_model_that_remembers_samples_in_a_buffer_is_refused():
    one = make_client(model=Remembering())
    with pytest.raises(ModelError, match="Remembering changes its buffer seen in training"):
        one.round()
    assert one.guard.ledger.entries == []


NORMALISED = """from torch import nn

def build(channels, classes):
    return nn.Sequential(nn.Conv2d(channels, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.AdaptiveAvgPool1d(4), nn.Tanh(),
                         nn.Linear(4, classes))
"""


def test_clients_start_from_a_model_without_batch_normalisation_as_theirs_are(splits, tmp_path):
    (tmp_path / "normalised.py").write_text(NORMALISED)
    setting = Setting(
        dataset="digits", samples=40, clients=2, rounds=2, model=(f"{tmp_path}/normalised.py:build",), policy=BUDGET
    )
    with Inline() as workers:
        told = [record for records in simulate(Run("FL", 0, setting), splits, workers) for record in records]
    assert [record.trouble for record in told] == [None] * 4
    assert all(record.bytes_up and record.epsilon <= 3.0 for record in told)
