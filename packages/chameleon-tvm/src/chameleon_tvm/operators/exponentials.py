"""Powers of e as TensorIR expressions, of scalars and of vectors alike, for weights of softmax."""

from __future__ import annotations

from typing import Any

from chameleon_tvm.late_tvm import tirx

Expr = Any

_LOG2_E = 1.4426950408889634
_LEAST_POWER = -88.03
"""Just over -127 ln 2: from there on, e^x is 0 in float32 without subnormal numbers."""
_EXPONENT_BIAS = 127
_MANTISSA_BITS = 23
_POWER_OF_TWO = (
    1.326472731307149e-03,
    9.671512991189957e-03,
    5.550733581185341e-02,
    2.402224242687225e-01,
    6.931470036506653e-01,
    1.0,
)
"""Coefficients, highest first, of 2^x on [-1/2, 1/2] to 1e-7, fitted by Lawson's iteration for the
largest relative error, with 2^0 = 1 exactly."""


def exponential(value: Expr, lanes: int = 1) -> Expr:
    """e^x of float32 x <= 0, to about 1e-6 of the result; 0 of minus infinity, and 1 of 0 exactly.

    Args:
        value: x, a scalar or a vector.
        lanes: how many elements the vector has.
    """

    def every(scalar: Expr) -> Expr:
        return scalar if lanes == 1 else tirx.Broadcast(scalar, lanes)

    def number(constant: float) -> Expr:
        return every(tirx.FloatImm("float32", constant))

    def integer(constant: int) -> Expr:
        return every(tirx.IntImm("int32", constant))

    def typed(name: str) -> str:
        return name if lanes == 1 else f"{name}x{lanes}"

    exponent = tirx.max(value, number(_LEAST_POWER)) * number(_LOG2_E)
    # Truncation rounds numbers below zero up.
    whole = tirx.Cast(typed("int32"), exponent - number(0.5))
    fraction = exponent - tirx.Cast(typed("float32"), whole)
    power = number(_POWER_OF_TWO[0])
    for coefficient in _POWER_OF_TWO[1:]:
        power = power * fraction + number(coefficient)
    bits = tirx.shift_left(whole + integer(_EXPONENT_BIAS), integer(_MANTISSA_BITS))
    return power * tirx.reinterpret(typed("float32"), bits)
