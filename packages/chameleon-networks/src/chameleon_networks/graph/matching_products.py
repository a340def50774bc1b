"""Describes the convolutions and matrix products of a graph as float32 operators to tune."""

from __future__ import annotations

import math
from typing import Any

import attrs
from chameleon_tvm.operators.specs import BatchMatmulSpec, DenseSpec, OperatorSpec
from chameleon_tvm.types import FLOAT32
from numpy.typing import NDArray

from chameleon_networks.graph.constants import array_of, single_matrix
from chameleon_networks.graph.matching_convolutions import convolution_of, convolution_operator
from chameleon_networks.graph.moves import shape_of
from chameleon_networks.graph.relaxed import relax, tvm
from chameleon_networks.graph.steps import is_call

_MATRIX = 2


@attrs.frozen(kw_only=True, eq=False)
class Product:
    """A convolution or a matrix product of a graph.

    Attributes:
        spec: The operator in float32.
        inputs: The expressions that the operator reads.
        weights: The weights, output channels first. None for a product of two tensors.
    """

    spec: OperatorSpec
    inputs: tuple[Any, ...]
    weights: NDArray[Any] | None = None


def product_of(value: Any, numbers: NDArray[Any] | None = None) -> Product | None:
    """The convolution or matrix product that an expression calls, or None for others.

    Args:
        value: Any expression.
        numbers: Weights that replace the weights in the call. The call's weights then need not be
            constant.
    """
    conv = convolution_of(value, numbers)
    if conv is not None and not conv.transposed:
        spec, weights = convolution_operator(conv)
        return Product(spec=spec, inputs=(value.args[0],), weights=weights)
    if not is_call(value, "relax.matmul"):
        return None
    left, right = value.args
    a, b = shape_of(left), shape_of(right)
    if str(left.ty.dtype) != FLOAT32 or len(a) < _MATRIX or len(b) < _MATRIX or 0 in (*a, *b):
        return None
    if numbers is None and isinstance(right, tvm.ir.GenericConst):
        numbers = array_of(right)
    matrix = None if numbers is None else single_matrix(numbers)
    sizes: dict[str, Any]
    if matrix is not None:
        sizes = {"input": (math.prod(a[:-1]), a[-1]), "units": b[-1]}
        return Product(spec=DenseSpec(**sizes), inputs=(left,), weights=matrix.T)
    if a[:-2] != b[:-2] or not isinstance(left, relax.Var) or not isinstance(right, relax.Var):
        return None  # broadcast, or a constant batch: no template of ours, and rare
    batch = math.prod(a[:-2])
    sizes = {"a": (batch, *a[-2:]), "b": (batch, *b[-2:])}
    return Product(spec=BatchMatmulSpec(**sizes), inputs=(left, right))
