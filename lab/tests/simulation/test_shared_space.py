"""What clients of one worker share in a space changes no bit of what each would compute by itself."""

import numpy as np
import pytest
import torch

from repshare.samples import Samples
from repshare.space import Patches, choose
from repshare.space.agreement import Agreement
from repshare_lab.simulation import shared_space
from repshare_lab.simulation.shared_space import Memory, SharedAgreement

SOME = Agreement(Patches((1, 8, 8), sizes=(3, 4), filters=4, grid=2))


def counted(agreement, monkeypatch):
    """The batches that are computed from now on."""
    seen, vectors = [], Agreement.vectors
    monkeypatch.setattr(Agreement, "vectors", lambda self, inputs: seen.append(len(inputs)) or vectors(self, inputs))
    return seen


def test_what_is_remembered_changes_no_bit_of_a_vector(monkeypatch):
    agreement, images = Agreement(choose((), torch.zeros(1, 3, 32, 32), 0)), torch.rand(33, 3, 32, 32)
    expected, seen = agreement.vectors(images), counted(agreement, monkeypatch)
    for shift in (0, 7, 11):  # the same images in other batches
        memory = Memory()
        memory.embed(agreement, images[shift : shift + 15])
        for _ in range(2):
            assert np.array_equal(memory.embed(agreement, images).vectors, expected)
    assert seen == [15, 33] * 3


def test_the_oldest_batches_are_forgotten_when_there_are_too_many(monkeypatch):
    images, seen = torch.rand(3, 4, 1, 8, 8), counted(SOME, monkeypatch)
    memory = Memory(most_bytes=2 * 4 * SOME.space.dimension * 4)
    for batch in (*images, images[2], images[1]):
        memory.embed(SOME, batch)
    assert len(seen) == 3
    memory.embed(SOME, images[0])
    assert len(seen) == 4


@pytest.mark.parametrize("at_once", [True, False])
def test_a_shared_agreement_embeds_to_the_same_bits_and_tests_once(monkeypatch, at_once):
    monkeypatch.setattr(shared_space, "MEMORY", Memory())
    samples = Samples((torch.rand(30, 1, 8, 8), torch.arange(30) % 10))
    shared = SharedAgreement(*SOME)
    shared.test = samples
    expected, _ = SOME.embed(samples, at_once=at_once)
    assert (shared, shared.name, shared.is_simulated) == (SOME, SOME.name, True)
    seen, embed = [], Agreement.embed
    monkeypatch.setattr(Agreement, "embed", lambda self, *given: seen.append(given) or embed(self, *given))
    for _ in range(2):
        assert np.array_equal(shared.embed(samples)[0], SOME.embed(samples)[0])
    assert len(seen) == 3
    monkeypatch.setattr(Agreement, "embed", embed)
    other = Samples((samples.batch(torch.arange(30))[0], samples.labels))
    assert np.array_equal(shared.embed(other, at_once=at_once)[0], expected)
