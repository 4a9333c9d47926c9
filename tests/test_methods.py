import numpy as np
import pytest
import torch

from repshare import Client, LeNet5, LocalExchange, Task, sums, wire
from repshare.board import Wants
from repshare.errors import ConfigError, Refused
from repshare.methods import FL, find_method
from repshare.methods.fedavg import read_weights
from repshare.models import ResNet9

TASK = Task(10, 84)


def lenet(seed=0):
    torch.manual_seed(seed)
    return LeNet5()


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
            FL.absorb(party.learner, server.teach(str(number), Wants(0, 0)))
            party.learner.train()
            bodies[str(number)] = FL.share(party.learner, party.round_number)
        for name, body in bodies.items():
            server.accept(name, body)


def test_the_average_of_two_identical_clients_equals_one_client_bit_for_bit(data):
    start = read_weights(lenet())
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
    start = read_weights(lenet(7))
    server = FL.serve(TASK, start)
    (client,) = clients(data, server, "a")
    FL.absorb(client.learner, server.teach("a", Wants(0, 0)))
    assert np.abs(flat(client.learner.network.model) - flat(lenet(7))).max() <= sums.STEP
    own = flat(lenet(0))
    (client,) = clients(data, FL.serve(TASK, None), "a")
    FL.absorb(client.learner, FL.serve(TASK, None).teach("a", Wants(0, 0)))
    assert np.array_equal(flat(client.learner.network.model), own)


def test_batch_statistics_are_averaged_too():
    torch.manual_seed(0)
    first, second = ResNet9(), ResNet9()
    first.train()(torch.randn(4, 1, 28, 28))
    server = FL.serve(TASK, None)
    for name, model in (("a", first), ("b", second)):
        server.accept(name, wire.encode_weights(read_weights(model), round=1, samples=1))
    average = wire.decode_weights(server.teach("a", Wants(0, 0)))[0]
    name = "features.0.1.running_mean"
    expected = (first.state_dict()[name] + second.state_dict()[name]) / 2
    assert average[name] == pytest.approx(expected.numpy(), abs=1e-7)
    assert average["features.0.1.num_batches_tracked"].dtype == np.int64


def test_weights_of_another_architecture_are_refused():
    server = FL.serve(TASK, read_weights(lenet()))
    with pytest.raises(Refused, match="another architecture"):
        server.accept("b", wire.encode_weights(read_weights(ResNet9()), round=1, samples=1))


def test_weights_that_are_not_finite_are_refused():
    server = FL.serve(TASK, None)
    with pytest.raises(Refused, match="not finite"):
        server.accept("a", wire.encode_weights({"w": np.array([np.nan], np.float32)}, round=1, samples=1))


def test_methods_are_found_by_their_letters():
    assert find_method("rs").name == "RS"
    with pytest.raises(ConfigError, match="unknown method 'XX': choose CL, IL, FL, FD, RS"):
        find_method("XX")
