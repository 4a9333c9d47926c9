"""Fixed feature maps: the same vectors for everyone, of the length and the kernel that they promise."""

import hashlib
import math
from dataclasses import fields, replace
from functools import cache

import numpy as np
import pytest
import torch

from repshare.errors import ConfigError, DataError, ModelError
from repshare.space import (
    Backbone,
    Fourier,
    Patches,
    choose,
    compare,
    describe,
    fingerprint,
    hash_weights,
    measure,
    read,
    seeded,
)
from repshare.space.filters import accumulate, root
from repshare.space.photographs import draw_leaves
from repshare.testing import SpaceContract

SHAPES = [(1, 8, 8), (3, 32, 32), (2, 17, 23)]
STEP = 2.0**-14  # of the numbers of a filter
SMALL = {"sizes": (3, 5), "filters": 4, "grid": 2}
VARIANTS = [
    {},
    {"whiten": True},
    {"mirror": True},
    {"fourier": 96},
    {"whiten": True, "mirror": True, "fourier": 64},
]
SOME = Patches((1, 8, 8), seed=5, **SMALL)
ROWS = Fourier((-1.0, 0.0), (1.0, 5.0), seed=5, features=64)
DEEP = {"deep": 5, "deep_grid": 2}
SPACES = [
    *(Patches(shape, **SMALL) for shape in SHAPES),
    *(Patches((3, 16, 16), **SMALL, **options) for options in VARIANTS),
    Patches((2, 13, 14), **SMALL, **DEEP),
    Patches((2, 13, 14), **SMALL, **DEEP, whiten=True, mirror=True, fourier=64),
    Patches((1, 8, 8), **SMALL, components=7),
    ROWS,
]
PHOTOGRAPHS = Patches(
    (3, 32, 32), 4, (5, 8), 112, 0.5, 0.16, whiten=True, deep=384, mirror=True, fourier=16384, width=0.8
)


draw_once = cache(draw_leaves)


@pytest.fixture
def drawn(monkeypatch):
    """The synthetic photographs of one shape and seed are drawn once for all tests that are not about them."""
    monkeypatch.setattr("repshare.space.patch_map.draw_leaves", lambda *which: draw_once(*which).copy())


def sha256(array):
    return hashlib.sha256(np.ascontiguousarray(array).astype("<f4").tobytes()).hexdigest()


def images(shape, count=6, seed=0):
    return torch.randn(count, *shape, generator=torch.Generator().manual_seed(seed))


def test_normal_numbers_are_the_same_everywhere_and_for_ever():
    drawn = seeded.normal((4,), 7, "filters", 5)
    assert drawn.dtype == np.float32
    assert drawn.tolist() == [-0.1751251220703125, 0.766998291015625, 1.2871551513671875, 1.4562530517578125]
    large = "86222ad3487b674d7f70bcaf6dff6b4e2e813e350fb912fcea6176e9cb0bb58a"
    assert sha256(seeded.normal((1000, 37), 7, "filters", 5)) == large


def test_uniform_numbers_are_the_same_everywhere_and_for_ever():
    drawn = seeded.uniform((4,), 7, "phases")
    assert drawn.dtype == np.float32
    expected = ["0x1.f257300000000p-3", "0x1.0bac7c0000000p-2", "0x1.5ebb9c0000000p-1", "0x1.7b5d900000000p-3"]
    assert drawn.tolist() == [float.fromhex(each) for each in expected]
    large = "65ef63029d6be908e6d4bbe39a56e6e8ae8043dc61211f92e946e2d57701cbcc"
    assert sha256(seeded.uniform((100_000,), 7, "phases")) == large


def test_numbers_have_the_moments_of_their_distributions():
    normal = seeded.normal((200_000,), 1, "moments").astype(float)
    assert normal.mean() == pytest.approx(0, abs=0.01)
    assert normal.var() == pytest.approx(1, abs=0.01)
    assert (normal**3).mean() == pytest.approx(0, abs=0.03)
    assert (normal**4).mean() == pytest.approx(3 - 1.2 / 12, abs=0.05)  # of twelve uniform terms
    uniform = seeded.uniform((200_000,), 1, "moments").astype(float)
    assert uniform.mean() == pytest.approx(1 / 2, abs=0.005)
    assert uniform.var() == pytest.approx(1 / 12, abs=0.002)
    assert 0 <= uniform.min() < uniform.max() < 1


