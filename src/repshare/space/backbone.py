"""`backbone`: a pretrained module as the map, a client's own or a recipe's. The task pins it, weights and all.

Code and weights never come from the relay: every client has them from where it trusts. The task states the SHA-256 of
the weights, and a probe: the map's answers to inputs that follow from a seed. A client whose module differs in either
is refused before anything is shared.

A module gets images (n, channels, height, width) in fp32 from 0 to 1, brought there from the range that the task
states; other inputs arrive as they are. It resizes and normalises them itself, and gives a vector for each.
"""

import hashlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal
from weakref import WeakKeyDictionary

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.numpy import load_file, save
from torch import Tensor, nn

from repshare.errors import ConfigError, DataError, ModelError
from repshare.fields import parse_options
from repshare.files import write_atomically
from repshare.imports import find_function, in_one_line, is_reference, missing
from repshare.measures import Representation
from repshare.network.features import passes_on
from repshare.samples import change_tensors
from repshare.sharing.representations import Floats
from repshare.space import recipes
from repshare.space.filters import lengthen
from repshare.space.frozen import call, keep_freed_memory, one_thread, precision, speed_up
from repshare.space.probe import compare_answers, describe_inputs, draw_inputs, reduce_answers
from repshare.space.space import Space

BATCH = 16  # samples: measured fastest among 4 to 50, since what convolutions compute fits the cache
CHUNK = 256  # samples that are kept in one file
TOLERANCE = {"fp32": 0.01, "bf16": 0.1}  # of a vector's length: bf16 is 0.06 off, 128 in place of 160 pixels 0.47
NOISE = 1e-4  # of a vector's length, between two answers to the same inputs
CPU = torch.device("cpu")

Watch = Callable[[int, int], None]


