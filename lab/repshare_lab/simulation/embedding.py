"""The vectors of a backbone: of all samples once, before workers start, shared by all runs and clients."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch

from repshare.imports import is_reference
from repshare.network import features
from repshare.samples import Samples, change_tensors
from repshare.sharing.representations import Floats
from repshare.space import RECIPES, choose
from repshare.space.agreement import Agreement
from repshare.space.filters import lengthen
from repshare.space.recipes import build
from repshare.space.space import Space
from repshare_lab.config import Setting
from repshare_lab.data import Splits
from repshare_lab.data.arrays import Inputs, take

BYTES = (0.0, 255.0)  # the range of built-in images


class EmbeddedSplits(NamedTuple):
    """Training and test samples in a backbone's space."""

    words: tuple[str, ...]
    space: Space
    train: Floats  # (n, d)  the first training samples
    test: Floats  # (m, d)


@dataclass(frozen=True)
class Shortened(Space):
    """What a recipe with `components` makes of images, from the vectors that it makes without: no image is mapped."""

    name: ClassVar[str] = "shortened"

    recipe: str
    """With its components, if any."""
    whole: int
    """How many numbers the recipe makes without."""

    @property
    def dimension(self) -> int:
        """d, the length of a vector in numbers."""
        return self.whole if self._directions is None else self._directions.shape[1]

    def __call__(self, vectors: Any) -> torch.Tensor:
        """Map vectors of the recipe, which begin with the last layer's numbers, to shorter ones (n, d)."""
        directions = self._directions
        return vectors if directions is None else lengthen(lengthen(vectors[:, : len(directions)]) @ directions)

    @cached_property
    def _directions(self) -> torch.Tensor | None:
        return dict(build(self.recipe).named_buffers(recurse=False)).get("directions")


def embed(
    splits: Splits,
    setting: Setting,
    samples: int,
    *,
    cache: Path | None = None,
    watch: Callable[[int, int], None] | None = None,
) -> Splits:
    """Return the splits with vectors beside them, if the setting's space is a backbone.

    Args:
        splits: The data.
        setting: The setting.
        samples: Number of training samples that are used.
        cache: Folder that keeps vectors.
        watch: Gets the number of samples that were mapped, and of all.
    """
    known = splits.embedded
    if not is_backbone(setting) or (known and known.words == setting.space and len(known.train) >= samples):
        return splits
    space = choose(setting.space, _as_tensors(take(splits.train.inputs, slice(1))), 0)
    common = Agreement(space.attended(cache=cache, watch=watch), inputs=_range(splits.train.inputs))
    used = splits.first(samples)
    halves = used.train, used.test
    parts = [Samples((_as_tensors(each.inputs), each.labels), device=setting.device) for each in halves]
    if not setting.policy.share_inputs:
        features.check(common.representation(parts[0]), f"the space {' '.join(setting.space)}")
    train, test = (common.embed(part)[0] for part in parts)
    return replace(splits, embedded=EmbeddedSplits(setting.space, space, train, test))


def is_backbone(setting: Setting) -> bool:
    """Whether the space of a setting is a module, which is slow."""
    return any(is_reference(word) or word in RECIPES for word in setting.space[:1])


def _as_tensors(inputs: Inputs) -> Any:
    return change_tensors(inputs, lambda array: torch.from_numpy(np.array(array)))


def _range(inputs: Inputs) -> tuple[float, float] | None:
    return BYTES if not isinstance(inputs, dict) and inputs.dtype == np.uint8 else None