def test_every_path_has_numbers_of_its_own():
    paths = [(0, "filters", 5), (1, "filters", 5), (0, "filters", 7), (0, "frequencies"), ("0", "filters", 5)]
    for draw in (seeded.normal, seeded.uniform):
        assert len({draw((8,), *path).tobytes() for path in paths}) == len(paths)


def test_filters_are_the_same_everywhere_and_for_ever():
    banks = [bank.filters for bank in Patches((1, 28, 28), seed=3).map.banks]
    assert [tuple(bank.shape) for bank in banks] == [(48, 1, edge, edge) for edge in (5, 7, 9)]
    assert [sha256(bank.numpy()) for bank in banks] == [
        "fabad8e0c3ad950d5efe5f05d1f16f279f5a0b05e0b977927301e811b4a76ac5",
        "fda3e08cbfa548cfa78a7bda663c17bbe4d76a70669ddcc009a56dcaf2a7df29",
        "2952747d3ce44fe70b8dcc2da3b889f9016a014174ac56e8512bd4fb2f38c528",
    ]


def test_whitened_filters_are_the_same_everywhere_up_to_rounding():
    small, middle, _ = (bank.filters for bank in Patches((3, 32, 32), seed=3, epsilon=1.0, whiten=True).map.banks)
    expected = [-0.09314, 0.34656, 0.19421, -0.38391]
    assert small[0, 0, 0, :4].tolist() == pytest.approx(expected, abs=2 * STEP)
    expected = [0.0957, -0.61896, 0.30341, 0.0567]
    assert small[0, 2, 4, :4].tolist() == pytest.approx(expected, abs=2 * STEP)
    expected = [-0.21552, 0.55316, 0.15808, 0.1427]
    assert middle[-1, 1, 3, :4].tolist() == pytest.approx(expected, abs=2 * STEP)


def test_filters_have_mean_0_and_length_1_up_to_their_rounding():
    for bank in Patches((3, 32, 32), seed=3).map.banks:
        flat = bank.filters.flatten(1).double()
        assert flat.mean(dim=1).abs().max() < STEP / 2
        assert flat.norm(dim=1).numpy() == pytest.approx(1, abs=1e-3)
        assert torch.equal((flat / STEP).round(), flat / STEP)


def test_the_synthetic_photographs_are_the_same_everywhere_up_to_rounding():
    drawn = draw_leaves(3, (3, 9, 8), 5)
    assert (drawn.dtype, drawn.shape) == (np.float32, (3, 3, 9, 8))
    assert drawn.mean() == pytest.approx(0, abs=1e-5)
    assert drawn.std() == pytest.approx(1, abs=1e-5)
    assert drawn[0, 0, 4].tolist() == pytest.approx(
        [0.00815, 0.0992, 0.85209, 1.65023, 1.02529, 1.1836, 0.30028, 0.39084], abs=1e-4
    )
    assert drawn[2, 1, 0].tolist() == pytest.approx(
        [-0.34588, 0.51597, 0.50292, 0.48987, 0.0091, -1.0536, -0.70361, 0.03212], abs=1e-4
    )
    many = draw_leaves(40, (1, 24, 24), 5)
    near, far = ((many[..., apart:] * many[..., :-apart]).mean() for apart in (1, 16))
    assert near > 0.7 > 0.5 > far  # neighbouring pixels are alike, as in photographs


def test_the_dimension_is_the_number_of_cosines_or_components_or_of_what_is_pooled():
    space = Patches((2, 13, 14), **SMALL)
    assert (space.dimension, replace(space, **DEEP).dimension) == (2 * 2 * 4 * 2**2, 2 * (2 * 4 * 2**2 + 5 * 2**2))
    assert (replace(space, fourier=64).dimension, replace(space, components=7).dimension) == (64, 7)


