import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from repshare.errors import Malformed
from repshare.sharing import wire
from repshare.sharing.representations import Release, Teacher, nothing, stack

RELEASE = Release(
    7,
    stack([(np.array([0.25, -1.0, 0.5]), 0, 12), (np.array([0.0, 0.0, 0.0]), 4, 1)], 3),
    stack([(np.array([1e-3, 0.75, -0.125]), 4, 10)], 3),
)


def equal(a, b):
    return all(x.dtype == y.dtype and np.array_equal(x, y) for x, y in zip(a, b, strict=True))


def test_a_release_comes_back_as_it_was():
    back = wire.decode_release(wire.encode_release(RELEASE))
    assert back.round == 7
    assert equal(back.means, RELEASE.means)
    assert equal(back.observations, RELEASE.observations)


def test_a_batch_comes_back_as_it_was_with_or_without_labels():
    vectors, labels = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([4, 0])
    assert equal(wire.decode_batch(wire.encode_batch(vectors, labels)), (vectors, labels))
    assert equal(wire.decode_batch(wire.encode_batch(vectors)), (vectors, np.zeros(0, np.int64)))
    for wrong in (vectors.astype(np.float64), vectors[0]):
        with pytest.raises(Malformed, match="it must be float32, any × any numbers"):
            wire.decode_batch(wire.encode_batch(wrong))
    with pytest.raises(Malformed, match="expected a batch"):
        wire.decode_batch(wire.encode_release(RELEASE))


def test_a_teacher_without_rows_comes_back_without_rows():
    back = wire.decode_teacher(wire.encode_teacher(Teacher(nothing(3), nothing(3))))
    assert equal(back.means, nothing(3))


@pytest.mark.parametrize(("precision", "error"), [("fp32", 0), ("fp16", 2**-11), ("int8", 1 / 254)])
def test_precision_bounds_the_error_of_every_number(precision, error):
    rng = np.random.default_rng(0)
    vectors = rng.uniform(-1, 1, (20, 84)).astype(np.float32)
    means = stack([(v, i, 3) for i, v in enumerate(vectors)], 84)
    body = wire.encode_release(Release(1, means, nothing(84)), precision)
    worst = np.abs(wire.decode_release(body).means.vectors - vectors).max()
    assert worst <= error + 1e-7
    assert (worst > 0) == (precision != "fp32")


def test_lower_precision_costs_fewer_bytes():
    means = stack([(np.ones(84), i, 3) for i in range(10)], 84)
    sizes = [len(wire.encode_release(Release(1, means, nothing(84)), p)) for p in ("fp32", "fp16", "int8")]
    payload = [10 * 84 * width for width in (4, 2, 1)]
    overheads = [size - numbers for size, numbers in zip(sizes, payload, strict=True)]
    assert sizes == sorted(sizes, reverse=True)
    assert max(overheads) < 500


def test_the_same_release_gives_the_same_bytes():
    assert len({wire.encode_release(RELEASE) for _ in range(20)}) == 1


def test_weights_come_back_as_they_were():
    weights = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array(5)}
    back, round, samples = wire.decode_weights(wire.encode_weights(weights, round=3, samples=240))
    assert (round, samples) == (3, 240)
    assert all(
        np.array_equal(back[name], weights[name]) and back[name].shape == weights[name].shape for name in weights
    )


def message(meta, **arrays):
    given = {
        "vectors": np.zeros((1, 2), np.float32),
        "labels": np.zeros(1, np.int32),
        "counts": np.ones(1, np.int32),
    } | arrays
    return save({name: array for name, array in given.items() if array is not None}, {"repshare": meta})


GOOD = '{"version":1,"kind":"release","means":1,"round":1}'


def test_the_test_message_itself_is_good():
    assert wire.decode_release(message(GOOD)).round == 1


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not safetensors",
        b"\xff" * 64,
        save({"vectors": np.zeros((1, 2), np.float32)}),
        message(GOOD.replace("release", "teacher")),
        message(GOOD.replace('"version":1', '"version":2')),
        message(GOOD.replace('"means":1', '"means":2')),
        message(GOOD.replace('"means":1', '"means":-1')),
        message(GOOD.replace('"round":1', '"round":true')),
        message(GOOD.replace('"round":1', '"round":1.5')),
        message("[]"),
        message("{"),
        message(GOOD, vectors=None),
        message(GOOD, vectors=np.zeros(2, np.float32)),
        message(GOOD, vectors=np.zeros((1, 2), np.float64)),
        message(GOOD, vectors=np.zeros((1, 2), np.int8)),
        message(GOOD, vectors=np.zeros((1, 2), np.int8), scales=np.zeros(3, np.float32)),
        message(GOOD, vectors=np.zeros((), np.int8), scales=np.zeros((), np.float32)),
        message(GOOD, labels=np.zeros(2, np.int32)),
        message(GOOD, counts=np.zeros(1, np.float32)),
        message(GOOD, anything=np.zeros(750_000, np.float32)),
        message(GOOD, scales=np.ones(1, np.float32)),  # belongs to int8
    ],
)
def test_what_is_not_a_release_is_malformed(body):
    with pytest.raises(Malformed):
        wire.decode_release(body)


@given(st.data())
def test_a_damaged_release_is_malformed_or_still_well_formed_but_never_anything_else(data):
    body = bytearray(wire.encode_release(RELEASE))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(body)))
    try:
        back = wire.decode_release(bytes(body[:cut]))
    except Malformed:
        return
    assert back.means.vectors.ndim == 2


@given(st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=5), st.binary(max_size=5), max_size=5))
def test_items_come_back_as_they_were(items):
    assert wire.decode_items(wire.encode_items(items)) == items


def test_the_header_of_items_does_not_grow_with_them():
    """Safetensors takes none of more than 100 MB: a hundred thousand clients would not fit."""
    lengths = [
        int.from_bytes(wire.encode_items({f"release/{i}": b"" for i in range(n)})[:8], "little") for n in (1, 9999)
    ]
    assert lengths[1] - lengths[0] < 50


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"keys": b"a", "values": b"b"}, "'sizes' is missing"),
        ({"keys": b"a", "values": b"b", "sizes": [[1, 2]]}, "sizes do not fit"),
        ({"keys": b"a", "values": b"b", "sizes": [[2, 1], [-1, 0]]}, "sizes do not fit"),
        ({"keys": b"a", "values": b"b", "sizes": [[2**62, 1]] * 4}, "sizes do not fit"),
        ({"keys": b"a", "values": b"b", "sizes": [1, 1]}, "it must be int64, any × 2 numbers"),
        ({"keys": b"\xff", "values": b"b", "sizes": [[1, 1]]}, "a key is not text"),
        ({"keys": b"a", "values": b"b", "sizes": [[1, 1]], "more": b"c"}, "'more' does not belong here"),
    ],
)
def test_items_that_do_not_fit_are_malformed(arrays, says):
    made = {
        name: np.frombuffer(value, np.uint8) if isinstance(value, bytes) else np.array(value, np.int64)
        for name, value in arrays.items()
    }
    body = save(made, {"repshare": '{"version":1,"kind":"items"}'})
    with pytest.raises(Malformed, match=says):
        wire.decode_items(body)
