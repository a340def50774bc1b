"""An operator of one's own: matrix product, bias and GELU in one function.

Named by ``custom_operator.yaml``. ``dense_gelu`` returns the TensorIR function to tune;
``expected`` computes the same with NumPy, and checks every candidate.
"""

from __future__ import annotations

import math

import numpy as np

ROWS, FEATURES, UNITS = 128, 512, 512


def dense_gelu():  # noqa: ANN201 - a tvm.tirx.PrimFunc
    """GELU(data x weights + bias), with the tanh form of GELU."""
    from tvm import te  # noqa: PLC0415 - `expected` needs no TVM

    data = te.placeholder((ROWS, FEATURES), "float32", name="data")
    weights = te.placeholder((FEATURES, UNITS), "float32", name="weights")
    bias = te.placeholder((UNITS,), "float32", name="bias")
    k = te.reduce_axis((0, FEATURES), name="k")
    product = te.compute(
        (ROWS, UNITS), lambda m, n: te.sum(data[m, k] * weights[k, n], axis=k), name="product"
    )
    biased = te.compute((ROWS, UNITS), lambda m, n: product[m, n] + bias[n], name="biased")
    scale = math.sqrt(2 / math.pi)

    def gelu(m, n):  # noqa: ANN001, ANN202 - TVM expressions
        x = biased[m, n]
        return 0.5 * x * (1 + te.tanh(scale * (x + 0.044715 * x * x * x)))

    return te.create_prim_func([data, weights, bias, te.compute((ROWS, UNITS), gelu, name="out")])


def expected(data: np.ndarray, weights: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """The same in float64."""
    x = data @ weights + bias
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