@pytest.fixture(params=SPACES, ids=str)
def space(request, drawn):
    return request.param


@pytest.fixture
def inputs(space):
    return images(space.input_shape, 12)


class TestSpaces(SpaceContract):
    """All kinds of spaces, with all their options."""

    def test_one_that_is_described_and_read_again_is_the_same(self, space):
        assert read(describe(space)) == space


@pytest.mark.usefixtures("drawn")
@pytest.mark.parametrize("options", VARIANTS, ids=str)
@pytest.mark.parametrize("value", [0.0, 1.0, -300.0])
def test_an_image_without_contrast_is_no_longer_than_others_and_finite(options, value):
    space = Patches((3, 12, 12), **SMALL, **options)
    vectors = space(torch.full((3, 3, 12, 12), value))
    assert vectors.isfinite().all()
    if space.fourier:
        assert vectors.norm(dim=1).numpy() == pytest.approx(math.sqrt(space.dimension), rel=1e-5)
    else:
        assert not vectors.any()  # it is like no filter


def test_vectors_do_not_depend_on_the_brightness_of_an_image():
    batch = images((1, 8, 8))
    assert torch.allclose(SOME(batch), SOME(batch + 2), atol=0.05)
    assert not torch.allclose(SOME(batch), SOME(batch * 0.1), atol=0.5)


@pytest.mark.usefixtures("drawn")
@pytest.mark.parametrize("options", [{}, {"fourier": 128}, {"whiten": True}], ids=str)
def test_with_mirror_an_image_and_its_mirror_image_have_one_vector(digits, options):
    (training, _), _ = digits
    batch = training[:10]
    plain, mirrored = (Patches((1, 8, 8), **SMALL, **options, mirror=mirror) for mirror in (False, True))
    assert torch.allclose(mirrored(batch), mirrored(batch.flip(3)), atol=1e-4)
    assert (plain(batch) - plain(batch.flip(3))).norm(dim=1).min() > 1


def test_an_images_numbers_are_those_of_a_plain_loop_over_its_patches():
    image = images((2, 6, 6), 1)[0].double().numpy()
    space = Patches((2, 6, 6), seed=9, sizes=(3,), filters=3, grid=2, threshold=0.7, epsilon=0.3)
    filters = space.map.banks[0].filters.double().numpy()
    expected = []
    for sign in (1, -1):
        for kernel in filters:
            likeness = np.zeros((4, 4))
            for row in range(4):
                for column in range(4):
                    patch = image[:, row : row + 3, column : column + 3]
                    scaled = (patch - patch.mean()) / math.sqrt(patch.var() + 0.3)
                    likeness[row, column] = max(0.0, sign * (scaled * kernel).sum() - 0.7)
            expected += [math.sqrt(likeness[r : r + 2, c : c + 2].mean()) for r in (0, 2) for c in (0, 2)]
    expected = np.array(expected) * math.sqrt(24) / np.linalg.norm(expected)
    assert space(torch.from_numpy(image[None]).float())[0].numpy() == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("width", [0.5, 1.0, 2.0])
def test_inner_products_of_cosines_are_a_gaussian_kernel(width):
    features, columns = 32_768, 5
    space = Fourier((0.0,) * columns, (1.0,) * columns, features=features, width=width)
    rows = torch.rand(30, columns, generator=torch.Generator().manual_seed(0))
    vectors = torch.from_numpy(space(rows))
    scaled = (rows * 2 - 1).double()
    distances = torch.cdist(scaled, scaled)
    kernel = torch.exp(-distances.square() / (2 * (width * math.sqrt(2 * columns / 3)) ** 2))
    assert kernel.min() < kernel.max() - 0.15
    assert (vectors @ vectors.T / features).double().sub(kernel).abs().max() < 0.03  # about 4 standard deviations


