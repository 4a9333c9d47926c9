"""Releases, teachers, weights (FedAvg) and batches (split learning) <-> bytes: the only file that knows the format.

A message is a safetensors file: a header that says names, types and shapes, then the numbers. It cannot carry
code. What it means is one JSON object in the header's metadata:

    kind "release" or "teacher"   vectors (n, d), labels (n,), counts (n,); the first `means` rows are class means
                                  and the others observations; int8 adds scales (n,), one a row; a release with noise
                                  says where from: "os", or "seeded" for simulations, where it hides nothing; vectors
                                  in a common space say in which
    kind "weights"                a model's tensors by name, and the number of samples they were trained on
    kind "classifier"             a common classifier: weights (C, d), centre (d,), offset (C,), with what its clients
                                  agreed on, the round, and the samples of all clients behind it
    kind "batch"                  for split learning: vectors (n, d), features or gradients, and labels (n,) of features
    kind "items"                  what a store keeps: keys and values, each joined, and sizes (n, 2) to cut them by; not
                                  a tensor each, since safetensors takes no header of more than 100 MB
    kind "signed", version 3      a release's bytes (or none), signature (64,) and public key (32,), with whose release
                                  of which task it is, when that client's rounds began, and the round; the signature is
                                  for the question that this answers, too: see `keys`
"""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError

from repshare.errors import Malformed
from repshare.sharing.half_precision import encode_halves, widen
from repshare.sharing.representations import Release, Representations, Teacher

NOISES = ("os", "seeded")
VERSION = 1
NEWER_VERSIONS = {"signed": 3}  # of kinds that have changed since; version 1 could be replayed
LONGEST_HEADER_BYTES = 10_000  # of a release or a teacher, which have few tensors: a longer one is not even parsed
BESIDE_BYTES = 12  # of a row besides its vector: label, count and scale
ENVELOPE_BYTES = LONGEST_HEADER_BYTES + 96  # around a release in a signed answer: header, key and signature
MOST_COUNTED = 2**31 - 1  # samples behind an average; what many clients have together may be more
_SIGNED, _ROWS = ("release", "key", "signature"), ("vectors", "labels", "counts")

Arrays = Mapping[str, NDArray[Any]]


class Signed(NamedTuple):
    """A peer's answer: its release, or no bytes for none. Nothing in it is true before `keys.unseal` said so."""

    task: str
    client: str
    release: bytes
    key: bytes
    signature: bytes


def longest_message(rows: int, columns: int) -> int:
    """The most bytes that a release or a teacher with this many rows can have."""
    return LONGEST_HEADER_BYTES + rows * (4 * columns + BESIDE_BYTES)


def encode_release(release: Release, precision: str = "fp32") -> bytes:
    """Encode a release, its vectors in fp32, fp16 or int8."""
    meta: dict[str, Any] = {"round": release.round}
    if release.noise is not None:
        meta["noise"] = release.noise
    if release.space is not None:
        meta["space"] = release.space
    return _encode("release", release.means, release.observations, precision, meta)


def decode_release(body: bytes) -> Release:
    """Decode a release. Raises Malformed."""
    means, observations, meta = _decode("release", body)
    noise = meta.get("noise")
    if noise is not None and noise not in NOISES:
        raise Malformed(f"noise must be from {' or '.join(NOISES)}, not {str(noise)[:30]!r}")
    return Release(_whole(meta, "round"), means, observations, noise, meta.get("space"))


def encode_teacher(teacher: Teacher, precision: str = "fp32") -> bytes:
    """Encode a teacher, its vectors in fp32, fp16 or int8."""
    meta = {} if teacher.space is None else {"space": teacher.space}
    return _encode("teacher", teacher.means, teacher.observations, precision, meta)


def decode_teacher(body: bytes) -> Teacher:
    """Decode a teacher. Raises Malformed."""
    means, observations, meta = _decode("teacher", body)
    return Teacher(means, observations, meta.get("space"))


def encode_weights(weights: Arrays, *, round: int, samples: int) -> bytes:
    """Encode a model's tensors."""
    return _pack(weights, {"kind": "weights", "round": round, "samples": samples})


def decode_weights(body: bytes) -> tuple[dict[str, NDArray[Any]], int, int]:
    """Decode tensors, their round, and how many samples they were trained on. Raises Malformed."""
    arrays, meta = _unpack(body, "weights")
    return arrays, _whole(meta, "round"), _whole(meta, "samples")


def encode_classifier(
    linear: Arrays, *, agreement: Mapping[str, Any], round: int, samples: int, in_use: str | None = None
) -> bytes:
    """Encode a common classifier: its weights, centre and offset."""
    described = {"kind": "classifier", "round": round, "samples": samples, "agreement": agreement}
    return _pack(linear, {**described, "in_use": in_use})


