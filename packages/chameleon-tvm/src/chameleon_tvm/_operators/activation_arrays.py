"""Activation functions of NumPy arrays."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

SELU_SLOPE, SELU_SCALE = 1.6732632423543772, 1.0507009873554805
"""Constants of self-normalizing networks (Klambauer et al. 2017, equation 2 and theorem 1)."""

Exact = NDArray[np.float64]


def _sigmoid(x: Exact) -> Exact:
    # The hyperbolic tangent never overflows, as an exponential would.
    return 0.5 + 0.5 * np.tanh(0.5 * x)


ARRAYS: dict[str, Callable[[Exact], Exact]] = {
    "none": lambda x: x,
    "relu": lambda x: np.maximum(x, 0.0),
    "relu6": lambda x: np.clip(x, 0.0, 6.0),
    "gelu": lambda x: 0.5 * x * (1.0 + np.vectorize(math.erf)(x / math.sqrt(2.0))),
    "gelu_tanh": lambda x: (
        0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))
    ),
    "sigmoid": _sigmoid,
    "silu": lambda x: x * _sigmoid(x),
    "tanh": np.tanh,
    "hardsigmoid": lambda x: np.clip(x + 3.0, 0.0, 6.0) / 6.0,
    "hardswish": lambda x: x * np.clip(x + 3.0, 0.0, 6.0) / 6.0,
    "gelu_sigmoid": lambda x: x * _sigmoid(1.702 * x),
    "elu": lambda x: np.maximum(x, 0.0) + np.expm1(np.minimum(x, 0.0)),
    "selu": lambda x: SELU_SCALE * (np.maximum(x, 0.0) + SELU_SLOPE * np.expm1(np.minimum(x, 0.0))),
    "mish": lambda x: x * np.tanh(np.logaddexp(0.0, x)),
    "relu_squared": lambda x: np.square(np.maximum(x, 0.0)),
}
"""The activations of float64 arrays by name, except for those with a slope."""