def test_the_cosines_of_images_are_a_gaussian_kernel_of_their_plain_vectors(digits):
    (training, _), _ = digits
    plain, cosines = (Patches((1, 8, 8), **SMALL, fourier=d, width=0.6) for d in (0, 32_768))
    unit = plain(training[:20]).double() / math.sqrt(plain.dimension)
    kernel = torch.exp(-torch.cdist(unit, unit).square() / (2 * 0.6**2))
    vectors = cosines(training[:20]).double()
    assert (vectors @ vectors.T / cosines.dimension - kernel).abs().max() < 0.03


def test_two_random_rows_are_about_one_width_apart():
    columns = 40
    rows = torch.rand(2, 200, columns, generator=torch.Generator().manual_seed(0)) * 8 - 4
    space = Fourier((-4.0,) * columns, (4.0,) * columns, features=4096, width=1.0)
    alike = (space(rows[0]) * space(rows[1])).mean(axis=1)
    assert float(alike.mean()) == pytest.approx(math.exp(-1 / 2), abs=0.02)


def test_values_beyond_a_bound_count_as_the_bound():
    beyond, at = torch.tensor([[-9.0, 2.0], [0.5, 99.0]]), torch.tensor([[-1.0, 2.0], [0.5, 5.0]])
    assert np.array_equal(ROWS(beyond), ROWS(at))
    assert not np.allclose(ROWS(at), ROWS(at - torch.tensor([0.0, 0.5])), atol=1e-2)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Patches((8, 8)), r"channels, height and width of an image, not \(8, 8\)"),
        (lambda: Patches((0, 8, 8)), r"not \(0, 8, 8\)"),
        (lambda: Patches((1, 8, 8)), "filters of 5, 7, 9 pixels and a grid of 3 do not fit images of 8 × 8"),
        (lambda: Patches((1, 8, 30), sizes=(3, 11)), "filters of 3, 11 pixels .* do not fit images of 8 × 30"),
        (lambda: Patches((1, 8, 8), sizes=()), "filters of  pixels .* do not fit"),
        (lambda: Patches((1, 8, 8), sizes=(1,)), "filters of 1 pixels .* do not fit"),
        (lambda: Patches((1, 8, 8), sizes=(6,), grid=4), "filters of 6 pixels and a grid of 4 do not fit"),
        (lambda: Patches((1, 8, 8), sizes=(3,), grid=0), "grid must be at least 1, not 0"),
        (lambda: replace(SOME, deep=4), "deep_grid 2 does not fit images of 8 × 8"),
        (lambda: Patches((1, 28, 28), deep=4, deep_grid=0), "deep_grid must be at least 1, not 0"),
        (lambda: Patches((1, 28, 28), deep=-1), "deep must be at least 0, not -1"),
        (lambda: replace(SOME, filters=0), "filters must be at least 1, not 0"),
        (lambda: replace(SOME, fourier=-2), "fourier must be at least 0, not -2"),
        (lambda: replace(SOME, fourier=7), "fourier must be even, .* not 7"),
        (lambda: replace(SOME, threshold=0.0), "threshold must be above 0 and finite, not 0.0"),
        (lambda: replace(SOME, epsilon=-1.0), "epsilon must be above 0 and finite, not -1.0"),
        (lambda: replace(SOME, width=math.nan), "width must be above 0 and finite, not nan"),
        (lambda: Fourier((0.0,), (1.0, 2.0)), "two bounds a column, not 1 low and 2 high ones"),
        (lambda: Fourier((), ()), "two bounds a column, not 0 low and 0 high ones"),
        (lambda: Fourier((0.0, 3.0), (1.0, 3.0)), "column 1 has bounds 3.0 and 3.0: the first must be below"),
        (lambda: Fourier((0.0,), (math.inf,)), "column 0 has bounds 0.0 and inf"),
        (lambda: replace(ROWS, features=0), "features 0 and width 0.5 must be above 0"),
        (lambda: replace(ROWS, width=0.0), "features 64 and width 0.0 must be above 0"),
    ],
)
def test_a_space_that_makes_no_sense_is_refused(make, words):
    with pytest.raises(ConfigError, match=words):
        make()