def decode_classifier(body: bytes) -> tuple[dict[str, NDArray[np.float32]], dict[str, Any]]:
    """Decode a common classifier, and what is known of it beside: see `encode_classifier`. Raises Malformed."""
    arrays, meta = _unpack(body, "classifier", ("weights", "centre", "offset"))
    weights = _array(arrays, "weights", (None, None), np.float32)
    centre = _array(arrays, "centre", (weights.shape[1],), np.float32)
    offset = _array(arrays, "offset", (weights.shape[0],), np.float32)
    if not isinstance(agreement := meta.get("agreement"), dict):
        raise Malformed(f"'agreement' must be an object, not {str(agreement)[:30]}")
    linear = {"weights": weights, "centre": centre, "offset": offset}
    if strange := [name for name, array in linear.items() if not np.isfinite(array).all()]:
        raise Malformed(f"{strange[0]!r} has numbers that are not finite")
    in_use = meta.get("in_use")  # nothing in those of earlier versions
    known = {"agreement": agreement, "round": _whole(meta, "round"), "samples": _whole(meta, "samples")}
    return linear, {**known, "in_use": in_use if isinstance(in_use, str) else None}


def encode_batch(vectors: NDArray[np.float32], labels: NDArray[np.int64] | None = None) -> bytes:
    """Encode a batch's features with their labels, or its gradients."""
    rows = {"vectors": vectors} if labels is None else {"vectors": vectors, "labels": labels.astype(np.int32)}
    return _pack(rows, {"kind": "batch"})


