"""A common classifier as ONNX: one graph, compared with the original on the party's own samples."""

import json
import logging
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from repshare import __version__
from repshare.errors import ConfigError
from repshare.imports import in_one_line
from repshare.party.classifier import SpaceClassifier
from repshare.samples import Samples
from repshare.sharing.columns import name_inputs

COMPARED = 100  # samples
EXACT = 0.01  # of a vector's length: maps that are computed in fp32 everywhere
ROUNDING = 1e-3  # tolerance relative to the largest score: roots enlarge the rounding of fp32


class _WholeClassifier(nn.Module):
    """A common classifier with its space: from inputs to scores."""

    def __init__(self, classifier: SpaceClassifier) -> None:
        super().__init__()
        self.prepare, self.graph = classifier.agreement.prepare, classifier.agreement.space.graph()
        linear = classifier.linear
        self.weights = torch.from_numpy(linear.weights)  # (C, d)
        self.offset = torch.from_numpy(linear.offset - linear.weights @ linear.centre)  # (C,)

    def forward(self, inputs: Tensor) -> Tensor:
        if self.graph is None:
            raise ConfigError("the space has no graph")
        return self.graph(self.prepare(inputs)) @ self.weights.T + self.offset  # type: ignore[no-any-return]


def classifier_as_onnx(classifier: SpaceClassifier, samples: Samples) -> bytes:
    """A common classifier with its space as ONNX: from a batch of inputs to `scores` (n, C).

    Its metadata have the version, the agreement, the classes, and what each number of an input is.
    """
    space, inputs = classifier.agreement.space, _some(samples)
    if space.graph() is None:
        raise ConfigError(
            f"the space {space.name} is your own module, and no graph is made of it: apply the linear map in "
            "classifier.safetensors to your module's output"
        )
    agreed, kind = classifier.agreement, f"the space {space.name}"
    about = {"version": __version__, "classes": json.dumps(agreed.class_names), "samples": str(classifier.samples)}
    about |= {"agreement": json.dumps(agreed.describe()), "inputs": json.dumps(name_inputs(agreed.columns))}
    whole = _WholeClassifier(classifier).eval()
    exact = space.tolerance <= EXACT  # else clients compute with bf16, and the file, with fp32, is its own original
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with torch.no_grad():
            expected = (classifier.scores(inputs) if exact else whole(inputs)).float()
        body = _trace(whole, inputs, about)
        together, first = _run(body, inputs), _run(body, inputs[:1])
    except Exception as error:  # PyTorch's exporter and the runtime raise errors of many kinds
        raise ConfigError(f"{kind} cannot be exported to ONNX: {in_one_line(error)[:300]}") from error
    finally:
        logger.setLevel(level)
    _compare(expected.cpu().numpy(), together, first, kind)
    return body


def _some(samples: Samples) -> Tensor:
    rows = torch.arange(max(2, min(COMPARED, len(samples)))) % len(samples)  # a batch of one would fix its size
    inputs: Tensor = samples.batch(rows)[0]
    return inputs.contiguous()


def _trace(whole: nn.Module, inputs: Tensor, about: Mapping[str, str]) -> bytes:
    import onnxscript  # noqa: F401 torch.onnx needs it, and would say so at length

    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # the exporter's own
        program = torch.onnx.export(
            whole, (inputs,), input_names=["input"], output_names=["scores"],
            dynamic_shapes=({0: torch.export.Dim("n", min=1)},), dynamo=True, verbose=False,
        )  # fmt: skip
    proto = program.model_proto  # type: ignore[union-attr]
    for key, value in about.items():
        proto.metadata_props.add(key=f"repshare.{key}", value=value)
    body: bytes = proto.SerializeToString()
    return body


def _run(body: bytes, inputs: Tensor) -> Any:
    import onnxruntime  # type: ignore[import-untyped]

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(body, options, providers=["CPUExecutionProvider"])
    return session.run(["scores"], {"input": inputs.cpu().numpy()})[0]


def _compare(expected: Any, together: Any, first: Any, kind: str) -> None:
    """Refuse a graph whose outputs differ by more than rounding, for a batch or for a single sample."""
    largest = float(np.abs(expected).max())
    for wanted, got in ((expected, together), (expected[:1], first)):
        if wanted.shape != got.shape:
            raise ConfigError(f"{kind} as ONNX gives {got.shape} in place of {wanted.shape}: it was not exported")
        apart = float(np.abs(wanted - got).max())
        if not apart <= ROUNDING * max(largest, 1e-6):
            raise ConfigError(
                f"{kind} as ONNX differs by {apart:.2g} on your own samples, whose largest score is {largest:.2g}: "
                "it was not exported"
            )
