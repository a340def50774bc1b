"""Activations as TensorIR expressions, of scalars and of vectors alike."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from chameleon_tvm.operators.elementary import erf, number, sigmoid, tanh
from chameleon_tvm.quick_tvm import tirx

Expr = Any

_SQRT_HALF = math.sqrt(0.5)
_CUBIC = 0.044715
"""Of Hendrycks and Gimpel's approximation of GELU (arXiv 1606.08415, section 2)."""


def _clipped(x: Expr, low: float, high: float) -> Expr:
    return tirx.min(tirx.max(x, number(low, x)), number(high, x))


def _gelu(x: Expr) -> Expr:
    return x * number(0.5, x) * (erf(x * number(_SQRT_HALF, x)) + number(1.0, x))


def _gelu_tanh(x: Expr) -> Expr:
    inner = x * (number(1.0, x) + number(_CUBIC, x) * x * x) * number(math.sqrt(2.0 / math.pi), x)
    return x * number(0.5, x) * (tanh(inner) + number(1.0, x))


def _hardsigmoid(x: Expr) -> Expr:
    return _clipped(x + number(3.0, x), 0.0, 6.0) * number(1.0 / 6.0, x)


_EXPRESSIONS: dict[str, Callable[[Expr], Expr]] = {
    "none": lambda x: x,
    "relu": lambda x: tirx.max(x, number(0.0, x)),
    "relu6": lambda x: _clipped(x, 0.0, 6.0),
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "sigmoid": sigmoid,
    "silu": lambda x: x * sigmoid(x),
    "tanh": tanh,
    "hardsigmoid": _hardsigmoid,
    "hardswish": lambda x: x * _hardsigmoid(x),
}


def activate(value: Expr, name: str) -> Expr:
    """An activation of a float32 expression.

    Args:
        value: a scalar or a vector.
        name: one of ``specs.ACTIVATIONS``.
    """
    return _EXPRESSIONS[name](value)
