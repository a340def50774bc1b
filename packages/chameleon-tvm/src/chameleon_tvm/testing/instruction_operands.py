"""What instructions are tried on, and how far from their meaning results may be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chameleon_tvm.instructions.base import BFLOAT16_BITS, Instruction
from chameleon_tvm.types import BFLOAT16, STORAGE

Array = NDArray[Any]

_EXTREME = 1 / 16
"""How many operands of the extreme half are extreme: groups of several have some that are not."""

_SMALLEST_NORMAL = float(np.finfo(np.float32).tiny)
"""Of float32 and bfloat16; denormals of float16 are normal numbers in a sum of float32."""


def drawn(dtype: str, shape: Sequence[int], rng: np.random.Generator) -> Array:
    """Operands: the first half of the cases random, the others with extreme numbers among them.

    Those of integers are the ends of their type, those of floating-point numbers zeros, ones, the
    largest and the smallest, denormals, infinities and NaN.

    Args:
        dtype: as instructions name it; uint16 for bfloat16.
        shape: cases first.
        rng: drawn from.
    """
    if dtype != BFLOAT16_BITS and np.dtype(dtype).kind in "iu":
        info = np.iinfo(dtype)
        made = rng.integers(info.min, info.max, shape, dtype, endpoint=True)
        ends = np.array([info.min, info.max, 0, 1], dtype)
    else:
        kind = np.dtype(np.float32 if dtype == BFLOAT16_BITS else dtype)
        limits = np.finfo(kind)
        spread = 2.0 ** rng.integers(-6, 7, shape)
        made = (rng.standard_normal(shape) * spread).astype(kind)
        # In bfloat16 the largest float32 would be infinite, and its smallest denormal zero.
        largest, denormal = limits.max / 2, limits.tiny / 4
        positive = [0.0, 1.0, largest, limits.tiny, denormal, np.inf, np.nan]
        ends = np.array([*positive, *(-one for one in positive)], kind)
        if dtype == BFLOAT16_BITS:
            made, ends = STORAGE[BFLOAT16].stored(made), STORAGE[BFLOAT16].stored(ends)
    extreme = rng.random(shape) < _EXTREME
    extreme[: len(extreme) // 2] = False
    return np.where(extreme, rng.choice(ends, shape), made).astype(dtype)


def flushed(array: Array, dtype: str) -> Array:
    """Operands with zeros in place of denormals.

    Args:
        array: of any shape.
        dtype: as instructions name it.
    """
    if not is_floating(dtype):
        return array
    small = np.abs(values(array, dtype)) < _SMALLEST_NORMAL
    return np.where(small, np.zeros((), array.dtype), array)


def values(array: Array, dtype: str) -> Array:
    """The numbers that operands stand for, as float64.

    Args:
        array: of any shape.
        dtype: as instructions name it.
    """
    return (STORAGE[BFLOAT16].real(array) if dtype == BFLOAT16_BITS else array).astype(np.float64)


def is_floating(dtype: str) -> bool:
    """Whether operands are floating-point numbers."""
    return dtype == BFLOAT16_BITS or np.dtype(dtype).kind == "f"


def require_same(
    instruction: Instruction, got: Array, expected: Array, terms: Array, *, where: str
) -> None:
    """Require that results are what an instruction means.

    Integers have to be equal. Sums of floating-point numbers may be rounded after each term, in any
    order, which changes them by less than a unit of rounding for each term, relative to the terms'
    absolute values (Higham, Accuracy and Stability of Numerical Algorithms, section 4.2). NaN and
    infinities have to be where they are expected. Where the finite terms alone come to more than
    their type holds, the order decides what becomes of them, and nothing is compared.

    Args:
        instruction: that was used.
        got: what the machine computed, of any shape.
        expected: what ``meaning`` says, of the same.
        terms: what was added up, as float64: one more axis in front.
        where: said first in the sentence of a failure.

    Raises:
        AssertionError: they are not.
    """
    if got.dtype.kind != "f":
        wrong = int((got != expected).sum())
        assert wrong == 0, f"{where}: {wrong} of {got.size} sums differ from its meaning"
        return
    limits = np.finfo(got.dtype)
    magnitude = np.where(np.isfinite(terms), np.abs(terms), 0.0).sum(0)
    settled = magnitude < float(limits.max) / 2
    same = (got == expected) | (np.isnan(got) & np.isnan(expected))
    finite = np.isfinite(expected)
    odd = int((settled & ~same & ~(finite & np.isfinite(got))).sum())
    assert odd == 0, f"{where}: {odd} of {got.size} sums are infinite or NaN, or should be"
    smallest = float(limits.tiny if instruction.flushes else limits.smallest_subnormal)
    bound = len(terms) * (float(limits.eps) * magnitude + smallest)
    with np.errstate(invalid="ignore"):
        error = np.abs(got.astype(np.float64) - expected.astype(np.float64))
    wrong = int((settled & ~same & ~(error <= bound)).sum())
    assert wrong == 0, f"{where}: {wrong} of {got.size} sums are further off than rounding explains"