@pytest.mark.parametrize(
    ("space", "inputs", "words"),
    [
        (SOME, torch.zeros(4, 1, 9, 8), r"images of shape \(1, 8, 8\), not inputs of shape \(1, 9, 8\)"),
        (SOME, torch.zeros(4, 64), r"images of shape \(1, 8, 8\), not inputs of shape \(64,\)"),
        (SOME, [[1.0]], r"images of shape \(1, 8, 8\), not inputs of shape list"),
        (ROWS, torch.zeros(4, 3), r"vectors of 2 numbers, not inputs of shape \(3,\)"),
        (ROWS, torch.zeros(4, 1, 3), r"vectors of 2 numbers, not inputs of shape \(1, 3\)"),
        (ROWS, {"x": torch.zeros(4, 2)}, "vectors of 2 numbers, not inputs of shape dict"),
    ],
)
def test_data_that_do_not_fit_a_space_are_refused_with_both_named(space, inputs, words):
    with pytest.raises(DataError, match=words):
        space(inputs)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((1, 28, 28), Patches((1, 28, 28), seed=4)),
        ((1, 8, 8), Patches((1, 8, 8), seed=4, sizes=(3, 4), grid=3)),
        ((3, 32, 32), PHOTOGRAPHS),
        ((5,), Fourier((-4.0,) * 5, (4.0,) * 5, seed=4)),
        ((1, 1, 30), Fourier((-4.0,) * 30, (4.0,) * 30, seed=4)),  # a table in the form of images
    ],
    ids=str,
)
def test_without_words_a_space_that_suits_the_data_is_chosen(shape, expected):
    example = torch.zeros(2, *shape)
    chosen = choose((), example, 4)
    assert chosen == expected == choose((expected.name,), example, 4)
    assert chosen(example).shape == (2, expected.dimension)


def test_words_choose_a_space_and_its_options():
    words = [
        "patches",
        "filters=7",
        "sizes=2,4",
        "grid=2",
        "whiten=True",
        "mirror=false",
        "threshold=0.5",
        "fourier=98",
    ]
    options = {"filters": 7, "sizes": (2, 4), "grid": 2, "whiten": True, "threshold": 0.5, "fourier": 98}
    assert choose(words, torch.zeros(1, 1, 8, 8), 3) == Patches((1, 8, 8), seed=3, **options)
    assert choose(["patches", "seed=8"], torch.zeros(1, 1, 28, 28), 3) == Patches((1, 28, 28), seed=8)
    narrow = Fourier((-4.0,) * 2, (4.0,) * 2, features=10, width=0.7)
    assert choose(["fourier", "features=10", "width=0.7"], torch.zeros(1, 2), 0) == narrow


@pytest.mark.parametrize(
    ("words", "shape", "message"),
    [
        (("wavelets",), (1, 8, 8), r"no space for 'wavelets': choose patches \(images\), fourier \(vectors\)"),
        ((), (), r"no space for inputs of shape \(\)"),
        (("patches",), (5,), r"the space patches takes images .* not inputs of shape \(5,\)"),
        (("patches", "filter=3"), (1, 8, 8), "patches has no option 'filter=3': use seed=…, sizes=…, filters=…"),
        (("patches", "shape=1,8,8"), (1, 8, 8), "patches has no option 'shape=1,8,8'"),
        (("patches", "filters"), (1, 8, 8), "patches has no option 'filters'"),
        (("patches", "filters="), (1, 8, 8), "patches has no option 'filters='"),
        (("patches", "filters=many"), (1, 8, 8), "filters cannot be 'many': its default is 48"),
        (("patches", "sizes=3,x"), (1, 8, 8), r"sizes cannot be '3,x': its default is \(5, 7, 9\)"),
        (("patches", "mirror=1"), (1, 8, 8), "mirror cannot be '1': its default is False"),
        (("patches", "sizes=9"), (1, 8, 8), r"filters of 9 pixels .*do not fit images of 8 × 8"),
        (("fourier", "low=0"), (2,), "fourier has no option 'low=0': use seed=…, features=…, width=…"),
        (("mine.py:net", "filters=3"), (2,), "a module of your own has the option compute=… only: leave filters=3 out"),
    ],
)
def test_words_that_choose_no_space_are_refused(words, shape, message):
    with pytest.raises(ConfigError, match=message):
        choose(words, torch.zeros(2, *shape), 0)