@dataclass(frozen=True)
class Backbone(Space):
    """The module that `module` (file.py:function) or a recipe names, in evaluation mode, its output of length √d."""

    name: ClassVar[str] = "backbone"

    sha256: str
    """Of the module's weights, as `hash_weights` counts them: 64 hexadecimal digits."""
    features: int
    """d: how many numbers the module gives for a sample."""
    takes: str
    """The form of an input, such as float[3,32,32]: of those that the probe draws. Images may be of another size."""
    probe: tuple[float, ...]
    """The answers to the probe, reduced to 16 numbers each."""
    compute: Literal["fp32", "bf16"] = "fp32"
    """Number format that clients may compute with. bf16: where a processor is faster with it; others use fp32."""
    recipe: str = ""
    """A recipe by which every client makes the module itself. Default: each client brings it."""
    module: str = field(default="", compare=False)
    """The source of this client's module. It is the client's own matter, and no part of the description."""
    cache: Path | None = field(default=None, compare=False)
    """Folder that keeps vectors, which only its owner may read. Default: none is kept on disk."""
    watch: Watch | None = field(default=None, compare=False)
    """Gets the number of samples that were mapped, and of all."""

    @property
    def dimension(self) -> int:
        """d, the length of a vector in numbers."""
        return self.features

    @property
    def tolerance(self) -> float:
        """How far two computations of the map may be apart, as a share of a vector's length."""
        return TOLERANCE[self.compute]

    def __call__(self, inputs: Any) -> Tensor:
        """Map a batch, a mapping being passed as keywords, to (n, d)."""
        with redirect_stdout(sys.stderr):
            return torch.cat([self._embed(batch) for batch in _slices(inputs)])

    def embed(self, samples: Any, prepare: Callable[[Any], Any], size: int) -> Floats:
        """Map all samples once: vectors are kept while the samples are there, and in the cache if there is one."""
        if (known := self._known.get(samples)) is not None:
            return known
        made, done = list[Floats](), 0
        workers = torch.get_num_threads() if self._module and samples.device.type == "cpu" else 1
        # Each batch is one thread's, so that its bits do not depend on how many there are.
        with redirect_stdout(sys.stderr), one_thread(), ThreadPoolExecutor(workers) as pool:
            for inputs, _ in samples.in_order(CHUNK if size > 1 else 1):
                made.append(self._find(prepare(inputs), pool))
                done += len(made[-1])
                if self.watch is not None:
                    self.watch(done, len(samples))
        self._known[samples] = np.concatenate(made)
        return self._known[samples]

    def attended(self, *, cache: Path | None = None, watch: Watch | None = None) -> "Backbone":
        """The same map with a cache, and with somebody who watches."""
        return replace_own(self, cache=cache, watch=watch)

    def examine(self, inputs: Any) -> Representation:
        """Count the module's layers that have parameters, and see whether it only passes inputs on."""
        own = [sum(each.numel() for each in layer.parameters(recurse=False)) for layer in self._module.modules()]
        layers = sum(count > 0 for count in own)
        return Representation(self.dimension, layers, sum(own), passes_on(self, inputs))

    def graph(self) -> Callable[[Any], Any]:
        """The same map in fp32."""
        module = self._load()
        return lambda inputs: lengthen(_vectors(call(module, inputs), self.title).float())

    @property
    def title(self) -> str:
        """The module by name."""
        return self.module or self.recipe or "the module"

    def _find(self, inputs: Any, pool: ThreadPoolExecutor) -> Floats:
        """The vectors of a chunk: out of the cache, else computed, and kept there if there is one."""
        path = None if self.cache is None else self.cache / f"{self._key(inputs)}.safetensors"
        if path is not None and (kept := _read(path, self.features)) is not None:
            return kept
        vectors = np.concatenate([each.cpu().numpy() for each in pool.map(self._embed, _slices(inputs))])
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            write_atomically(path, save({"vectors": vectors}), private=True)
        return vectors

    def _key(self, inputs: Any) -> str:
        """A name for a chunk's vectors: a hash of the map and of the inputs."""
        told = hashlib.sha256(f"{self.sha256} {self.probe} {self.compute}".encode())
        for name, each in sorted(inputs.items()) if isinstance(inputs, Mapping) else [("", inputs)]:
            array = each.cpu().numpy()
            told.update(f"{name} {array.shape} {array.dtype}".encode() + np.ascontiguousarray(array).data)
        return told.hexdigest()[:32]

    def _embed(self, batch: Any) -> Tensor:
        device = next(iter(batch.values())).device if isinstance(batch, Mapping) else batch.device
        with torch.inference_mode(), precision(self.compute, device):
            vectors = _answer(self._module.to(device), batch, self.title).float()
        if vectors.shape[1] != self.features:
            shape = tuple(vectors.shape[1:])
            raise DataError(
                f"the backbone {self.title} gives {shape} for a sample; the task's has {self.features} numbers"
            )
        return lengthen(vectors)

    @cached_property
    def _known(self) -> WeakKeyDictionary[Any, Floats]:
        return WeakKeyDictionary()

    def _load(self) -> nn.Module:
        module = build(self.module or self.recipe)
        if (own := hash_weights(module)) != self.sha256:
            raise ConfigError(
                f"the task's backbone has weights {self.sha256[:16]}…, those of {self.title} are {own[:16]}…"
            )
        return module

    @cached_property
    def _module(self) -> nn.Module:
        """The module, made fast if it still answers the probe as the task says."""
        keep_freed_memory()
        inputs = draw_inputs(self.takes)
        for change in (speed_up, None):
            module = self._load()
            with redirect_stdout(sys.stderr), torch.inference_mode(), precision(self.compute, CPU):
                if change is not None and not change(module, inputs):
                    continue
                apart = compare_answers(self.probe, answer_probe(module, inputs, self.title))
            if apart <= self.tolerance:
                return module
        raise ConfigError(
            f"{self.title} has the weights of the task's backbone, but computes something else: its answers to the "
            f"probe are {apart:.2g} of their length apart (at most {self.tolerance:g}). Compare how inputs are resized "
            "and normalised, the layer and its pooling, and whether dropout is off"
        )


@dataclass(frozen=True)
class _Computing:
    compute: Literal["fp32", "bf16"] = "fp32"


def replace_own(space: Backbone, **own: Any) -> Backbone:
    """A backbone with other matters of the client's own; a module that was built already stays."""
    changed = replace(space, **own)
    changed.__dict__.update({name: space.__dict__[name] for name in ("_module",) if name in space.__dict__})
    return changed


def build(source: str) -> nn.Module:
    """The module of a file.py:function or a recipe, in evaluation mode. What it prints goes to standard error."""
    if not source:
        raise ConfigError(
            'the task\'s space is a backbone, which every client brings: Party(…, backbone="file.py:function")'
        )
    make = find_function(source) if is_reference(source) else lambda: recipes.build(source)
    try:
        with redirect_stdout(sys.stderr):
            module = make()
    except ModuleNotFoundError as error:
        raise missing(error) from error
    except ConfigError:
        raise
    except (Exception, SystemExit) as error:  # the user's own code
        raise ModelError(f"{source} could not be built: {in_one_line(error)}") from error
    if not isinstance(module, nn.Module):
        raise ModelError(f"{source} gave a {type(module).__name__}, not a torch.nn.Module")
    return module.eval().requires_grad_(False)


