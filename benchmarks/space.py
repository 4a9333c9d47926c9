"""How close does ψ come to the processor's peak? Writes benchmarks/space.md.

One thread. Products and convolutions are counted, nothing else; the peak is a large matrix product's in the same run.
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

from repshare.data import load
from repshare.simulation.plan import USUAL
from repshare.spaces import Space, choose
from repshare.spaces.banks import Bank, rectify

IMAGES, TURNS, EDGE = 80, 20, 1024
HEAD = """# The cost of ψ

`python benchmarks/space.py`: one thread, {images} images, processor time, the fastest of {turns} turns. Only products
and convolutions count as work. Peak: a product of matrices of {edge} × {edge} in the same run, {peak:.0f} GFLOP/s.

| data set | numbers | MFLOP an image | µs an image | of the peak |
|---|---:|---:|---:|---:|
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
    square = torch.randn(EDGE, EDGE)
    spaces = {dataset: prepare(dataset) for dataset in ("mnist", "fashion_mnist", "cifar10")}
    bank, grey = spaces["mnist"][0]._banks[1], spaces["mnist"][1][:40]  # type: ignore[attr-defined]
    with torch.inference_mode():
        variants: dict[str, Callable[[], object]] = {
            "peak": lambda: square @ square,
            "first": lambda: filter_and_pool(bank, grey, last=False),
            "last": lambda: filter_and_pool(bank, grey, last=True),
            **{name: lambda each=each: each[0](each[1]) for name, each in spaces.items()},  # type: ignore[misc]
        }
        best = fastest(variants)
        work = {name: count(space, images) for name, (space, images) in spaces.items()}
    peak = 2 * EDGE**3 / best["peak"]
    text = HEAD.format(images=IMAGES, turns=TURNS, edge=EDGE, peak=peak / 1e9)
    for name, (space, _) in spaces.items():
        each, seconds = work[name] / IMAGES, best[name] / IMAGES
        text += (
            f"| {name} | {space.dimension:,} | {each / 1e6:.1f} | {seconds * 1e6:.0f} | {each / seconds / peak:.0%} |\n"
        )
    text += (
        f"\nFilters of 7 × 7 over grey images, pooled: {best['last'] / 40 * 1e6:.0f} µs an image with the channels "
        f"last, as they are;\n{best['first'] / 40 * 1e6:.0f} µs with the channels first "
        f"(× {best['first'] / best['last']:.1f}). [What was tried](notes.md#the-feature-map).\n"
    )
    print(text)
    (Path(__file__).parent / "space.md").write_text(text)


if __name__ == "__main__":
    main()