@pytest.mark.parametrize("space", [Patches((1, 28, 28), seed=5), ROWS], ids=["patches", "fourier"])
def test_any_changed_field_is_another_fingerprint(space):
    changed = {
        "shape": (1, 28, 29), "seed": 6, "sizes": (3, 4), "filters": 5, "threshold": 1.25, "epsilon": 0.5, "grid": 1,
        "deep": 3, "deep_grid": 1,
        "whiten": True, "mirror": True, "fourier": 8, "width": 2.0, "components": 7, "components_of": "glyphs",
        "low": (-1.0, 0.5), "high": (1.0, 4.5), "features": 65,
    }  # fmt: skip
    prints = [fingerprint(replace(space, **{field.name: changed[field.name]})) for field in fields(space)]
    assert len({fingerprint(space), *prints}) == 1 + len(fields(space))
    assert all(name.startswith(f"{space.name}-") and len(name) == len(space.name) + 17 for name in prints)
    assert fingerprint(replace(space)) == fingerprint(space)


def test_equal_spaces_have_equal_fingerprints_however_their_numbers_are_written():
    whole, real = Fourier((0, -1), (1, 1), width=2), Fourier((0.0, -1.0), (1.0, 1.0), width=2.0)
    assert whole == real
    assert describe(whole) == describe(real)
    assert fingerprint(whole) == fingerprint(real)


def test_a_fingerprint_is_the_same_everywhere_and_for_ever():
    assert fingerprint(Patches((1, 28, 28))) == "patches-ebc236ecbd198229"
    assert fingerprint(Fourier((-1.0,), (1.0,))) == "fourier-5e0b8789f094fe44"


@pytest.mark.parametrize(
    ("description", "words"),
    [
        ({"space": "wavelets"}, "unknown space 'wavelets': there are patches, fourier, backbone"),
        ({}, "unknown space None"),
        ({"space": "patches", "shape": [1, 8, 8], "colour": 1}, "the description of patches does not fit: .*'colour'"),
        ({"space": "fourier", "low": [0.0]}, "the description of fourier does not fit: .*'high'"),
        ({"space": "patches", "shape": [1, 28, 28], "filters": "many"}, "patches has filters many, of another kind"),
        ({"space": "patches", "shape": [1, 8, 8]}, "filters of 5, 7, 9 pixels .* do not fit images of 8 × 8"),
        ({"space": "patches", "shape": [1, 28, 28], "filters": 10**9}, "filters 1e.09: from 1 to 1,024"),
        ({"space": "patches", "shape": [1, 10**5, 10**5]}, "10,000,000,000 numbers an image is too large"),
        ({"space": "fourier", "low": [0.0], "high": [1.0], "features": 10**9}, "features 1e.09: from 1"),
    ],
)
def test_a_description_of_no_space_is_refused(description, words):
    with pytest.raises(ConfigError, match=words):
        read(description)


def test_two_descriptions_that_differ_are_told_with_both_sides():
    here = describe(SOME)
    compare(here, dict(here))
    with pytest.raises(ConfigError, match="the task's space has filters 4, this client's 9"):
        compare(here, here | {"filters": 9})
    with pytest.raises(ConfigError, match="the task's space has space 'patches', this client's 'fourier'"):
        compare(here, describe(ROWS))
    with pytest.raises(ConfigError, match="the task's space has colour None, this client's 1"):
        compare(here, here | {"colour": 1})


