"""Matrices as the first of their singular vectors: as many as keep a share of the energy."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]
PARTS = (" U", " S", " V")  # end the names of a matrix's factors


def compress(arrays: Arrays, energy: float) -> dict[str, NDArray[Any]]:
    """Return each matrix M (P, Q) as U_K Σ_K V_Kᵀ with the smallest K for which Σ_{i≤K} σ_i² ≥ energy · Σ σ_i².

    What has more dimensions is a matrix with a row for each of the first; it stays whole where that takes less room.
    """
    made = dict[str, NDArray[Any]]()
    for name, array in arrays.items():
        matrix = torch.from_numpy(array.reshape(len(array), -1).astype(np.float64)) if array.ndim > 1 else None
        kept = None if matrix is None else _factors(matrix, energy)
        if kept is None or matrix is None or sum(factor.numel() for factor in kept) >= matrix.numel():
            made[name] = array
        else:
            made |= {name + part: factor.numpy().astype(array.dtype) for part, factor in zip(PARTS, kept, strict=True)}
    return made


def expand(arrays: Arrays) -> dict[str, NDArray[Any]]:
    """Return what was compressed, as far as it was kept: as matrices, and vectors as they were. Raises ValueError."""
    found = dict[str, NDArray[Any]]()
    for name in {**dict.fromkeys(name[:-2] if name.endswith(PARTS) else name for name in arrays)}:
        if name in arrays:
            array = arrays[name]
            found[name] = array.reshape(len(array), -1) if array.ndim > 1 else array
        elif all(name + part in arrays for part in PARTS):
            u, s, v = (arrays[name + part].astype(np.float64) for part in PARTS)
            found[name] = (u * s) @ v.T
        else:
            raise ValueError(f"a factor of {name} is missing")
    return found


def _factors(matrix: torch.Tensor, energy: float) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None:
    u, s, v = torch.linalg.svd(matrix, full_matrices=False)
    squares = s.square()
    if not squares.sum() > 0:
        return u[:, :0], s[:0], v[:0].T
    count = 1 + int((squares.cumsum(0) < energy * squares.sum()).sum())
    return u[:, :count], s[:count], v[:count].T
