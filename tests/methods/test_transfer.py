"""FedKD and FedGKT against their formulas in plain loops, and in the simulator."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from repshare import Client, LeNet5, Policy, Task
from repshare.board import Wants
from repshare.config import Run, Setting
from repshare.errors import ConfigError, Malformed, Refused
from repshare.learning.randomness import torch_stream
from repshare.learning.samples import Samples
from repshare.learning.training import Batch
from repshare.methods import METHODS, find_method
from repshare.methods.transfer.fedkd import MentorOptions
from repshare.methods.transfer.larger import make_layers, softened
from repshare.methods.transfer.low_rank import compress, expand
from repshare.sharing import wire
from support.simulations import bits, resumed_bits

FAMILY = ["FEDKD", "FEDGKT"]
SMALL = Setting(dataset="digits", samples=90, clients=3, rounds=4, model=("mlp", "lenet5"), participation=0.7)
NOTHING = Wants(0, 0)


@pytest.mark.parametrize("method", FAMILY)
def test_different_networks_give_the_same_records_wherever_they_run(method, splits, inline, processes, tmp_path):
    run = Run(method, 0, SMALL)
    whole = bits(run, splits, inline)
    assert not any(record.trouble for records in whole for record in records)
    torch.set_num_threads(2)  # as the parent of worker processes may have
    assert bits(run, splits, processes) == whole
    torch.set_num_threads(1)
    assert resumed_bits(run, splits, inline, tmp_path) == whole[2:]


@pytest.mark.parametrize("method", FAMILY)
def test_none_of_them_knows_privacy_budgets(method):
    with pytest.raises(ConfigError, match=f"leave {method} out"):
        METHODS[method].adapt(Policy(epsilon=1.0))
    if method == "FEDGKT":  # it would share features of single samples
        for policy in (Policy(minimum_count=2), Policy(share_samples=(0,)), Policy(share_classes=(1,))):
            with pytest.raises(ConfigError, match="shares features of every single sample"):
                METHODS[method].adapt(policy)


def parties(digits, method, *words, policy=None):
    """Two clients of 60 and 30 samples, and a server."""
    (images, labels), _ = digits
    chosen = find_method(method, Setting(rounds=11, method_options=tuple(f"{method}.{word}" for word in words)))
    found = []
    for name, rows in (("a", slice(60)), ("b", slice(60, 90))):
        torch.manual_seed(len(found))
        found.append(Client(LeNet5(), (images[rows], labels[rows]), name=name, method=chosen, policy=policy))
    server = chosen.serve(Task(10, 84), None, chosen.options)
    return chosen, server, found


def test_a_matrix_keeps_the_fewest_singular_vectors_that_hold_the_energy():
    rng = np.random.default_rng(0)
    u, _, vt = np.linalg.svd(rng.normal(size=(8, 12)), full_matrices=False)
    spectrum = np.array([10, 5, 2, 1, 0.5, 0.1, 0.05, 0.01])
    array = ((u * spectrum) @ vt).astype(np.float32).reshape(8, 3, 2, 2)
    for energy, kept in ((0.7, 1), (0.95, 2), (0.98, 3)):
        assert (spectrum[:kept] ** 2).sum() >= energy * (spectrum**2).sum() > (spectrum[: kept - 1] ** 2).sum()
        made = compress({"w": array, "b": np.ones(3, np.float32)}, energy)
        assert {name: x.shape for name, x in made.items()} == {
            "w U": (8, kept), "w S": (kept,), "w V": (12, kept), "b": (3,),
        }  # fmt: skip
        nearest = (u[:, :kept] * spectrum[:kept]) @ vt[:kept]
        assert expand(made)["w"] == pytest.approx(nearest, abs=1e-5)
    whole = compress({"w": array}, 1.0)  # as factors it would take more room
    assert expand(whole)["w"] == pytest.approx(array.reshape(8, 12))
    assert list(whole) == ["w"]
    assert expand(compress({"w": np.zeros((4, 5), np.float32)}, 0.9))["w"].tolist() == np.zeros((4, 5)).tolist()
    with pytest.raises(ValueError, match="a factor of w is missing"):
        expand({"w U": array})


def test_the_energy_kept_grows_over_the_rounds():
    options = MentorOptions(energy_start=0.9, energy_end=1.0, rounds=11)
    assert [options.energy(round) for round in (1, 6, 11, 20)] == pytest.approx([0.9, 0.95, 1.0, 1.0])
    with pytest.raises(ConfigError, match="energy_end must be above 0"):
        MentorOptions(energy_end=1.1)


def test_mentor_and_mentee_each_descend_their_own_loss(digits):
    (images, labels), _ = digits
    chosen, _, (client, _) = parties(digits, "FEDKD")
    learner, x, y = client.learner, images[:20], labels[:20]
    mentor, mentee, weights = learner.network, learner.mentee, learner.map.weight
    features, logits = mentor(x)
    (F.cross_entropy(logits, y) + chosen.loss(learner, Batch(x, y, features, logits))).backward()
    made = {id(p): p.grad.clone() for p in learner.trained}

    (h_t, z_t), (h_s, z_s) = mentor(x), mentee(x)
    ce_t, ce_s = F.cross_entropy(z_t, y), F.cross_entropy(z_s, y)
    scale = (ce_t + ce_s).item()
    p_t, p_s = z_t.softmax(1), z_s.softmax(1)
    hidden = ((h_t - h_s @ weights.T) ** 2).sum(1).mean() / 84

    def divergence(p, q):
        return (p * (p.log() - q.log())).sum(1).mean()

    of_mentor = ce_t + (divergence(p_s.detach(), p_t) + hidden) / scale
    of_mentee = ce_s + (divergence(p_t.detach(), p_s) + hidden) / scale
    for loss, parameters in (
        (of_mentor, list(mentor.model.parameters())),
        (of_mentee, [*mentee.model.parameters(), weights]),
    ):
        for parameter, gradient in zip(
            parameters, torch.autograd.grad(loss, parameters, retain_graph=True), strict=True
        ):
            assert torch.allclose(made[id(parameter)], gradient, atol=1e-5)


def test_mentees_stay_the_same_everywhere_and_move_by_the_mean_of_their_changes(digits):
    chosen, server, both = parties(digits, "FEDKD", "energy_start=1", "energy_end=1")
    absent = parties(digits, "FEDKD")[2][0]
    before = [client.learner.mentee.model.state_dict() for client in both]
    assert all(torch.equal(before[0][name], before[1][name]) for name in before[0])
    for round in (1, 2):
        start = {name: x.clone() for name, x in both[0].learner.mentee.model.state_dict().items()}
        for client in both:
            client.learner.train()
        ends = [client.learner.mentee.model.state_dict() for client in both]
        expected = {name: x + (60 * (ends[0][name] - x) + 30 * (ends[1][name] - x)) / 90 for name, x in start.items()}
        for client in both:
            server.accept(client.name, chosen.share(client.learner, round))
        for client in 2 * both:  # to absorb the same again changes nothing
            chosen.absorb(client.learner, server.teach(client.name, NOTHING))
            assert len(wire.decode_items(server.teach(client.name, NOTHING))) == 1  # it knows the rounds before
        for client in both:
            after = client.learner.mentee.model.state_dict()
            assert all(torch.allclose(after[name], x, atol=1e-6) for name, x in expected.items())
    chosen.absorb(absent.learner, server.teach("late", NOTHING))  # both rounds' changes
    assert all(
        torch.allclose(absent.learner.mentee.model.state_dict()[name], x, atol=1e-6) for name, x in after.items()
    )
    assert not torch.equal(both[0].learner.network.head.weight, both[1].learner.network.head.weight)  # mentors stay


def test_changes_are_smaller_than_the_mentee_and_either_may_decide(digits):
    chosen, server, (client, _) = parties(digits, "FEDKD", "energy_start=0.8", "energy_end=0.8")
    client.learner.train()
    body = chosen.share(client.learner, 1)
    whole = sum(x.numel() * 4 for x in client.learner.mentee.model.state_dict().values())
    assert len(body) < 0.7 * whole
    server.accept("a", body)
    assert len(server.teach("b", NOTHING)) < 0.7 * whole
    samples = Samples(digits[1])
    mentor = client.learner.scores(samples)
    client.learner.options = replace(client.learner.options, decide="mentee")
    mentee = client.learner.scores(samples)
    with torch.no_grad():
        assert torch.allclose(mentee, client.learner.mentee(digits[1][0])[1], atol=1e-5)
    assert not torch.allclose(mentor, mentee)


def test_a_change_of_another_mentee_is_refused(digits):
    chosen, server, (client, other) = parties(digits, "FEDKD")
    server.accept("a", chosen.share(client.learner, 1))
    for changes in ({"w": np.zeros((2, 2), np.float32)}, {"w U": np.zeros((2, 2), np.float32)}):
        body = wire.encode_weights(changes, round=1, samples=1)
        with pytest.raises(Refused, match=r"another mentee|cannot be put together"):
            server.accept("b", body)
        with pytest.raises(Malformed, match="another mentee"):
            chosen.absorb(other.learner, wire.encode_items({"1": body}))
    with pytest.raises(ConfigError, match="built for images or tables"):
        Client(
            nn.Sequential(nn.EmbeddingBag(9, 4), nn.Linear(4, 2)),
            (torch.ones(4, 3, dtype=torch.long), torch.tensor([0, 1, 0, 1])),
            method=METHODS["FEDKD"],
        )


def test_fedgkt_sends_every_sample_and_gets_the_servers_logits_for_it_back(digits):
    chosen, server, both = parties(digits, "FEDGKT", "hidden=16", "server_epochs=2", "beta=0.5")
    for client in both:
        server.accept(client.name, chosen.share(client.learner, 1))
    sent = [wire.decode_weights(server.sent[name])[0] for name in "ab"]
    assert [each["features"].shape for each in sent] == [(60, 84), (30, 84)]
    assert sent[1]["labels"].tolist() == digits[0][1][60:90].tolist()
    features, logits, labels = (torch.from_numpy(np.concatenate([each[name] for each in sent]))
                                for name in ("features", "logits", "labels"))  # fmt: skip
    twin = make_layers(84, 10, 16, 0)
    twin.load_state_dict(server.layers.state_dict())
    optimizer, draws = torch.optim.Adam(twin.parameters()), torch_stream(0, "server", "batches", 1)
    for _ in range(2):
        for part in torch.randperm(90, generator=draws).split(64):
            own, soft = twin(features[part]), (logits[part] / 3).softmax(1)
            kl = (soft * (soft.log() - (own / 3).log_softmax(1))).sum(1).mean()
            optimizer.zero_grad()
            (F.cross_entropy(own, labels[part].long()) + 0.5 * 9 * kl).backward()
            optimizer.step()
    for client, rows in zip(both, (slice(60), slice(60, 90)), strict=True):
        chosen.absorb(client.learner, server.teach(client.name, NOTHING))
        kept = client.learner.remembered["logits"]
        assert torch.allclose(kept, twin(features)[rows].detach(), atol=1e-4)
    assert wire.decode_weights(server.teach("absent", NOTHING))[0] == {}


def test_a_fedgkt_client_learns_from_the_logits_of_the_samples_in_its_batch(digits):
    chosen, server, (client, _) = parties(digits, "FEDGKT", "alpha=0.25", "hidden=8")
    learner, seen = client.learner, []
    learner.loss = lambda own, batch: seen.append((own._rows, batch.labels)) or chosen.loss(own, batch)
    server.accept("a", chosen.share(learner, 1))
    chosen.absorb(learner, server.teach("a", NOTHING))
    learner.train()
    for rows, labels in seen:
        assert labels.tolist() == digits[0][1][:60][rows].tolist()
    assert sorted(torch.cat([rows for rows, _ in seen]).tolist()) == list(range(60))
    logits, taught = torch.randn(len(rows), 10), learner.remembered["logits"][rows]
    loss = chosen.loss(learner, Batch(None, None, None, logits))
    assert loss.item() == pytest.approx(0.25 * softened(logits, taught, 3.0).item())


def test_a_fedgkt_test_uses_the_servers_layers_on_the_clients_features(digits):
    chosen, server, both = parties(digits, "FEDGKT", "hidden=8")
    client, samples = both[0], Samples(digits[1])
    own = client.learner.scores(samples)
    server.accept("a", chosen.share(client.learner, 1))
    chosen.absorb(client.learner, server.lend())
    assert "logits" not in client.learner.remembered
    with torch.no_grad():
        expected = server.layers(client.learner.network(digits[1][0])[0])
    assert torch.allclose(client.learner.scores(samples), expected, atol=1e-4)
    assert not torch.allclose(own, expected)


def test_a_fedgkt_round_is_trained_once_and_again_to_the_same_bits(digits):
    chosen, server, (client, other) = parties(digits, "FEDGKT", "hidden=8")
    server.accept("a", chosen.share(client.learner, 1))
    first = server.lend()
    assert server.lend() == first
    again = chosen.serve(Task(10, 84), None, chosen.options)
    again.load(server.save())
    assert again.lend() == first
    server.accept("b", chosen.share(other.learner, 1))  # the same round, one more client: trained from before it
    again.accept("b", chosen.share(other.learner, 1))
    assert server.lend() == again.lend() != first
    fresh = chosen.serve(Task(10, 84), None, chosen.options)
    for each in (client, other):
        fresh.accept(each.name, chosen.share(each.learner, 1))
    assert fresh.lend() == server.lend()
    for each in (server, again):
        each.accept("a", chosen.share(client.learner, 2))
    assert server.lend() == again.lend()
    for message in ({"features": np.zeros((2, 3), np.float32)}, {}):
        with pytest.raises(Refused, match="not features, logits and classes"):
            server.accept("c", wire.encode_weights(message, round=2, samples=2))
    with pytest.raises(Malformed, match="not those of 60 samples"):
        chosen.absorb(
            client.learner, wire.encode_weights({"logits": np.zeros((3, 10), np.float32)}, round=1, samples=3)
        )