NETS = """
from types import SimpleNamespace
import torch
from torch import nn

def plain(seed=0, width=6):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, width), nn.Tanh())

def others(): return plain(1)
def wide(): return plain(0, 7)
def number(): return 3
def broken(): raise OSError("no\\nweights")

def normalised():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.AdaptiveAvgPool2d(1), nn.Flatten())

class Answering(nn.Module):
    def __init__(self, kind):
        super().__init__()
        torch.manual_seed(0)
        self.kind, self.linear = kind, nn.Linear(8, 6)

    def forward(self, pixels, mask=None):
        tokens = self.linear(pixels.flatten(1).unflatten(1, (8, 8)))  # (n, 8, 6)
        if mask is not None:
            tokens = tokens * mask[..., None]
        if self.kind == "hidden":
            return SimpleNamespace(last_hidden_state=tokens, pooler_output=None)
        if self.kind == "pooled":
            return SimpleNamespace(last_hidden_state=tokens, pooler_output=tokens.mean(dim=1))
        if self.kind == "logits":
            return SimpleNamespace(logits=tokens.mean(dim=1))
        if self.kind == "tuple":
            return tokens.mean(dim=1), tokens
        return [1.0]

def hidden(): return Answering("hidden")
def pooled(): return Answering("pooled")
def logits(): return Answering("logits")
def pair(): return Answering("tuple")
def listed(): return Answering("list")
"""


@pytest.fixture
def nets(tmp_path):
    (tmp_path / "nets.py").write_text(NETS)
    return lambda name: f"{tmp_path}/nets.py:{name}"


def test_a_module_of_the_clients_own_is_measured_and_embeds(nets, digits):
    (training, _), _ = digits
    space = choose((nets("plain"),), training[:2], 0)
    assert space == measure(nets("plain"), training[:2])
    assert (space.features, space.takes, len(space.probe)) == (6, "float[1,8,8]", 256)
    vectors = space(training[:120])
    assert (vectors.dtype, vectors.shape, vectors.requires_grad) == (torch.float32, (120, 6), False)
    assert vectors.norm(dim=1).numpy() == pytest.approx(math.sqrt(6), rel=1e-5)
    torch.manual_seed(0)
    linear = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 6), torch.nn.Tanh())
    plain = linear(training[:120]).detach()
    assert torch.allclose(vectors, plain / plain.norm(dim=1, keepdim=True) * math.sqrt(6), atol=1e-5)


def test_a_backbones_description_is_its_hash_and_not_where_it_lies(nets, digits):
    (training, _), _ = digits
    space = measure(nets("plain"), training[:2])
    told = describe(space)
    assert told == {
        "space": "backbone", "sha256": space.sha256, "features": 6, "takes": "float[1,8,8]",
        "probe": list(space.probe), "compute": "fp32", "recipe": "",
    }  # fmt: skip
    again = read(told, module=nets("plain"))
    assert fingerprint(again) == fingerprint(space) == fingerprint(replace(space, module="elsewhere.py:net"))
    assert torch.equal(again(training[:5]), space(training[:5]))


def test_measuring_a_backbone_changes_nothing_in_it(nets, digits):
    (training, _), _ = digits
    space = measure(nets("normalised"), training[:4])
    assert space == measure(nets("normalised"), training[4:9])
    assert space(training[:4]).shape == (4, 6)


def test_the_hash_of_weights_is_stable_and_sees_every_change():
    def made(change=lambda module: None):
        module = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
        with torch.no_grad():
            for number, tensor in enumerate(module.state_dict().values()):
                tensor.copy_(torch.arange(tensor.numel()).view(tensor.shape) + number)
            change(module)
        return hash_weights(module)

    assert made() == "b2a14ca9244282f506fcae5324f35f03730e7d16298bf52e9bb4b129019de5e8"
    others = [
        made(lambda module: module[0].weight.add_(torch.tensor([[0, 0], [0, 1e-6]]))),
        made(lambda module: module[1].running_mean.add_(1)),
        made(lambda module: module[1].num_batches_tracked.add_(1)),
        made(lambda module: module.double()),
        made(lambda module: module.append(torch.nn.Linear(1, 1, bias=False))),
    ]
    assert len({made(), *others}) == 6


def test_other_weights_than_the_tasks_are_refused_with_both_hashes(nets, digits):
    (training, _), _ = digits
    task, own = (measure(nets(name), training[:2]) for name in ("plain", "others"))
    wrong = read(describe(task), module=nets("others"))
    words = rf"the task's backbone has weights {task.sha256[:16]}…, those of .*nets.py:others are {own.sha256[:16]}…"
    with pytest.raises(ConfigError, match=words):
        wrong(training[:2])


