"""Bodies that are no release of the task, each with the statuses that may answer it."""

import json
import math
import random
import struct
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from repshare.sharing.task import Task, usual_norm_bound
from soak.load import CLASSES, DIMENSION

NEW, OLD = 2_000_000, 1  # rounds; the client's kept release stands between them
LIMIT = math.ceil(usual_norm_bound(DIMENSION))  # what is longer is refused
DTYPES = {"F32": np.float32, "F16": np.float16, "I8": np.int8, "I32": np.int32}
STRANGE_DTYPES = ["F64", "BF16", "I64", "U8", "BOOL", "F8_E4M3", "F8_E5M2", "C64", "F4", "f32", "", "X" * 500, 7, None]


class Body(NamedTuple):
    """What is sent, as whom, and which statuses may answer it."""

    content: bytes
    statuses: tuple[int, ...]
    client: str = "alice"


def tensors(rng, rows=None, dtype="F32", dimension=DIMENSION):
    """The tensors of a release: some means, then as many observations."""
    rows = rng.randint(1, 3) if rows is None else rows
    labels = [*range(rows), *(rng.randrange(CLASSES) for _ in range(rows))]
    vectors = [[rng.uniform(-1, 1) for _ in range(dimension)] for _ in labels]
    parts = {
        "vectors": np.array(vectors).reshape(len(labels), dimension).astype(DTYPES[dtype]),
        "labels": np.array(labels, np.int32),
        "counts": np.full(len(labels), rng.randint(1, 9), np.int32),
    }
    if dtype == "I8":
        parts["scales"] = np.full(len(labels), 0.01, np.float32)
    return parts


def describe(parts):
    """A header's entries for these tensors."""
    names = {np.dtype(kind): name for name, kind in DTYPES.items()}
    entries, end = {}, 0
    for name, part in parts.items():
        offsets = [end, end + part.nbytes]
        entries[name] = {"dtype": names[part.dtype], "shape": list(part.shape), "data_offsets": offsets}
        end += part.nbytes
    return entries


