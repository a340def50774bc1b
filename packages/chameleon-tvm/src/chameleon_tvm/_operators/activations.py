"""Activation functions, for TensorIR expressions (scalars or vectors) and for NumPy arrays."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from chameleon_tvm._emit import Expr, constant_like
from chameleon_tvm._late_tvm import tirx
from chameleon_tvm._operators.activation_arrays import ARRAYS, SELU_SCALE, SELU_SLOPE, Exact
from chameleon_tvm._operators.elementary import erf, exp, expm1, sigmoid, tanh
from chameleon_tvm._operators.spec import slope_of

_SQRT_HALF = math.sqrt(0.5)
_CUBIC = 0.044715
"""A coefficient of Hendrycks and Gimpel's approximation of GELU (arXiv 1606.08415, section 2)."""


def _clip(x: Expr, low: float, high: float) -> Expr:
    """``x`` between two bounds, which are first operands so that NaN stays NaN."""
    return tirx.min(constant_like(high, x), tirx.max(constant_like(low, x), x))


def _relu(x: Expr) -> Expr:
    return tirx.max(constant_like(0.0, x), x)


def _gelu(x: Expr) -> Expr:
    return (
        x * constant_like(0.5, x) * (erf(x * constant_like(_SQRT_HALF, x)) + constant_like(1.0, x))
    )


def _gelu_tanh(x: Expr) -> Expr:
    inner = (
        x
        * (constant_like(1.0, x) + constant_like(_CUBIC, x) * x * x)
        * constant_like(math.sqrt(2.0 / math.pi), x)
    )
    return x * constant_like(0.5, x) * (tanh(inner) + constant_like(1.0, x))


def _hardsigmoid(x: Expr) -> Expr:
    return _clip(x + constant_like(3.0, x), 0.0, 6.0) * constant_like(1.0 / 6.0, x)


def _expm1_below_zero(x: Expr) -> Expr:
    """``exp(x) - 1`` for x below zero, else zero."""
    return expm1(tirx.min(constant_like(0.0, x), x))


def _mish(x: Expr) -> Expr:
    """``x * tanh(log(1 + exp(x)))`` (Misra 2019, equation 1), computed without a logarithm."""
    power = exp(tirx.min(constant_like(_MISH_RANGE, x), x))
    twice = power * (power + constant_like(2.0, x))
    return x * (twice / (twice + constant_like(2.0, x)))


_MISH_RANGE = 20.0
"""For larger x, ``tanh(log(1 + exp(x)))`` is one in float32."""


def _leaky_relu(x: Expr, slope: float) -> Expr:
    return _relu(x) + tirx.min(constant_like(0.0, x), x) * constant_like(slope, x)


_EXPRESSIONS: dict[str, Callable[[Expr], Expr]] = {
    "none": lambda x: x,
    "relu": _relu,
    "relu6": lambda x: _clip(x, 0.0, 6.0),
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "sigmoid": sigmoid,
    "silu": lambda x: x * sigmoid(x),
    "tanh": tanh,
    "hardsigmoid": _hardsigmoid,
    "hardswish": lambda x: x * _hardsigmoid(x),
    "gelu_sigmoid": lambda x: x * sigmoid(x * constant_like(1.702, x)),
    "elu": lambda x: _relu(x) + _expm1_below_zero(x),
    "selu": lambda x: (
        (_relu(x) + _expm1_below_zero(x) * constant_like(SELU_SLOPE, x))
        * constant_like(SELU_SCALE, x)
    ),
    "mish": _mish,
    "relu_squared": lambda x: _relu(x) * _relu(x),
}


def activate(value: Expr, name: str) -> Expr:
    """Apply an activation to a float32 expression of TensorIR.

    Args:
        name: One of ``specs.ACTIVATIONS``, or a name that ``spec.leaky_relu`` returned.
    """
    slope = slope_of(name)
    return _EXPRESSIONS[name](value) if slope is None else _leaky_relu(value, slope)


def activated(x: Exact, name: str) -> Exact:
    """Apply an activation to a NumPy array, for the reference of an operator.

    Args:
        x: Array of any shape.
        name: One of ``specs.ACTIVATIONS``, or a name that ``spec.leaky_relu`` returned.
    """
    slope = slope_of(name)
    return ARRAYS[name](x) if slope is None else np.where(x < 0.0, slope * x, x)
