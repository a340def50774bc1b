"""Activations as TensorIR expressions, of scalars and of vectors alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from chameleon_tvm.quick_tvm import tirx

Expr = Any

_ERF_NUMERATOR = (
    -2.72614225801306e-10,
    2.77068142495902e-08,
    -2.10102402082508e-06,
    -5.69250639462346e-05,
    -7.34990630326855e-04,
    -2.95459980854025e-03,
    -1.60960333262415e-02,
)
_ERF_DENOMINATOR = (
    -1.45660718464996e-05,
    -2.13374055278905e-04,
    -1.68282697438203e-03,
    -7.37332916720468e-03,
    -1.42647390514189e-02,
)
"""Coefficients, highest first, of erf(x) = x N(x^2) / D(x^2) on [-4, 4], good to float32: the
rational fit that Eigen and XLA use. A call of the C library would be made lane by lane."""

_ERF_RANGE = 4.0
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
        return value * number(0.5) * (_erf(value * number(_SQRT_HALF), number) + number(1.0))
    positive = tirx.max(value, number(0.0))
    return positive if name == "relu" else tirx.min(positive, number(6.0))


def _erf(x: Expr, number: Callable[[float], Expr]) -> Expr:
    x = tirx.max(tirx.min(x, number(_ERF_RANGE)), number(-_ERF_RANGE))
    square = x * x

    def polynomial(coefficients: Sequence[float]) -> Expr:
        value = number(coefficients[0])
        for coefficient in coefficients[1:]:
            value = value * square + number(coefficient)
        return value

    return x * polynomial(_ERF_NUMERATOR) / polynomial(_ERF_DENOMINATOR)
