"""bfloat16 as NumPy and TensorIR have it: the upper half of a float32, in 16-bit integers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from chameleon_tvm.arrays import contiguous
from chameleon_tvm.instructions.base import Expr
from chameleon_tvm.late_tvm import tirx


def widened(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """The values of bfloat16 numbers, exactly.

    Args:
        bits: of any shape.
    """
    return np.left_shift(bits.astype(np.uint32), 16).view(np.float32)


def rounded(values: NDArray[Any]) -> NDArray[np.uint16]:
    """The bfloat16 numbers nearest to float32 ones, ties to even; NaN stays NaN.

    Args:
        values: of any shape.
    """
    single = contiguous(values.astype(np.float32, copy=False))
    bits = single.view(np.uint32)
    nearest = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(single), 0x7FC0, nearest).astype(np.uint16)


def widening(bits: Expr, lanes: int) -> Expr:
    """``widened`` as an expression of TensorIR.

    Args:
        bits: of type uint16, one number or a vector of ``lanes``.
        lanes: of it.
    """
    suffix = "" if lanes == 1 else f"x{lanes}"
    sixteen = tirx.IntImm("uint32", 16)
    shift = sixteen if lanes == 1 else tirx.Broadcast(sixteen, lanes)
    return tirx.reinterpret(f"float32{suffix}", tirx.Cast(f"uint32{suffix}", bits) << shift)


def rounding(values: Expr, lanes: int) -> Expr:
    """``rounded`` as an expression of TensorIR.

    Args:
        values: of float32, one number or a vector of ``lanes``.
        lanes: of it.
    """
    suffix = "" if lanes == 1 else f"x{lanes}"

    def number(value: int) -> Expr:
        scalar = tirx.IntImm("uint32", value)
        return scalar if lanes == 1 else tirx.Broadcast(scalar, lanes)

    bits = tirx.reinterpret(f"uint32{suffix}", values)
    odd = (bits >> number(16)) & number(1)
    nearest = (bits + number(0x7FFF) + odd) >> number(16)
    # A comparison with itself is one that TVM decides.
    is_nan = (bits & number(0x7FFFFFFF)) > number(0x7F800000)
    return tirx.Cast(f"uint16{suffix}", tirx.Select(is_nan, number(0x7FC0), nearest))
