"""Compares a candidate's outputs with the reference, and stores the reference in a file."""

from __future__ import annotations

from pathlib import Path

import attrs
import numpy as np
from chameleon_core.plugin_api import Arrays
from chameleon_system.api import open_atomic
from numpy.typing import NDArray


@attrs.frozen(kw_only=True)
class Difference:
    """The difference between a candidate's outputs and the reference outputs.

    Attributes:
        error: the largest |difference| divided by the largest |expected|; infinity if the outputs
            cannot be compared.
        problem: why the outputs cannot be compared; empty if they can.
    """

    error: float
    problem: str = ""


def save_arrays(path: Path, arrays: Arrays) -> None:
    """Write arrays to a file atomically."""
    with open_atomic(path) as file:
        np.savez(file, *arrays)


def load_arrays(path: Path) -> Arrays:
    """Read the arrays that ``save_arrays`` wrote."""
    with np.load(path, allow_pickle=False) as stored:
        return [stored[f"arr_{index}"] for index in range(len(stored.files))]


def compare(actual: Arrays, expected: Arrays) -> Difference:
    """Compare a candidate's outputs with the expected outputs."""
    if len(actual) != len(expected):
        return _incomparable(f"{len(actual)} outputs where {len(expected)} are expected")
    worst = 0.0
    for index, (got, want) in enumerate(zip(actual, expected, strict=True)):
        difference = _compare_one(np.asarray(got), want)
        if difference.problem:
            return _incomparable(f"output {index} {difference.problem}")
        worst = max(worst, difference.error)
    return Difference(error=worst)


def _compare_one(got: NDArray[np.generic], want: NDArray[np.generic]) -> Difference:
    if got.shape != want.shape:
        return _incomparable(f"has shape {got.shape} where {want.shape} is expected")
    # A reference may be computed in higher precision than the operator's own.
    if got.dtype.kind != want.dtype.kind or got.dtype.itemsize > want.dtype.itemsize:
        return _incomparable(f"is {got.dtype} where {want.dtype} is expected")
    if not want.size:
        return Difference(error=0.0)
    got64, want64 = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(want64)
    if not np.array_equal(got64[~finite], want64[~finite], equal_nan=True):
        return _incomparable("differs where the reference is NaN or infinite")
    if not np.isfinite(got64[finite]).all():
        return _incomparable("holds NaN or infinity where the reference does not")
    largest = float(np.abs(want64[finite]).max(initial=0.0))
    gap = float(np.abs(got64[finite] - want64[finite]).max(initial=0.0))
    return Difference(error=gap / largest if largest > 0.0 else gap)


def _incomparable(problem: str) -> Difference:
    return Difference(error=float("inf"), problem=problem)