def decode_batch(body: bytes) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Decode vectors, and labels if there are any. Raises Malformed."""
    arrays, _ = _unpack(body, "batch", ("vectors", "labels"))
    vectors = _array(arrays, "vectors", (None, None), np.float32)
    labels = _array({"labels": np.zeros(0, np.int32), **arrays}, "labels", (None,), np.int32)
    return vectors, labels.astype(np.int64)


def encode_items(items: Mapping[str, bytes]) -> bytes:
    """Encode what a store keeps."""
    keys = [key.encode() for key in items]
    sizes = [(len(key), len(value)) for key, value in zip(keys, items.values(), strict=True)]
    arrays: dict[str, NDArray[Any]] = {
        "keys": np.frombuffer(bytearray().join(keys), np.uint8),
        "values": np.frombuffer(bytearray().join(items.values()), np.uint8),
        "sizes": np.array(sizes, np.int64).reshape(-1, 2),
    }
    return _pack(arrays, {"kind": "items"})


def decode_items(body: bytes) -> dict[str, bytes]:
    """Decode what a store kept. Raises Malformed."""
    arrays, _ = _unpack(body, "items", ("keys", "values", "sizes"))
    keys, values = (_array(arrays, name, (None,), np.uint8) for name in ("keys", "values"))
    sizes = _array(arrays, "sizes", (None, 2), np.int64)
    if (sizes < 0).any() or [sum(each) for each in sizes.T.tolist()] != [keys.size, values.size]:
        raise Malformed("sizes do not fit what is there")
    try:
        names = [key.decode() for key in _cut(keys.tobytes(), sizes[:, 0])]
    except UnicodeDecodeError as error:
        raise Malformed(f"a key is not text: {error}") from error
    return dict(zip(names, _cut(values.tobytes(), sizes[:, 1]), strict=True))


def encode_signed(signed: Signed) -> bytes:
    """Encode a signed release."""
    arrays = {name: np.frombuffer(bytearray(getattr(signed, name)), np.uint8) for name in _SIGNED}
    return _pack(arrays, {"kind": "signed", "task": signed.task, "client": signed.client})


def decode_signed(body: bytes) -> Signed:
    """Decode a signed release. Raises Malformed."""
    _bound_header("signed", body)
    arrays, meta = _unpack(body, "signed", _SIGNED)
    parts = [_array(arrays, name, (None,), np.uint8).tobytes() for name in _SIGNED]
    task, client = (meta.get(name) for name in ("task", "client"))
    if not isinstance(task, str) or not isinstance(client, str):
        raise Malformed("a signed release must say of which task and client it is")
    return Signed(task, client, *parts)


def _encode(
    kind: str, means: Representations, others: Representations, precision: str, meta: Mapping[str, Any]
) -> bytes:
    vectors = np.concatenate([means.vectors, others.vectors], dtype=np.float32)  # (n, d)
    arrays: dict[str, NDArray[Any]] = {
        "labels": np.concatenate([means.labels, others.labels], dtype=np.int32, casting="same_kind"),
        "counts": np.minimum(np.concatenate([means.counts, others.counts]), MOST_COUNTED).astype(np.int32),
    }
    if precision == "int8":
        scales = np.abs(vectors).max(axis=1, initial=0.0) / 127  # (n,)
        arrays["scales"] = scales.astype(np.float32)
        arrays["vectors"] = np.rint(vectors / np.maximum(arrays["scales"], 1e-30)[:, None]).astype(np.int8)
    else:
        arrays["vectors"] = encode_halves(vectors) if precision == "fp16" else vectors
    return _pack(arrays, {"kind": kind, "means": len(means.labels), **meta})


def _decode(kind: str, body: bytes) -> tuple[Representations, Representations, dict[str, Any]]:
    _bound_header(kind, body)
    arrays, meta = _unpack(body, kind, (*_ROWS, "scales"))
    vectors = _array(arrays, "vectors", (None, None), np.float32, np.float16, np.int8)
    labels = _array(arrays, "labels", (len(vectors),), np.int32).astype(np.int64)
    counts = _array(arrays, "counts", (len(vectors),), np.int32).astype(np.int64)
    if vectors.dtype == np.int8:
        vectors = vectors * _array(arrays, "scales", (len(vectors),), np.float32)[:, None]
    elif "scales" in arrays:
        raise Malformed("'scales' belong to vectors of int8 only")
    if vectors.dtype == np.float16:
        vectors = widen(vectors)
    space, cut = meta.get("space"), _whole(meta, "means")
    if space is not None and not isinstance(space, str):
        raise Malformed(f"'space' must be a text, not {str(space)[:30]}")
    if cut > len(vectors):
        raise Malformed(f"{cut} class means announced in {len(vectors)} rows")
    means = Representations(vectors[:cut], labels[:cut], counts[:cut])
    return means, Representations(vectors[cut:], labels[cut:], counts[cut:]), meta


def _cut(joined: bytes, sizes: NDArray[np.int64]) -> list[bytes]:
    ends = np.cumsum(sizes).tolist()
    return [joined[end - size : end] for end, size in zip(ends, sizes.tolist(), strict=True)]


def _bound_header(kind: str, body: bytes) -> None:
    if (length := int.from_bytes(body[:8], "little")) > LONGEST_HEADER_BYTES:
        raise Malformed(f"this is no {kind}: a header of {length:,} bytes; at most {LONGEST_HEADER_BYTES:,} are read")


def _pack(arrays: Arrays, meta: Mapping[str, Any]) -> bytes:
    # One metadata entry only: safetensors does not promise an order among several.
    header = json.dumps({"version": NEWER_VERSIONS.get(meta["kind"], VERSION), **meta}, separators=(",", ":"))
    contiguous = dict(zip(arrays, map(partial(np.asarray, order="C"), arrays.values()), strict=True))
    return safetensors.numpy.save(contiguous, {"repshare": header})


def _unpack(
    body: bytes, kind: str, among: Sequence[str] | None = None
) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """The arrays in a message and its meta. `among`: the names that arrays may have."""
    try:
        arrays = safetensors.numpy.load(body)
        header = json.loads(body[8 : 8 + int.from_bytes(body[:8], "little")])
        meta = json.loads(header["__metadata__"]["repshare"])
    except (SafetensorError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise Malformed(f"not a message of repshare's: {type(error).__name__}: {error}") from error
    version = NEWER_VERSIONS.get(kind, VERSION)
    if not isinstance(meta, dict) or meta.get("kind") != kind or meta.get("version") != version:
        raise Malformed(f"expected a {kind} of version {version}, not {str(meta)[:100]}")
    if among is not None and (strange := sorted(set(arrays) - set(among))):
        raise Malformed(f"{strange[0][:30]!r} does not belong here; there may be {', '.join(among)}")
    return arrays, meta


def _array(arrays: Arrays, name: str, shape: tuple[int | None, ...], *types: type[Any]) -> NDArray[Any]:
    """The array of this name, which must have one of these types and this shape; None is any length."""
    if name not in arrays:
        raise Malformed(f"{name!r} is missing; there is {', '.join(sorted(arrays)) or 'nothing'}")
    array = arrays[name]
    fits = len(array.shape) == len(shape)
    for wanted_length, length in zip(shape, array.shape, strict=False):
        fits = fits and wanted_length in (None, length)
    if not fits or array.dtype.type not in types:
        wanted = " or ".join(each.__name__ for each in types)
        lengths = " × ".join("any" if length is None else str(length) for length in shape)
        raise Malformed(f"{name!r} is {array.dtype} of shape {array.shape}; it must be {wanted}, {lengths} numbers")
    return array


def _whole(meta: Mapping[str, Any], name: str) -> int:
    value = meta.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise Malformed(f"{name!r} must be a whole number from 0 to 2⁶³ − 1, not {str(value)[:30]}")
    return value
