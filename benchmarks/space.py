"""How close does ψ come to the processor's peak? Writes benchmarks/space.md.

One thread. Products and convolutions are counted, nothing else; they are compared with a large matrix product, and with
a large convolution, in the same run: on some processors PyTorch's products are far slower than its convolutions.
Variants take turns, and the fastest of each counts, so that other work disturbs little.

    python benchmarks/space.py             # about a minute
"""

import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from repshare.space import Space, choose
from repshare.space.filters import Bank, rectify
from repshare_lab.data import load
from repshare_lab.simulation.plan import USUAL

IMAGES, TURNS, EDGE = 80, 20, 1024
CHANNELS, PLACES = 128, 8 * 32 * 32  # of the large convolution
HEAD = """# The cost of ψ

`python benchmarks/space.py`: one thread, {images} images, processor time, the fastest of {turns} turns. Only products
and convolutions count as work. In the same run, a product of matrices of {edge} × {edge} has {product:.0f} GFLOP/s,
and a convolution with {channels} filters of 3 × 3 over {channels} channels {convolution:.0f} GFLOP/s.
Where the second is much higher, PyTorch's products do not use all of the processor.

| data set | numbers | MFLOP an image | µs an image | of the product | of the convolution |
|---|---:|---:|---:|---:|---:|
"""


def fastest(functions: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Return the processor seconds of each function's fastest turn."""
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(TURNS):
        for name, function in functions.items():
            started = time.process_time()
            function()
            best[name] = min(best[name], time.process_time() - started)
    return best


def prepare(dataset: str) -> tuple[Space, Tensor]:
    """Return the usual space of a data set, and some of its images."""
    images = torch.from_numpy(load(dataset).first(IMAGES, 1).prepared().train.images)
    space = choose(USUAL[dataset].space, images[:1], 0)
    space(images)  # its filters are made at the first use
    return space, images


def count(space: Space, images: Tensor) -> int:
    """Return the floating-point operations of convolutions and products."""
    with FlopCounterMode(display=False) as counter:
        space(images)
    return counter.get_total_flops()


def filter_and_pool(bank: Bank, images: Tensor, *, last: bool) -> list[Tensor]:
    """Return the pooled answers of a bank to grey images; with the channels last, as the space has them, or first."""
    filters = bank.filters if last else bank.filters.clone(memory_format=torch.contiguous_format)
    scale = images.new_ones(len(images), 1, 1, 1)
    return [F.adaptive_avg_pool2d(signed, 3) for signed in rectify(F.conv2d(images, filters), scale, 1.0)]


def main() -> None:
    """Measure, print, and write the table."""
    torch.set_num_threads(1)
    square, last = torch.randn(EDGE, EDGE), torch.channels_last
    wide = torch.randn(8, CHANNELS, 32, 32).contiguous(memory_format=last)
    filters = torch.randn(CHANNELS, CHANNELS, 3, 3).contiguous(memory_format=last)
    spaces = {dataset: prepare(dataset) for dataset in ("mnist", "fashion_mnist", "cifar10")}
    bank, grey = spaces["mnist"][0].map.banks[1], spaces["mnist"][1][:40]  # type: ignore[attr-defined]
    with torch.inference_mode():
        variants: dict[str, Callable[[], object]] = {
            "product": lambda: square @ square,
            "convolution": lambda: F.conv2d(wide, filters, padding=1),
            "first": lambda: filter_and_pool(bank, grey, last=False),
            "last": lambda: filter_and_pool(bank, grey, last=True),
            **{name: lambda each=each: each[0](each[1]) for name, each in spaces.items()},  # type: ignore[misc]
        }
        best = fastest(variants)
        work = {name: count(space, images) for name, (space, images) in spaces.items()}
    product, convolution = 2 * EDGE**3 / best["product"], 18 * CHANNELS**2 * PLACES / best["convolution"]
    text = HEAD.format(
        images=IMAGES, turns=TURNS, edge=EDGE, channels=CHANNELS, product=product / 1e9, convolution=convolution / 1e9
    )
    for name, (space, _) in spaces.items():
        each, seconds = work[name] / IMAGES, best[name] / IMAGES
        speed = each / seconds
        text += (
            f"| {name} | {space.dimension:,} | {each / 1e6:.1f} | {seconds * 1e6:.0f} "
            f"| {speed / product:.0%} | {speed / convolution:.0%} |\n"
        )
    text += (
        f"\nFilters of 7 × 7 over grey images, pooled: {best['last'] / 40 * 1e6:.0f} µs an image with the channels "
        f"last, as they are;\n{best['first'] / 40 * 1e6:.0f} µs with the channels first "
        f"(× {best['first'] / best['last']:.1f}). [What was tried](../lab/notebook/tries.md#the-feature-map).\n"
    )
    print(text)
    (Path(__file__).parent / "space.md").write_text(text)


if __name__ == "__main__":
    main()
