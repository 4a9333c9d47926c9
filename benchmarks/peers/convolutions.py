"""A round's convolutions and nothing else: forward and backward, laid out as repshare lays them out.

Whoever trains these LeNet5s with PyTorch's kernels can hardly be faster. No weights change, and nothing is learnt.
"""

import multiprocessing
from collections.abc import Callable
from multiprocessing.synchronize import Barrier

import torch
from torch import Tensor
from torch.nn import functional as F
from workload import BATCH, Clock, Workload, read_arguments

SIDE_BY_SIDE, HALVES = 10, 2  # clients of a process; a client's batch is two groups of the first two layers
LAST = torch.channels_last


def make_layer(samples: int, inputs: int, outputs: int, size: int, kernel: int, groups: int) -> Callable[[], None]:
    """One layer's forward pass and its gradients; the first one needs none for its input."""
    images = torch.rand(samples, groups * inputs, size, size).contiguous(memory_format=LAST)
    weight = torch.rand(groups * outputs, inputs, kernel, kernel).contiguous(memory_format=LAST)
    bias, padding = torch.rand(groups * outputs), kernel // 2
    for tensor in (images, weight, bias)[inputs == 1 :]:
        tensor.requires_grad_()

    def forward() -> Tensor:
        return F.conv2d(images, weight, bias, padding=padding, groups=groups)

    gradient = torch.rand_like(forward())

    def step() -> None:
        forward().backward(gradient)
        images.grad = weight.grad = bias.grad = None

    return step


def make_steps(workload: Workload) -> list[list[Callable[[], None]]]:
    """The steps of a process's round: for each batch of its clients the layers' passes."""
    clients, steps = workload.clients // workload.workers, []
    for first in range(0, clients, SIDE_BY_SIDE):
        count = min(SIDE_BY_SIDE, clients - first)
        for start in range(0, workload.samples, BATCH):
            batch, groups = min(BATCH, workload.samples - start), HALVES * count
            stacked = [
                make_layer(batch // HALVES, 1, 6, 28, 5, groups),
                make_layer(batch // HALVES, 6, 16, 14, 5, groups),
            ]
            steps.append([*stacked, *[make_layer(batch, 16, 120, 7, 3, 1)] * count])
    return steps


def work(workload: Workload, meet: Barrier) -> None:
    torch.set_num_threads(1)
    steps = make_steps(workload)
    for _ in range(workload.rounds):
        meet.wait()
        for layers in steps:
            for layer in layers:
                layer()
        meet.wait()


def main() -> None:
    workload, clock = read_arguments(), Clock()
    context = multiprocessing.get_context("spawn")
    meet = context.Barrier(workload.workers + 1)
    workers = [context.Process(target=work, args=(workload, meet)) for _ in range(workload.workers)]
    for worker in workers:
        worker.start()
    for _ in range(workload.rounds):
        meet.wait()
        meet.wait()
        clock.tick()
    for worker in workers:
        worker.join()
    clock.answer(workload, 0.0)


if __name__ == "__main__":
    main()
