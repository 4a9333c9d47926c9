"""How much faster are large networks in bf16, and with batch normalisation folded into convolutions? Writes compute.md.

Training is `Learner.train` and testing `Learner.scores`, as in every run, on Fashion-MNIST (ResNet9) and CIFAR-10
(ResNet18). One thread, processor time; variants take turns, and a ratio is of one turn.

    python benchmarks/compute.py             # about five minutes
    python benchmarks/compute.py --turns 1   # a look; writes nothing
"""

import argparse
import copy
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from repshare.config import Policy
from repshare.network.learner import NetworkLearner
from repshare.samples import Samples
from repshare_lab.data import load
from repshare_lab.networks import ResNet9, ResNet18

CASES = {"ResNet9": ("fashion_mnist", lambda: ResNet9(1)), "ResNet18": ("cifar10", lambda: ResNet18(3))}
TRAINED, TESTED = 96, 192  # samples of a turn
BATCHES = (32, 128)  # samples of a batch of a test; a run takes 32 for such networks
HEAD = """# Large networks in fewer bits

Made by `benchmarks/compute.py`: one thread, processor time, medians over {turns} turns in which variants alternate;
ratios are of one turn, median (lowest–highest). {able}.

| network | work | ms a sample | times as fast as fp32 |
|---|---|---:|---:|
"""


def fold(model: nn.Module) -> nn.Module:
    """Return a copy for tests, with each batch normalisation folded into the convolution before it."""
    folded = copy.deepcopy(model).eval()
    for block in folded.modules():
        if isinstance(block, nn.Sequential):
            pairs = zip(list(block.named_children()), list(block.named_children())[1:], strict=False)
            for (name, layer), (after, norm) in pairs:
                if isinstance(layer, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                    setattr(block, name, fuse_conv_bn_eval(layer, norm))
                    setattr(block, after, nn.Identity())
    return folded


def make_variants(network: str) -> tuple[dict[str, Callable[[], object]], dict[str, int]]:
    """Return what is measured of a network, and the samples of each."""
    dataset, make = CASES[network]
    train = load(dataset).first(max(TRAINED, TESTED), 1).normalised().train
    samples = {size: Samples((train.images[:size], train.labels[:size])) for size in (TRAINED, TESTED)}
    torch.manual_seed(0)
    model = make()
    learners = {
        compute: NetworkLearner(copy.deepcopy(model), samples[TRAINED], Policy(compute=compute), name="a", seed=0)
        for compute in ("fp32", "bf16")
    }
    variants: dict[str, Callable[[], object]] = {}
    for compute, learner in learners.items():
        variants[f"training, {compute}"] = learner.train
        variants[f"testing, {compute}"] = lambda learner=learner: learner.scores(samples[TESTED])  # type: ignore[misc]
    images = torch.from_numpy(train.images[:TESTED]).contiguous(memory_format=torch.channels_last)
    plain, folded = learners["fp32"].network.model, fold(learners["fp32"].network.model)
    with torch.inference_mode():
        torch.testing.assert_close(folded(images[:8]), plain.eval()(images[:8]), rtol=1e-3, atol=1e-3)
    for size in BATCHES:
        for name, each in (("as it is", plain), ("folded", folded)):
            variants[f"forward in batches of {size}, {name}"] = lambda each=each, size=size: forward(each, images, size)  # type: ignore[misc]
    return variants, {name: TRAINED if name.startswith("training") else TESTED for name in variants}


def forward(model: nn.Module, images: torch.Tensor, size: int) -> None:
    """Compute the logits of all images."""
    model.eval()
    with torch.inference_mode():
        for part in images.split(size):
            model(part)


def measure(network: str, turns: int) -> str:
    """Measure all variants of a network in turns: rows of the table."""
    variants, samples = make_variants(network)
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for turn in range(turns + 1):
        for name, work in variants.items():
            began = time.process_time()
            work()
            if turn:  # the first one warms up
                seconds[name].append((time.process_time() - began) / samples[name])
    bases = {name: name.replace("bf16", "fp32").replace("folded", "as it is") for name in variants}
    bases["forward in batches of 128, as it is"] = "forward in batches of 32, as it is"
    text = ""
    for name, took in seconds.items():
        ratios = sorted(base / own for base, own in zip(seconds[bases[name]], took, strict=True))
        ratio = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f}–{ratios[-1]:.2f})" if bases[name] != name else ""
        text += f"| {network} | {name} | {1e3 * statistics.median(took):.2f} | {ratio} |\n"
    return text


def main() -> None:
    """Measure, print, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=7, help="how many times each is measured")
    turns = parser.parse_args().turns
    torch.set_num_threads(1)
    able = f"The processor {'multiplies' if torch.cpu.get_capabilities().get('avx512_bf16') else 'only imitates'} bf16"
    text = HEAD.format(turns=turns, able=able) + "".join(measure(network, turns) for network in CASES)
    text += (
        "\n*Folded* is compared with the same batches as it is, 128 as it is with 32. Training and testing are those\n"
        "of a run, which tests such networks in batches of 32 and does not fold: see above how little that gains.\n"
    )
    print(text)
    if turns > 1:
        Path(__file__).with_suffix(".md").write_text(text)


if __name__ == "__main__":
    main()
