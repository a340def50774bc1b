"""Floating-point numbers of two bytes: how buffers hold them, and how they become float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from chameleon_tvm.instructions import bfloat16
from chameleon_tvm.instructions.base import BFLOAT16_BITS, Expr
from chameleon_tvm.late_tvm import tirx


@attrs.frozen(kw_only=True)
class Half:
    """One such type.

    Attributes:
        name: as operators and pipelines call it.
        held: element type of buffers.
        widened: arrays of ``held`` as float32, exactly.
        rounded: arrays of float32 as the nearest numbers of ``held``, ties to even; infinite
            beyond the largest one, and NaN stays NaN.
        widening: the former as an expression, of one number or a vector, and its lanes.
        rounding: the latter, likewise.
    """

    name: str
    held: str
    widened: Callable[[NDArray[Any]], NDArray[np.float32]]
    rounded: Callable[[NDArray[Any]], NDArray[Any]]
    widening: Callable[[Expr, int], Expr]
    rounding: Callable[[Expr, int], Expr]


def _rounded(values: NDArray[Any]) -> NDArray[np.float16]:
    with np.errstate(over="ignore"):
        return values.astype(np.float16)


def _typed(dtype: str, lanes: int) -> str:
    return dtype if lanes == 1 else f"{dtype}x{lanes}"


BFLOAT16 = Half(
    name="bfloat16",
    held=BFLOAT16_BITS,
    widened=bfloat16.widened,
    rounded=bfloat16.rounded,
    widening=bfloat16.widening,
    rounding=bfloat16.rounding,
)
FLOAT16 = Half(
    name="float16",
    held="float16",
    widened=lambda values: values.astype(np.float32),
    rounded=_rounded,
    # Conversions of a CPU's own (F16C, NEON), denormals included.
    widening=lambda value, lanes: tirx.Cast(_typed("float32", lanes), value),
    rounding=lambda value, lanes: tirx.Cast(_typed("float16", lanes), value),
)
_BY_NAME = {one.name: one for one in (BFLOAT16, FLOAT16)}
_BY_ELEMENT = {one.held: one for one in (BFLOAT16, FLOAT16)}


def half_of(dtype: str) -> Half | None:
    """The type of a name; None for other types."""
    return _BY_NAME.get(dtype)


def half_in(element: str) -> Half | None:
    """The type that buffers of an element type hold; None for other buffers."""
    return _BY_ELEMENT.get(element)
