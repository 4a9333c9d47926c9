"""How fast is a backbone? The product beside a naive loop and the best loop by hand. Writes benchmarks/backbone.md.

EfficientNet-Lite0 with all stages, one thread, processor time; variants take turns, the fastest of each counts. The
naive loop runs in a process of its own, whose memory is not kept as the product keeps it.

    python benchmarks/backbone.py          # a few minutes; needs the extra backbone
"""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from repshare.samples import Samples
from repshare.space import choose
from repshare.space.agreement import Agreement
from repshare.space.frozen import keep_freed_memory
from repshare.space.recipes import build

SIZE, IMAGES, TURNS, NAIVE_BATCH, BATCHES = 160, 128, 4, 50, (8, 16, 32)
RECIPE = f"efficientnet-lite0 size={SIZE}"
HEAD = """# The cost of a backbone

`python benchmarks/backbone.py`: EfficientNet-Lite0 with all stages at {size} pixels, 32 × 32 images, one thread, the
fastest of {turns} turns of {images} images, processor seconds. By hand: fused layers, activations in place, channels
last, weights in bf16, memory kept, no check of the answers.

| | images a processor second | of the best by hand |
|---|---:|---:|
"""


def fuse_by_hand(net: nn.Module) -> nn.Module:
    """Fuse what is known to stand one after the other, and prepare for bf16."""

    def join(parent: nn.Module, conv: str, norm: str) -> None:
        if hasattr(parent, conv):
            setattr(parent, conv, fuse_conv_bn_eval(getattr(parent, conv), getattr(parent, norm)))
            setattr(parent, norm, nn.Identity())

    join(net, "stem", "first_norm")
    join(net, "head", "last_norm")
    for block in net.blocks:
        for conv, norm in (("_expand_conv", "_bn0"), ("_depthwise_conv", "_bn1"), ("_project_conv", "_bn2")):
            join(block, conv, norm)
    for layer in net.modules():
        if isinstance(layer, nn.ReLU6):
            layer.inplace = True
        if isinstance(layer, nn.Conv2d):
            layer.to(torch.bfloat16)
    return net.to(memory_format=torch.channels_last)


def loop(net: nn.Module, images: Tensor, batch: int, *, half: bool) -> None:
    """Map all images, a batch at a time."""
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=half):
        for piece in images.split(batch):
            net(piece.contiguous(memory_format=torch.channels_last) if half else piece)


def measure(functions: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Return images a processor second of each function's fastest turn."""
    best = dict.fromkeys(functions, float("inf"))
    for turn in range(TURNS + 1):  # the first is not counted
        for name, function in functions.items():
            started = time.process_time()
            function()
            if turn:
                best[name] = min(best[name], time.process_time() - started)
    return {name: IMAGES / seconds for name, seconds in best.items()}


def main() -> None:
    """Measure all, and write the page."""
    torch.set_num_threads(1)
    images = torch.rand(IMAGES, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    plain = build(RECIPE).eval()
    if sys.argv[1:] == ["naive"]:
        print(measure({"naive": lambda: loop(plain, images, NAIVE_BATCH, half=False)})["naive"])
        return
    done = subprocess.run([sys.executable, __file__, "naive"], capture_output=True, text=True, check=True)
    keep_freed_memory()
    by_hand, functions = fuse_by_hand(build(RECIPE).eval()), {}
    labels = torch.zeros(IMAGES, dtype=torch.int64)
    for batch in BATCHES:
        functions[f"by hand, {batch} at a time"] = lambda batch=batch: loop(by_hand, images, batch, half=True)
    for compute in ("fp32", "bf16"):
        space = Agreement(choose((*RECIPE.split(), f"compute={compute}"), images[:1], 0))
        functions[f"the product, {compute}"] = lambda space=space: space.embed(Samples((images, labels)))
    found = {f"a naive loop, {NAIVE_BATCH} at a time": float(done.stdout), **measure(functions)}
    best = max(speed for name, speed in found.items() if "by hand" in name)
    rows = [f"| {name} | {speed:.0f} | {speed / best:.0%} |\n" for name, speed in found.items()]
    page = HEAD.format(size=SIZE, turns=TURNS, images=IMAGES) + "".join(rows)
    Path(__file__).with_suffix(".md").write_text(page, "utf-8")
    print(page)


if __name__ == "__main__":
    main()
