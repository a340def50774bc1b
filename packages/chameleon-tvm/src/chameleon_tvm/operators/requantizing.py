"""What becomes of scaled sums of an int8 operator, as TensorIR of scalars and of vectors alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chameleon_tvm.operators.activations import activate
from chameleon_tvm.operators.elementary import lanes_of, number, typed
from chameleon_tvm.operators.spec import FusedSpec
from chameleon_tvm.quick_tvm import tirx

Expr = Any

LARGEST = 255.0


def finished(real: Expr, residual: Expr | None, spec: FusedSpec, numbers: Sequence[Expr]) -> Expr:
    """The output of scaled sums.

    Args:
        real: in float32, a scalar or a vector.
        residual: of the output's type, with as many lanes; None where there is none.
        spec: the operator, an int8 one.
        numbers: those of ``Quantisation``, scalars of float32.
    """
    _, scale, zero, multiplier, out_zero = (_splat(one, lanes_of(real)) for one in numbers)
    quantized = spec.output_dtype == "uint8"
    if residual is not None and quantized:
        steps = tirx.Cast(typed("float32", real), tirx.Cast(typed("int32", real), residual))
        real = real + (steps - zero) * scale
    elif residual is not None:
        real = real + residual
    real = activate(real, spec.activation)
    if not quantized:
        return real
    # Bounds are whole numbers, so that rounding does not pass them; what a conversion to int32
    # could not hold is gone by then.
    low, high = number(0.0, real) - out_zero, number(LARGEST, real) - out_zero
    inside = tirx.min(tirx.max(real * multiplier, low), high)
    steps = tirx.Cast(typed("int32", real), tirx.nearbyint(inside) + out_zero)
    return tirx.Cast(typed("uint8", real), steps)


def _splat(scalar: Expr, lanes: int) -> Expr:
    return scalar if lanes == 1 else tirx.Broadcast(scalar, lanes)