def meta_of(parts, round=NEW, **changes):
    """A release's own metadata."""
    return {"version": 1, "kind": "release", "means": len(parts["labels"]) // 2, "round": round, **changes}


def pack(parts, meta, entries=None):
    """Safetensors bytes, whose header may say something else than what is there."""
    text = meta if isinstance(meta, str) else json.dumps(meta)
    header = {**(entries or describe(parts)), "__metadata__": {"repshare": text}}
    return frame(json.dumps(header), b"".join(part.tobytes() for part in parts.values()))


def frame(header, data):
    """A header with its length, and the data."""
    encoded = header.encode()
    encoded += b" " * (-len(encoded) % 8)
    return struct.pack("<Q", len(encoded)) + encoded + data


def truncated(draw, rng):
    whole = real(rng)
    return Body(whole[: draw(st.integers(0, len(whole) - 1))], (400,))


def lengthened(draw, rng):
    return Body(real(rng) + draw(st.binary(min_size=1, max_size=50)), (400,))


def flipped(draw, rng):
    content = bytearray(real(rng, OLD))
    for place in draw(st.lists(st.integers(0, 8 * len(content) - 1), min_size=1, max_size=8, unique=True)):
        content[place // 8] ^= 1 << place % 8
    return Body(bytes(content), (400, 409, 422))


def noise(draw, rng):
    size = draw(st.integers(0, 3000))
    return Body(draw(st.binary(max_size=64)) + rng.randbytes(size), (400,))


def lying_length(draw, rng):
    lengths = st.integers(0, 2**64 - 1) | st.integers(0, 2000) | st.sampled_from([2**31, 2**32, 2**63, 2**64 - 1])
    content = real(rng)
    return Body(
        struct.pack("<Q", draw(lengths.filter(lambda n: struct.pack("<Q", n) != content[:8]))) + content[8:], (400,)
    )


def huge_header(draw, rng):
    parts, size = tensors(rng), draw(st.integers(200, 20_000))
    entries = describe(parts) | {f"t{n}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for n in range(size)}
    content = pack(parts, meta_of(parts), entries)
    return Body(content, (413 if len(content) > Task(CLASSES, DIMENSION).longest_release else 400,))


def wrong_dtype(draw, rng):
    parts = tensors(rng)
    entries = describe(parts)
    entries[draw(st.sampled_from(sorted(entries)))]["dtype"] = draw(st.sampled_from(STRANGE_DTYPES))
    return Body(pack(parts, meta_of(parts), entries), (400,))


def swapped_dtype(draw, rng):
    parts = tensors(rng)
    name = draw(st.sampled_from(["labels", "counts"]))
    parts[name] = parts[name].astype(draw(st.sampled_from([np.float32, np.float16, np.int8])))
    return Body(pack(parts, meta_of(parts)), (400,))


def not_finite(draw, rng):
    parts = tensors(rng, dtype=draw(st.sampled_from(["F32", "F16", "I8"])))
    name = "scales" if "scales" in parts else "vectors"
    place = draw(st.integers(0, parts[name].size - 1))
    parts[name].reshape(-1)[place] = draw(st.sampled_from([math.nan, math.inf, -math.inf]))
    if name == "scales":
        parts["vectors"][place] = 1  # 0 × ∞ is refused as well, but would warn
    return Body(pack(parts, meta_of(parts)), (422,))


def too_long(draw, rng):
    parts = tensors(rng)
    row = draw(st.integers(0, len(parts["labels"]) - 1))
    parts["vectors"][row, draw(st.integers(0, DIMENSION - 1))] = draw(st.floats(2 * LIMIT, 2.0**127, width=32))
    return Body(pack(parts, meta_of(parts)), (422,))


def wrong_count(draw, rng):
    parts = tensors(rng)
    parts["vectors"] += np.float32(5)  # so long that 2³¹ − 1 of them cannot be summed
    counts = st.integers(-(2**31), 0) | st.just(2**31 - 1)
    parts["counts"][draw(st.integers(0, len(parts["labels"]) - 1))] = draw(counts)
    return Body(pack(parts, meta_of(parts)), (422,))


def unknown_class(draw, rng):
    parts = tensors(rng)
    unknown = st.integers(-(2**31), -1) | st.integers(CLASSES, 2**31 - 1)
    parts["labels"][draw(st.integers(0, len(parts["labels"]) - 1))] = draw(unknown)
    return Body(pack(parts, meta_of(parts)), (422,))


def twice_a_class(_, rng):
    parts = tensors(rng, rows=3)
    parts["labels"][:3] = rng.randrange(CLASSES)
    return Body(pack(parts, meta_of(parts)), (422,))


def wrong_dimension(draw, rng):
    dimension = draw(st.integers(0, 300).filter(lambda d: d != DIMENSION))
    parts = tensors(rng, dimension=dimension)
    return Body(pack(parts, meta_of(parts)), (422,))


def too_many(draw, rng):
    parts = tensors(rng, rows=0)
    rows = draw(st.integers(1001, 3000))
    parts = {name: np.ones((rows, *part.shape[1:]), part.dtype) for name, part in parts.items()}
    return Body(pack(parts, meta_of(parts, means=0)), (422,))


def wrong_shape(draw, rng):
    parts = tensors(rng)
    entries = describe(parts)
    sizes = st.integers(0, 40) | st.sampled_from([-1, 2**31, 2**62, 2**63, 2**64, 2**200, 0.5, None, "8"])
    name = draw(st.sampled_from(sorted(entries)))
    shape = draw(st.lists(sizes, max_size=5).filter(lambda shape: shape != entries[name]["shape"]))
    entries[name]["shape"] = shape
    return Body(pack(parts, meta_of(parts), entries), (400, 422))


def wrong_offsets(draw, rng):
    parts = tensors(rng)
    entries = describe(parts)
    numbers = st.integers(0, 300) | st.sampled_from([-1, 2**32, 2**63, 2**64 - 1, 2**64])
    name = draw(st.sampled_from(sorted(entries)))
    offsets = draw(st.lists(numbers, max_size=3).filter(lambda found: found != entries[name]["data_offsets"]))
    entries[name]["data_offsets"] = offsets
    return Body(pack(parts, meta_of(parts), entries), (400, 422))


def wrong_scales(draw, rng):
    parts = tensors(rng, dtype="I8")
    scales = parts.pop("scales")
    if draw(st.booleans()):
        parts["scales"] = draw(st.sampled_from([scales[:-1], scales.reshape(1, -1), scales.astype(np.float16)]))
    return Body(pack(parts, meta_of(parts)), (400,))


def missing(draw, rng):
    parts = tensors(rng)
    meta = meta_of(parts)
    del parts[draw(st.sampled_from(sorted(parts)))]
    return Body(pack(parts, meta), (400,))


def wrong_kind(draw, rng):
    parts = tensors(rng)
    kinds = st.sampled_from(["teacher", "weights", "items", "Release", "", None, 1, [], {}]) | st.text(
        max_size=20
    ).filter(lambda kind: kind != "release")
    meta = meta_of(parts, kind=draw(kinds)) if draw(st.booleans()) else meta_of(parts, version=draw(st.integers(2, 9)))
    return Body(pack(parts, meta), (400,))


def wrong_number(draw, rng):
    parts = tensors(rng)
    numbers = st.integers(2**63, 2**80) | st.integers(max_value=-1) | st.floats()
    numbers |= st.booleans() | st.text() | st.none()
    meta = meta_of(parts, **{draw(st.sampled_from(["means", "round"])): draw(numbers)})
    return Body(pack(parts, meta), (400,))


def far_round(draw, rng):
    parts = tensors(rng)
    return Body(pack(parts, meta_of(parts, draw(st.integers(2**31, 2**63 - 1)))), (422,))


def extra_tensor(draw, rng):
    parts = tensors(rng)
    name = draw(st.text(min_size=1, max_size=20).filter(lambda name: name not in (*parts, "__metadata__")))
    parts[name] = np.ones(draw(st.integers(0, 500)), np.float32)
    return Body(pack(parts, meta_of(parts)), (400,))


def deep_metadata(draw, rng):
    parts, depth = tensors(rng), draw(st.integers(1, 4500))
    opening, closing = draw(st.sampled_from([("[", "]"), ('{"a":', "}")]))
    nested = opening * (depth // len(opening) + 1) + "1" + closing * (depth // len(opening) + 1)
    release = f'{{"version":1,"kind":"release","round":{nested}}}'
    meta = draw(st.sampled_from([nested, release, nested[:-1], "9" * depth, '"' * depth]))
    return Body(pack(parts, meta), (400,))


def no_metadata(draw, rng):
    parts = tensors(rng)
    junk = st.recursive(st.none() | st.integers() | st.text(max_size=9), lambda inner: st.lists(inner, max_size=4))
    header = describe(parts) | ({"__metadata__": draw(junk)} if draw(st.booleans()) else {})
    return Body(frame(json.dumps(header), b"".join(part.tobytes() for part in parts.values())), (400,))


def twice_a_key(draw, rng):
    parts = tensors(rng)
    entries, meta = describe(parts), json.dumps(meta_of(parts, OLD))
    if draw(st.booleans()):
        again = ['"round":1', '"kind":"release"', '"means":0', '"kind":"teacher"']
        meta = f"{meta[:-1]},{draw(st.sampled_from(again))}}}"
    items = [*entries.items(), ("__metadata__", {"repshare": meta})]
    items += draw(st.lists(st.sampled_from(items), min_size=1, max_size=3))
    header = "{" + ",".join(f"{json.dumps(key)}:{json.dumps(value)}" for key, value in items) + "}"
    return Body(frame(header, b"".join(part.tobytes() for part in parts.values())), (400, 409, 422))


def outdated(_, rng):
    return Body(real(rng, OLD), (409,))


def as_another(_, rng):
    return Body(real(rng), (403,), "bob")


def real(rng, round=NEW):
    parts = tensors(rng, dtype=rng.choice(["F32", "F16", "I8"]))
    return pack(parts, meta_of(parts, round))


KINDS = [
    truncated, lengthened, flipped, noise, lying_length, huge_header, wrong_dtype, swapped_dtype, not_finite, too_long,
    wrong_count, unknown_class, twice_a_class, wrong_dimension, too_many, wrong_shape, wrong_offsets, wrong_scales,
    missing, wrong_kind, wrong_number, far_round, extra_tensor, deep_metadata, no_metadata, twice_a_key, outdated,
    as_another,
]  # fmt: skip


@st.composite
def bad_bodies(draw, kinds):
    """One of these kinds, and a body of it."""
    kind = draw(st.sampled_from(kinds))
    return kind.__name__, kind(draw, random.Random(draw(st.integers(0, 2**32))))
