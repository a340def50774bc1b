"""Activations as TensorIR expressions, of scalars and of vectors alike."""

from __future__ import annotations

from typing import Any

from chameleon_tvm.operators.elementary import erf
from chameleon_tvm.quick_tvm import tirx

Expr = Any

_SQRT_HALF = 0.7071067811865476


def activate(value: Expr, name: str, lanes: int = 1) -> Expr:
    """An activation of a float32 expression.

    Args:
        value: a scalar or a vector.
        name: one of ``specs.ACTIVATIONS``.
        lanes: how many elements the vector has.
    """

    def number(constant: float) -> Expr:
        scalar = tirx.FloatImm("float32", constant)
        return scalar if lanes == 1 else tirx.Broadcast(scalar, lanes)

    if name == "none":
        return value
    if name == "gelu":
        return value * number(0.5) * (erf(value * number(_SQRT_HALF)) + number(1.0))
    positive = tirx.max(value, number(0.0))
    return positive if name == "relu" else tirx.min(positive, number(6.0))
