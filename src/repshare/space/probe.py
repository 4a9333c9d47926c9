"""The probe of a backbone: its answers to inputs that follow from a seed, so that all clients compute the same map.

Weights alone do not pin a map: two clients with the same weights differ by how they resize, normalise, pool, or leave
dropout on. A task states the answers, each as a few sums with signs drawn at random: their differences are, on
average, those of the answers themselves.
"""

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from repshare.errors import ConfigError
from repshare.sharing.representations import Floats
from repshare.space import seeded

PROBES, SUMS = 16, 16  # inputs, and the numbers that each answer is reduced to
COARSE = 4  # pixels along an edge of what is enlarged: images have large shapes, and fine ones
WORDS = 100  # whole numbers are below it: every vocabulary has so many
MOST_NUMBERS = 1 << 24  # of an input
DIGITS = 4  # after the decimal point
INPUT = re.compile(r"(?:(\w+):)?(float|whole|mask)\[(\d+(?:,\d+)*)?\]")


def describe_inputs(example: Any) -> str:
    """The form of inputs in words, such as `float[3,32,32]`, or `ids:whole[16] mask:mask[16]` of a mapping.

    Args:
        example: A batch of inputs.
    """
    if isinstance(example, Mapping):
        return " ".join(f"{name}:{describe_inputs(each)}" for name, each in sorted(example.items()))
    is_image = example.dtype == torch.uint8  # bytes become 0 … 1
    kind = "float" if is_image or example.is_floating_point() else "mask" if int(example.max()) <= 1 else "whole"
    return f"{kind}[{','.join(map(str, example.shape[1:]))}]"


def draw_inputs(form: str) -> Any:
    """Draw a batch of inputs of this form: numbers from 0 to 1, whole numbers, ones for a mask. Raises ConfigError.

    Args:
        form: What `describe_inputs` returned.
    """
    drawn = {}
    for word in form.split():
        found = INPUT.fullmatch(word)
        shape = () if found is None or not found[3] else tuple(map(int, found[3].split(",")))
        if found is None or not 0 < math.prod(shape) <= MOST_NUMBERS:
            raise ConfigError(f"inputs of a backbone are described as {form[:80]!r}, which is none, or too large")
        name, kind = found[1] or "", found[2]
        if kind == "mask":
            drawn[name] = torch.ones(PROBES, *shape, dtype=torch.int64)
            continue
        numbers = torch.from_numpy(seeded.uniform((PROBES, *shape), 0, "probe", name))
        drawn[name] = (numbers * WORDS).long() if kind == "whole" else _blend(numbers)
    if not drawn:
        raise ConfigError("the task says nothing of a backbone's inputs")
    return drawn.get("", drawn)


def _blend(noise: Tensor) -> Tensor:
    """Images with large shapes beside the noise; anything else as it is."""
    if noise.ndim != 4:
        return noise
    coarse = torch.from_numpy(seeded.uniform((*noise.shape[:2], COARSE, COARSE), 0, "probe", "coarse"))
    return (3 * F.interpolate(coarse, size=noise.shape[2:], mode="bilinear") + noise) / 4


def reduce_answers(vectors: Floats) -> tuple[float, ...]:
    """Reduce answers (PROBES, d) to SUMS numbers each.

    Args:
        vectors: The answers, each of length √d.
    """
    signs = 2.0 * (seeded.uniform((vectors.shape[1], SUMS), 0, "probe", "signs") < 0.5) - 1
    sums = vectors.astype(np.float64) @ signs / math.sqrt(vectors.shape[1])
    return tuple(round(each, DIGITS) for each in sums.ravel().tolist())


def compare_answers(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    """How far answers are apart, as a share of their length: 0 is the same map, about 1.4 an unrelated one.

    Args:
        one: What `reduce_answers` returned.
        other: The same of another map.
    """
    if len(one) != len(other):
        return math.inf
    apart = np.subtract(one, other)
    return float(np.sqrt(np.square(apart).mean()))  # vectors have length √d, so that a sum's mean square is 1