@pytest.mark.parametrize("name", ["hidden", "pooled", "logits", "pair"])
def test_outputs_as_of_hugging_face_become_one_vector_a_sample(name, nets, digits):
    (training, _), _ = digits
    space = measure(nets(name), training[:2])
    assert space.dimension == 6
    torch.manual_seed(0)
    linear = torch.nn.Linear(8, 6)
    plain = linear(training[:60].flatten(1).unflatten(1, (8, 8))).mean(dim=1).detach()
    assert torch.allclose(space(training[:60]), plain / plain.norm(dim=1, keepdim=True) * math.sqrt(6), atol=1e-5)


def test_inputs_by_name_are_passed_by_name(nets, digits):
    (training, _), _ = digits
    mask = torch.ones(70, 8)
    mask[:, 4:] = 0
    batch = {"pixels": training[:70], "mask": mask}
    space = measure(nets("hidden"), {name: rows[:1] for name, rows in batch.items()})
    vectors = space(batch)
    assert vectors.shape == (70, 6)
    assert torch.allclose(vectors[60:61], space({name: rows[60:61] for name, rows in batch.items()}), atol=1e-5)
    assert not torch.allclose(vectors, space({"pixels": training[:70]}), atol=1e-2)


def test_a_backbone_of_another_width_than_the_tasks_is_refused_with_both_named(nets, digits):
    (training, _), _ = digits
    wide = measure(nets("wide"), training[:2])
    with pytest.raises(DataError, match=r"nets.py:wide gives \(7,\) for a sample; the task's has 6 numbers"):
        replace(wide, features=6)(training[:2])


def test_data_that_a_backbone_cannot_take_are_refused(nets, digits):
    (training, _), _ = digits
    space = measure(nets("plain"), training[:2])
    with pytest.raises(DataError, match=r"nets.py:plain cannot take the data: RuntimeError: .*\(2x32 and 64x6\)"):
        space(torch.zeros(2, 1, 4, 8))
    with pytest.raises(DataError, match=r"cannot take the data: TypeError: .*'words'"):
        space({"words": training[:2]})


def test_what_is_no_module_is_no_backbone(nets, digits):
    (training, _), _ = digits
    for use in (measure, lambda module, batch: Backbone("0" * 64, 6, "float[1,8,8]", (), module=module)(batch)):
        with pytest.raises(ModelError, match=r"nets.py:number gave a int, not a torch.nn.Module"):
            use(nets("number"), training[:2])
    with pytest.raises(ModelError, match=r"nets.py:broken could not be built: OSError: no weights"):
        Backbone("0" * 64, 6, "float[1,8,8]", (), module=nets("broken"))(training[:2])
    with pytest.raises(ConfigError, match="has no function 'missing'"):
        measure(nets("missing"), training[:2])


def test_without_a_second_layer_an_images_vector_does_not_depend_on_the_batch():
    images = torch.rand(97, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    space = Patches((1, 28, 28), filters=16)
    together = space(images)
    for rows in (slice(0, 1), slice(3, 10), slice(40, 81), slice(96, 97)):
        assert torch.equal(space(images[rows]), together[rows])


@pytest.mark.parametrize("channels", [1, 3])
def test_answers_have_their_channels_last_which_is_what_is_fast_after_the_filters(channels):
    batch = images((channels, 28, 28), 3)
    for bank in Patches((channels, 28, 28)).map.banks:
        for signed in bank.answer(batch, accumulate(batch)):
            assert signed.stride()[1:] == (1, signed.shape[3] * 48, 48)


def test_a_root_is_the_square_root_and_of_zero_it_is_zero():
    values = torch.tensor([0.0, 1e-30, 0.25, 2.0, 1e30])
    assert root(values.clone()).tolist() == pytest.approx(values.double().sqrt().tolist(), rel=1e-6)
    assert root(torch.zeros(40)).tolist() == [0.0] * 40