def hash_weights(module: nn.Module) -> str:
    """The SHA-256 over the names, types, shapes and bytes of a module's tensors, in the order of their names.

    Args:
        module: The module.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        kept = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {kept.dtype} {tuple(kept.shape)}\n".encode())
        digest.update(kept.flatten().view(torch.uint8).numpy().tobytes() if kept.numel() else b"")
    return digest.hexdigest()


def choose_backbone(words: Sequence[str], example: Any) -> Backbone:
    """The backbone that the words name, for inputs like the example.

    Args:
        words: A recipe with its options, or file.py:function; either may be followed by compute=bf16 or compute=fp32.
            Default: bf16 for a recipe, which was measured with it, and fp32 for a module of one's own.
        example: A batch of inputs.
    """
    name, *options = words
    own = [each for each in options if each.startswith("compute=")]
    rest = [each for each in options if each not in own]
    if is_reference(name) and rest:
        raise ConfigError(f"a module of your own has the option compute=… only: leave {' '.join(rest)} out")
    usual = {"compute": "fp32" if is_reference(name) else "bf16"}
    chosen = usual | parse_options(name, _Computing, own)
    return measure(" ".join([name, *rest]), change_tensors(example, torch.as_tensor), **chosen)


def measure(source: str, example: Any, *, compute: Literal["fp32", "bf16"] = "fp32") -> Backbone:
    """A module as a space, for the one who makes a task of it.

    Args:
        source: A function as file.py:function that returns the module, or a recipe.
        example: A batch of inputs, of which the form counts.
        compute: The number format that clients may compute with.
    """
    module, form = build(source), describe_inputs(example)
    digest = hash_weights(module)
    if digest != hash_weights(build(source)):
        raise ConfigError(f"{source} gives a module with other weights at every call: load them, or set a seed")
    inputs = draw_inputs(form)
    with redirect_stdout(sys.stderr), torch.inference_mode(), one_thread():  # one order of sums: the same digits again
        width = _answer(module, inputs, source).shape[1]
        first, again = (answer_probe(module, inputs, source) for _ in range(2))
    if (apart := compare_answers(first, again)) > NOISE:
        raise ConfigError(
            f"{source} answers the same inputs in another way each time ({apart:.2g} of a vector's length apart): "
            "dropout, or another random part, is on in evaluation mode"
        )
    own = {"module": source} if is_reference(source) else {"recipe": source}
    return Backbone(digest, width, form, first, compute, **own)  # type: ignore[arg-type]


def answer_probe(module: nn.Module, inputs: Any, title: str) -> tuple[float, ...]:
    """A module's answers to the probe, reduced.

    Args:
        module: The module.
        inputs: What `draw_inputs` made.
        title: The module by name.
    """
    vectors = _answer(module, inputs, title).float()
    return reduce_answers(lengthen(vectors).numpy())


def _answer(module: nn.Module, batch: Any, title: str) -> Tensor:
    """A module's vectors of a batch (n, d). Raises DataError where there are none, or they are not finite."""
    try:
        vectors = _vectors(call(module, batch), title)
    except (RuntimeError, TypeError, ValueError, AttributeError, IndexError, KeyError) as error:
        raise DataError(f"the backbone {title} cannot take the data: {in_one_line(error)}") from error
    if not vectors.isfinite().all():
        row = int((~vectors.isfinite()).any(dim=1).nonzero()[0])
        raise DataError(f"the backbone {title} gives NaN or infinity, first for sample {row} of a batch")
    return vectors


def _vectors(answer: Any, title: str) -> Tensor:
    """One vector a sample: the answer itself, or what Hugging Face's models call it."""
    for name in ("pooler_output", "logits"):
        if getattr(answer, name, None) is not None:
            return _flat(getattr(answer, name), title)
    if getattr(answer, "last_hidden_state", None) is not None:
        return _flat(answer.last_hidden_state.mean(dim=1), title)
    return _flat(answer[0] if isinstance(answer, tuple) else answer, title)


def _flat(answer: Any, title: str) -> Tensor:
    if not isinstance(answer, Tensor):
        raise TypeError(f"it gave a {type(answer).__name__}, not a tensor")
    if answer.ndim > 2 and answer.shape[2:].numel() > 1:
        shape = " × ".join(map(str, answer.shape[1:]))
        raise ConfigError(f"{title} gives maps of {shape} for a sample: pool them, by .mean((2, 3)) say")
    return answer.flatten(1)


def _slices(inputs: Any) -> Iterator[Any]:
    """A batch in pieces of BATCH samples; images have their channels last, with which convolutions are faster."""
    if isinstance(inputs, Mapping):
        size = len(next(iter(inputs.values())))
        for start in range(0, size, BATCH):
            yield {name: each[start : start + BATCH] for name, each in inputs.items()}
        return
    for piece in inputs.split(BATCH):
        yield piece.contiguous(memory_format=torch.channels_last) if piece.ndim == 4 else piece


def _read(path: Path, features: int) -> Floats | None:
    """The vectors in a file of the cache; None where there is none, or it is damaged."""
    try:
        vectors = load_file(path)["vectors"]
    except (OSError, KeyError, SafetensorError):
        return None
    return vectors if vectors.ndim == 2 and vectors.shape[1] == features else None
