"""Elementary functions as TensorIR expressions of float32 scalars or vectors.

A call of the C library would compute one lane at a time, which takes twenty times as long.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from chameleon_tvm._emit import Expr, constant_like, integer_like, vector_dtype
from chameleon_tvm._late_tvm import tirx

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
"""Coefficients, highest first, of erf(x) = x N(x^2) / D(x^2) on [-4, 4]. Eigen and XLA use this
rational fit, which is accurate to float32."""
_ERF_RANGE = 4.0

_TANH_NUMERATOR = (
    -2.76076847742355e-16,
    2.00018790482477e-13,
    -8.60467152213735e-11,
    5.12229709037114e-08,
    1.48572235717979e-05,
    6.37261928875436e-04,
    4.89352455891786e-03,
)
_TANH_DENOMINATOR = (
    1.19825839466702e-06,
    1.18534705686654e-04,
    2.26843463243900e-03,
    4.89352518554385e-03,
)
"""Coefficients, highest first, of tanh(x) = x N(x^2) / D(x^2) on [-9, 9], as in Eigen."""
_TANH_RANGE = 9.0

_EXP_COEFFICIENTS = (
    1.9875691500e-4,
    1.3981999507e-3,
    8.3334519073e-3,
    4.1665795894e-2,
    1.6666665459e-1,
    5.0000001201e-1,
)
"""The Cephes library's fit of (e^r - 1 - r) / r^2 for |r| <= log(2) / 2, highest power first."""
_LOG2_E = 1.44269504088896341
_LOG_2_HIGH, _LOG_2_LOW = 0.693359375, -2.12194440e-4
"""log(2) as the sum of two numbers: one with few bits, so that its multiples are exact, and a small
one."""
_MIN_ARGUMENT, _MAX_POWER = -88.0, 127.0
"""At the least x, the exponent field of e^x is that of zero. The largest power of two is float32's;
the rest of a larger x makes the polynomial overflow."""
_EXPONENT_BIAS, _FRACTION_BITS = 127, 23


def polynomial(coefficients: Sequence[float], x: Expr) -> Expr:
    """The value of a polynomial at ``x``, by Horner's rule."""
    value = constant_like(coefficients[0], x)
    for coefficient in coefficients[1:]:
        value = value * x + constant_like(coefficient, x)
    return value


def exp(x: Expr) -> Expr:
    """e^x as a TensorIR expression, accurate to two units in the last place (six for x above 88.3).

    The result is 0 below the least normal number. NaN stays NaN, because the bounds are the first
    operands of ``max`` and ``min``.
    """
    return _from_power(x, lambda scale, rest: scale * (rest + constant_like(1.0, x)))


def expm1(x: Expr) -> Expr:
    """e^x - 1 for x of at most 0, without the cancellation of a small x."""
    return _from_power(x, lambda scale, rest: scale * rest + (scale - constant_like(1.0, x)))


def exp2(x: Expr) -> Expr:
    """2^x, which is exact for integers. The result is 0 below the least normal number."""

    def from_clamped(clamped: Expr) -> Expr:
        power = tirx.min(constant_like(_MAX_POWER, x), tirx.floor(clamped + constant_like(0.5, x)))
        return let(power, lambda power: from_power(clamped, power))

    def from_power(clamped: Expr, power: Expr) -> Expr:
        remainder = (clamped - power) * constant_like(math.log(2.0), x)
        return _scaled(power, remainder, lambda scale, rest: scale * (rest + constant_like(1.0, x)))

    # The polynomial is just below 2 at the least number whose result is infinite.
    overflows = x >= constant_like(_MAX_POWER + 1.0, x)
    value = let(tirx.max(constant_like(-_MAX_POWER, x), x), from_clamped)
    return tirx.Select(overflows, constant_like(math.inf, x), value)


def _from_power(x: Expr, result: Callable[[Expr, Expr], Expr]) -> Expr:
    """A function of a power of two and of e^r - 1, if e^x is the power times e^r."""

    def from_clamped(clamped: Expr) -> Expr:
        power = tirx.floor(clamped * constant_like(_LOG2_E, x) + constant_like(0.5, x))
        power = tirx.min(constant_like(_MAX_POWER, x), power)
        return let(power, lambda power: from_power(clamped, power))

    def from_power(clamped: Expr, power: Expr) -> Expr:
        remainder = (
            clamped - power * constant_like(_LOG_2_HIGH, x) - power * constant_like(_LOG_2_LOW, x)
        )
        return _scaled(power, remainder, result)

    return let(tirx.max(constant_like(_MIN_ARGUMENT, x), x), from_clamped)


def _scaled(power: Expr, remainder: Expr, result: Callable[[Expr, Expr], Expr]) -> Expr:
    """A function of 2^power and of e^remainder - 1."""
    exponent = tirx.Cast(vector_dtype("int32", power), power)
    shifted = exponent + integer_like(_EXPONENT_BIAS, power) << integer_like(_FRACTION_BITS, power)
    scale = tirx.reinterpret(vector_dtype("float32", power), shifted)

    def from_remainder(remainder: Expr) -> Expr:
        return polynomial(_EXP_COEFFICIENTS, remainder) * remainder * remainder + remainder

    return let(remainder, lambda remainder: result(scale, from_remainder(remainder)))


def sigmoid(x: Expr) -> Expr:
    """The logistic function 1 / (1 + e^-x)."""
    unit = constant_like(1.0, x)
    return unit / (unit + exp(constant_like(0.0, x) - x))


def tanh(x: Expr) -> Expr:
    """The hyperbolic tangent."""
    return _odd_quotient(x, _TANH_RANGE, _TANH_NUMERATOR, _TANH_DENOMINATOR)


def erf(x: Expr) -> Expr:
    """The error function."""
    return _odd_quotient(x, _ERF_RANGE, _ERF_NUMERATOR, _ERF_DENOMINATOR)


def _odd_quotient(
    x: Expr, limit: float, numerator: Sequence[float], denominator: Sequence[float]
) -> Expr:
    """``x * N(x^2) / D(x^2)`` with polynomials N and D; beyond ``limit``, its value there."""

    def from_clamped(clamped: Expr) -> Expr:
        return let(
            clamped * clamped,
            lambda square: (
                clamped * polynomial(numerator, square) / polynomial(denominator, square)
            ),
        )

    return let(
        tirx.max(constant_like(-limit, x), tirx.min(constant_like(limit, x), x)), from_clamped
    )


FUNCTIONS = {"exp": exp, "exp2": exp2, "sigmoid": sigmoid, "tanh": tanh, "erf": erf}
"""The functions by the names that TensorIR's intrinsics have after ``tirx.``."""


def let(value: Expr, body: Callable[[Expr], Expr]) -> Expr:
    """A TensorIR ``Let``: computes a value once, although ``body`` may read it several times."""
    variable = tirx.Var("t", value.ty)
    return tirx.Let(variable, value, body(variable))
