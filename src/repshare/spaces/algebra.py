"""The arithmetic of common spaces and classifiers, on PyTorch's tensors or on NumPy's arrays.

So there is one algorithm, with PyTorch or without. Tensors are computed with as PyTorch does, to the last bit. With
arrays nothing here imports PyTorch. What both write alike is not here: `@`, `clip`, `sum(axis=…, keepdims=…)`.
"""

import math
from collections.abc import Hashable, Sequence
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

Array = Any  # a tensor of PyTorch's or an array of NumPy's
Values = TypeVar("Values")  # the one or the other
Singular = np.linalg.LinAlgError


def is_array(values: Any) -> bool:
    """Return whether these are a tensor or an array."""
    return isinstance(values, np.ndarray) or hasattr(values, "new_zeros")


def like(values: Array | NDArray[Any], other: Array, *, copy: bool = False) -> Array:
    """Return values, which may be an array, in the form, type and place of another."""
    if isinstance(other, np.ndarray):
        return np.array(values, other.dtype, copy=copy or None)
    return from_numpy(values, other).to(other, copy=copy)


def place(values: Array) -> tuple[Hashable, ...]:
    """Return what values in another form, of another type or on another device differ in."""
    return (values.dtype,) if isinstance(values, np.ndarray) else (values.dtype, values.device)


def from_numpy(values: Array | NDArray[Any], other: Array) -> Array:
    """Return an array as it is, as a tensor where the other is one."""
    if isinstance(other, np.ndarray) or not isinstance(values, np.ndarray):
        return values
    import torch

    return torch.from_numpy(values)


def to_numpy(values: Array) -> NDArray[Any]:
    """Return the same as an array."""
    return values if isinstance(values, np.ndarray) else values.cpu().numpy()


def double(values: Array) -> Array:
    """Return the same in fp64."""
    return values.astype(np.float64, copy=False) if isinstance(values, np.ndarray) else values.double()


def zeros(shape: tuple[int, ...], other: Array, *, kind: Literal["float64", "bool"] = "float64") -> Array:
    """Return zeros where the other is."""
    if isinstance(other, np.ndarray):
        return np.zeros(shape, kind)
    import torch

    return torch.zeros(shape, dtype=getattr(torch, kind), device=other.device)


def one_hot(labels: Array, classes: int) -> Array:
    """Return labels (n,) as rows of zeros with a one (n, C) in fp64."""
    if isinstance(labels, np.ndarray):
        return np.eye(classes)[labels]
    import torch

    return torch.nn.functional.one_hot(labels, classes).double()


def join(rows: Sequence[Array]) -> Array:
    """Return one of several batches of rows."""
    if isinstance(rows[0], np.ndarray):
        return np.concatenate(rows)
    import torch

    return torch.cat(list(rows))


def is_finite(values: Array) -> bool:
    """Return whether all numbers are."""
    return bool(np.isfinite(values).all() if isinstance(values, np.ndarray) else values.isfinite().all())


def square(values: Array) -> Array:
    """Return the squares."""
    return values * values


def lengthen(vectors: Values) -> Values:
    """Return each of the rows with length √d; what is all zero stays so."""
    given: Any = vectors
    is_numpy = isinstance(given, np.ndarray)
    lengths = np.linalg.norm(given, axis=1, keepdims=True) if is_numpy else given.norm(dim=1, keepdim=True)
    long: Values = given * (math.sqrt(given.shape[1]) / lengths.clip(1e-12, None))
    return long


def flatten(inputs: Array) -> Array:
    """Return inputs (n, …) as rows of numbers (n, k): of tensors in fp32, of arrays in fp64."""
    if isinstance(inputs, np.ndarray):
        return inputs.reshape(len(inputs), math.prod(inputs.shape[1:])).astype(np.float64)
    return inputs.flatten(1).float()


def cosines(phases: Array, rows: Array, frequencies: Array) -> Array:
    """Return cos(phases + rows @ frequencies) in fp32."""
    if isinstance(rows, np.ndarray):  # in fp64, so that a row's numbers do not depend on the rows beside it
        return np.cos(phases + rows @ frequencies).astype(np.float32)
    import torch

    return torch.addmm(phases, rows, frequencies).cos_()


def add_to_diagonal(matrix: Array, value: float) -> Array:
    """Return the matrix, with a number added to its diagonal in place."""
    if isinstance(matrix, np.ndarray):
        matrix[np.diag_indices_from(matrix)] += value
    else:
        matrix.diagonal().add_(value)
    return matrix


def eigh(matrix: Array) -> tuple[Array, Array]:
    """Return the eigenvalues of a symmetric matrix, and its eigenvectors as columns."""
    if isinstance(matrix, np.ndarray):
        values, vectors = np.linalg.eigh(matrix)
        return values, vectors
    import torch

    values, vectors = torch.linalg.eigh(matrix)
    return values, vectors


def cholesky(matrix: Array) -> Array:
    """Return the lower factor of a positive definite matrix. Raises Singular if it is not."""
    if isinstance(matrix, np.ndarray):
        return np.linalg.cholesky(matrix)
    import torch

    try:
        return torch.linalg.cholesky(matrix)
    except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
        raise Singular(str(error)) from error


def cholesky_solve(values: Array, factor: Array) -> Array:
    """Return the solution of a system (n, n) with several columns (n, C), given its matrix's lower factor."""
    if isinstance(factor, np.ndarray):
        return np.linalg.solve(factor.T, np.linalg.solve(factor, values))
    import torch

    return torch.cholesky_solve(values, factor)
