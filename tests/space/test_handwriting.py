"""Short vectors without anybody's data: synthetic glyphs, and the directions that tell them apart."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from scipy.linalg import eigh

from repshare.errors import ConfigError
from repshare.space import Patches, choose, describe, fingerprint, handwriting, read
from repshare.space.agreement import Agreement
from repshare.space.handwriting import discriminate, draw_glyphs
from repshare.space.patch_map import reduce

SMALL = Patches((1, 8, 8), sizes=(3, 4), filters=8, components=20, components_of="glyphs")


@cache
def drawn(shape, seed=0):
    return np.concatenate([*draw_glyphs(shape, seed)])


def test_glyphs_are_the_same_everywhere_up_to_rounding():
    first = next(draw_glyphs((1, 28, 28), 5))
    assert (first.dtype, first.shape) == (np.float32, (50, 12, 1, 28, 28))
    expected = [1.10561, 2.8, 2.09031, -0.10401, -0.17482, 1.45383]
    assert first[0, 0, 0, 18, 11:17].tolist() == pytest.approx(expected, abs=1e-3)
    assert first.tobytes() == next(draw_glyphs((1, 28, 28), 5)).tobytes()
    assert not np.array_equal(first, next(draw_glyphs((1, 28, 28), 6)))


@pytest.mark.parametrize("shape", [(1, 8, 8), (2, 17, 23), (1, 28, 28)], ids=str)
def test_glyphs_of_any_size_are_bright_strokes_in_the_middle_of_dark_images(shape):
    images = drawn(shape)
    assert images.shape == (handwriting.GLYPHS, handwriting.COPIES, *shape)
    assert images.min() == pytest.approx(handwriting.GROUND, abs=1e-6)
    assert handwriting.BLACK / 2 < images.max() <= handwriting.BLACK + 1e-6
    ink = images.mean(axis=2) - handwriting.GROUND
    rows, columns = np.mgrid[0 : shape[1], 0 : shape[2]]
    for axis, edge in ((rows, shape[1]), (columns, shape[2])):
        centre = (ink * axis).sum(axis=(2, 3)) / ink.sum(axis=(2, 3))
        assert abs(np.median(centre) - (edge - 1) / 2) < 0.05 * edge
        assert np.abs(centre - (edge - 1) / 2).max() < edge / 4
    assert 0.05 < np.median((ink > 1).mean(axis=(2, 3))) < 0.3


def test_copies_of_a_glyph_are_alike_but_not_the_same():
    images = drawn((1, 28, 28)).reshape(handwriting.GLYPHS, handwriting.COPIES, -1).astype(float)
    within = np.square(images[:, 1:] - images[:, :-1]).mean()
    across = np.square(images[1:] - images[:-1]).mean()
    assert 0 < within < 0.7 * across


def test_large_images_have_fewer_copies():
    assert next(draw_glyphs((1, 65, 64), 0)).shape == (50, 3, 1, 65, 64)


def test_directions_are_those_of_the_generalised_eigenproblem():
    rng = np.random.default_rng(0)
    groups = rng.normal(size=(40, 1, 7)) * np.arange(1, 8) + rng.normal(size=(40, 5, 7)) @ rng.normal(size=(7, 7))
    mean, directions = discriminate(iter(np.split(groups, 4)), 4)
    means = groups.mean(axis=1)
    around = (groups - means[:, None]).reshape(-1, 7)
    within = around.T @ around / (len(around) - 40)
    within += np.eye(7) * np.trace(within) / 7
    strength, expected = eigh(np.cov(means.T, bias=True), within)
    strength, expected = strength[::-1][:4], expected[:, ::-1][:, :4]
    assert mean == pytest.approx(groups.mean(axis=(0, 1)))
    assert np.abs(directions) == pytest.approx(np.abs(expected) * strength**0.25)
    assert (directions.max(axis=0) == np.abs(directions).max(axis=0)).all()


@pytest.mark.parametrize("space", [SMALL, Patches((1, 28, 28), filters=2, components=30, components_of="glyphs")])
def test_components_of_glyphs_are_a_function_of_the_description(space):
    batch = torch.rand(5, *space.shape, generator=torch.Generator().manual_seed(0))
    vectors = space(batch)
    assert vectors.shape == (5, space.components)
    assert vectors.square().sum(dim=1).numpy() == pytest.approx(space.components, rel=1e-5)
    assert torch.allclose(space.graph()(batch), vectors, atol=1e-5)
    mean, directions = reduce(space)
    reduce.cache_clear()
    again = read(describe(space))
    assert again == space
    assert torch.equal(again(batch), vectors)
    assert all(map(torch.equal, reduce(again), (mean, directions)))


def test_the_first_components_do_not_depend_on_how_many_there_are():
    (mean, few), (again, many) = (reduce(replace(SMALL, components=count)) for count in (5, 9))
    assert torch.equal(mean, again)
    assert torch.equal(few, many[:, :5])


def test_an_old_description_means_what_it_meant_and_the_kinds_are_two_spaces():
    old = Patches((1, 8, 8), sizes=(3, 4), filters=8, components=20)
    assert "components_of" not in describe(old)
    assert fingerprint(old) == "patches-31d58a6ff330a44e"
    assert describe(SMALL)["components_of"] == "glyphs"
    assert fingerprint(SMALL) != fingerprint(old)
    with pytest.raises(ConfigError, match="components_of leaves, of another kind"):
        read({**describe(SMALL), "components_of": "leaves"})
    with pytest.raises(ConfigError, match="components_of must be one of photographs, glyphs, not 'leaves'"):
        Patches((1, 28, 28), components_of="leaves")
    with pytest.raises(ConfigError, match="components must be from 0 to 599, not 600"):
        Patches((1, 28, 28), components=600, components_of="glyphs")


@pytest.mark.parametrize("shape", [(1, 8, 8), (1, 28, 28), (3, 32, 32), (3, 8, 8), (1, 64, 40)], ids=str)
@pytest.mark.parametrize("count", [1, 30, 150])
def test_a_short_space_for_any_images_is_chosen_by_its_length_alone(shape, count):
    space = choose(("patches", f"components={count}"), torch.zeros(1, *shape), 0)
    assert space.dimension == count
    assert space.components_of == ("glyphs" if shape[0] == 1 else "photographs")
    assert Agreement(space).unusual(-2, 2, images=True) == {}
    plain = choose(("patches", f"components={count}", "filters=24"), torch.zeros(1, *shape), 0)
    assert plain.dimension == count
    assert {*Agreement(plain).unusual(-2, 2, images=True)} <= {"filters"}


def test_few_components_of_glyphs_tell_digits_apart_better_than_those_of_photographs(digits):
    (training, labels), (testing, expected) = digits
    right = {}
    for kind in ("photographs", "glyphs"):
        space = choose(("patches", "filters=16", "components=12", f"components_of={kind}"), training, 0)
        seen, tested = (
            torch.nn.functional.pad(space(each), (0, 1), value=1.0).double() for each in (training, testing)
        )
        targets = torch.nn.functional.one_hot(labels).double()
        weights = torch.linalg.solve(seen.T @ seen + torch.eye(13), seen.T @ targets)
        right[kind] = float(((tested @ weights).argmax(1) == expected).double().mean())
    assert right["glyphs"] > right["photographs"] + 0.03 > 0.7
