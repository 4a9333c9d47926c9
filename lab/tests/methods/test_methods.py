import numpy as np
import pytest
import torch

from repshare import Client, LeNet5, LocalExchange, Task
from repshare.board import Wants
from repshare.errors import ConfigError, Malformed, Refused
from repshare.network.models import split
from repshare.sharing import fixed_point, wire
from repshare_lab.config import Setting
from repshare_lab.methods import FC, FL, find_method
from repshare_lab.methods.averaging import read_weights
from repshare_lab.networks import ResNet9

TASK = Task(10, 84)


def lenet(seed=0):
    torch.manual_seed(seed)
    return LeNet5()


def network(seed=0):
    return split(lenet(seed), torch.zeros(1, 1, 28, 28))


def clients(data, server, names, seeds=None):
    return [
        Client(lenet(s), data, LocalExchange(server, name), name="same streams", method=FL)
        for s, name in zip(seeds or range(len(names)), names, strict=True)
    ]


def flat(model):
    return np.concatenate([array.ravel() for array in read_weights(model).values()])


@pytest.fixture
def data(digits):
    (images, labels), _ = digits
    return images[:100], labels[:100]


def in_step(parties, server, rounds):
    """Everyone collects and trains before anyone's weights are averaged, as FedAvg's rounds do."""
    for _ in range(rounds):
        bodies = {}
        for number, party in enumerate(parties):
            party.round_number += 1
            party.learner.absorb(server.teach(str(number), Wants(0, 0)))
            party.learner.train()
            bodies[str(number)] = party.learner.release(party.round_number)
        for name, body in bodies.items():
            server.accept(name, body)


def test_the_average_of_two_identical_clients_equals_one_client_bit_for_bit(data):
    start = network()
    finals = []
    for count in (1, 2):
        server = FL.serve(TASK, start)
        in_step(clients(data, server, "ab"[:count]), server, 3)
        finals.append(server.teach("a", Wants(0, 0)))
    one, two = (wire.decode_weights(body)[0] for body in finals)
    assert all(np.array_equal(one[name], two[name]) for name in one)


def test_the_average_weighs_clients_by_their_samples():
    server = FL.serve(TASK, None)
    for name, value, samples in (("a", 1.0, 1), ("b", 4.0, 2)):
        server.accept(name, wire.encode_weights({"w": np.full(3, value, np.float32)}, round=1, samples=samples))
    assert wire.decode_weights(server.teach("a", Wants(0, 0)))[0]["w"].tolist() == [3.0] * 3


def test_clients_start_from_common_weights_unless_told_otherwise(data):
    start = network(7)
    server = FL.serve(TASK, start)
    (client,) = clients(data, server, "a")
    client.learner.absorb(server.teach("a", Wants(0, 0)))
    assert np.abs(flat(client.learner.network.model) - flat(lenet(7))).max() <= fixed_point.STEP
    own = flat(lenet(0))
    (client,) = clients(data, FL.serve(TASK, None), "a")
    client.learner.absorb(FL.serve(TASK, None).teach("a", Wants(0, 0)))
    assert np.array_equal(flat(client.learner.network.model), own)


def test_weights_of_another_architecture_are_refused():
    server = FL.serve(TASK, network())
    with pytest.raises(Refused, match="another architecture"):
        server.accept("b", wire.encode_weights(read_weights(ResNet9()), round=1, samples=1))


def test_weights_that_are_not_finite_are_refused():
    server = FL.serve(TASK, None)
    with pytest.raises(Refused, match="not finite"):
        server.accept("a", wire.encode_weights({"w": np.array([np.nan], np.float32)}, round=1, samples=1))


def test_fixed_codes_are_the_same_for_everyone_and_teach_without_a_word(data):
    first, second, other = (Client(lenet(), data, name=n, method=FC, seed=s) for n, s in (("a", 0), ("b", 0), ("b", 1)))
    codes = first.learner.targets.means
    assert codes.shape == (10, 84)
    assert codes.abs().unique().tolist() == [pytest.approx(0.9)]
    assert 0.4 < (codes > 0).float().mean() < 0.6
    assert torch.equal(codes, second.learner.targets.means)
    assert not torch.equal(codes, other.learner.targets.means)
    records = list(first.rounds(4))
    assert records[-1].kd < records[0].kd < 1.7
    assert {(record.disc, record.bytes_up, record.bytes_down) for record in records} == {(None, 0, 0)}
    assert torch.equal(codes, first.learner.targets.means)


def test_a_setting_says_how_large_codes_are(data):
    method = find_method("FC", Setting(code_size=0.25))
    client = Client(lenet(), data, name="a", method=method)
    assert client.learner.targets.means.abs().unique().tolist() == [0.25]
    with pytest.raises(ConfigError, match="code_size must be at least 0"):
        Setting(code_size=-1.0)


def weights_of(value, round=1, samples=1):
    return wire.encode_weights({"w": np.full(3, value, np.float32)}, round=round, samples=samples)


def average(server):
    return wire.decode_weights(server.teach("", Wants(0, 0)))[0]["w"].tolist()


def test_sending_the_same_round_twice_counts_once():
    server = FL.serve(TASK, None)
    for client, value in (("a", 1.0), ("a", 1.0), ("b", 4.0)):
        server.accept(client, weights_of(value))
    assert average(server) == [2.5] * 3


def test_an_average_that_would_overflow_is_refused():
    server = FL.serve(TASK, None)
    server.accept("a", weights_of(1e6, samples=1000))
    with pytest.raises(Refused, match="too large"):
        server.accept("b", weights_of(1e6, samples=1000))
    assert average(server) == [1e6] * 3
    with pytest.raises(Refused, match="no sample"):
        server.accept("c", weights_of(1.0, samples=0))


def test_groups_of_clients_sum_to_the_same_bits():
    rng = np.random.default_rng(0)
    bodies = {
        str(i): wire.encode_weights(
            {"w": rng.normal(size=50).astype(np.float32)}, round=1, samples=int(rng.integers(1, 99))
        )
        for i in range(6)
    }
    finals = []
    for groups in ([list(bodies)], [["0", "3"], ["1", "5", "4"], ["2"]]):
        server = FL.serve(TASK, None)
        for group in groups:
            server.accept_sum(FL.add_up({name: bodies[name] for name in group}))
        finals.append(server.teach("", Wants(0, 0)))
    assert finals[0] == finals[1]


def test_an_average_of_another_architecture_is_not_taken_in(data):
    (client,) = clients(data, FL.serve(TASK, None), "a")
    with pytest.raises(Malformed, match="another architecture"):
        client.learner.absorb(weights_of(1.0))
