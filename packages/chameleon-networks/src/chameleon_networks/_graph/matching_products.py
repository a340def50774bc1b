"""Matches convolutions and matrix products of a graph, and describes them as operators."""

from __future__ import annotations

import math
from typing import Any

import attrs
import numpy as np
from chameleon_core.plugin_api import FLOAT32, ConfigError
from chameleon_tvm.api import (
    DEPTHWISE,
    GROUPED,
    SPATIAL,
    BatchMatmulSpec,
    ConvolutionSpec,
    DenseSpec,
    OperatorSpec,
    channels_first,
    channels_last,
    is_channels_last,
)
from numpy.typing import NDArray

from chameleon_networks._graph.constants import array_of, constant_of, shared_matrix
from chameleon_networks._graph.relax_utils import operator_name, relax, shape_of, tvm, with_args

CONVOLUTION_RANKS = {f"relax.nn.conv{rank}d": rank for rank in (1, 2, 3)}
"""Names of convolutions in a graph, with the number of spatial axes of each."""
TRANSPOSED_RANKS = {f"{name}_transpose": rank for name, rank in CONVOLUTION_RANKS.items()}
"""Names of transposed convolutions, with the number of spatial axes of each."""


def channels_last_layouts() -> dict[str, list[str]]:
    """The argument of TVM's ``ConvertLayout`` for channels last, by operator name."""
    layouts = {}
    for ranks, filters in ((CONVOLUTION_RANKS, "O{}I"), (TRANSPOSED_RANKS, "I{}O")):
        for name, rank in ranks.items():
            layouts[name] = [channels_last(rank), filters.format(SPATIAL[-rank:])]
    return layouts


@attrs.frozen(kw_only=True, eq=False)
class ConvolutionCall:
    """A call of an ordinary or transposed convolution with constant weights.

    Attributes:
        layout: The layout of the images.
        weights: The filters, of shape (O, I of a group, spatial axes). Those of a transposed
            convolution have the shape (I, O of a group, spatial axes).
    """

    call: Any
    layout: str
    weights: NDArray[Any]

    @property
    def rank(self) -> int:
        """Number of spatial axes."""
        return self.weights.ndim - 2

    @property
    def transposed(self) -> bool:
        """Whether it is a transposed convolution."""
        return str(self.call.op.name) in TRANSPOSED_RANKS

    @property
    def input(self) -> tuple[int, ...]:
        """The shape of the input, as (N, C, spatial axes)."""
        shape = shape_of(self.call.args[0])
        if is_channels_last(self.layout):
            n, *spatial, c = shape
            return (n, c, *spatial)
        return shape

    @property
    def output_channels(self) -> int:
        """Number of output channels."""
        if self.transposed:
            return int(self.weights.shape[1]) * int(self.call.attrs.groups)
        return int(self.weights.shape[0])

    def numbers(self, attribute: str) -> tuple[int, ...]:
        """A convolution's attribute with several numbers, such as ``padding`` or ``strides``."""
        return tuple(int(value) for value in getattr(self.call.attrs, attribute))

    @property
    def channel_axis(self) -> int:
        """The number of the channel axis, in the convolution's input and output."""
        return self.rank + 1 if is_channels_last(self.layout) else 1

    def scaled(self, scale: NDArray[Any]) -> Any:
        """Copy the call, with the weights of each output channel multiplied by a factor.

        Args:
            scale: The factors, of shape (O,).
        """
        factors = scale
        if self.transposed:
            groups = int(self.call.attrs.groups)
            inputs = len(self.weights) // groups
            factors = np.repeat(scale.reshape(groups, -1), inputs, axis=0)
        axes = (1,) * (self.weights.ndim - factors.ndim)
        weights = self.weights * factors.reshape(*factors.shape, *axes)
        weights = weights.astype(self.weights.dtype)
        moved = np.moveaxis(weights, 1, -1) if is_channels_last(self.layout) else weights
        return with_args(self.call, [self.call.args[0], constant_of(moved)])


def convolution_of(value: Any, numbers: NDArray[Any] | None = None) -> ConvolutionCall | None:
    """The convolution with constant weights that an expression calls, or None."""
    name = operator_name(value)
    if name not in CONVOLUTION_RANKS and name not in TRANSPOSED_RANKS:
        return None
    layout = layout_of(value)
    data, weights = value.args
    if numbers is None and isinstance(weights, tvm.ir.GenericConst):
        numbers = array_of(weights)
    if numbers is None or str(data.ty.dtype) != "float32":
        return None
    logical = np.moveaxis(numbers, -1, 1) if is_channels_last(layout) else numbers
    return ConvolutionCall(call=value, layout=layout, weights=logical)


def layout_of(call: Any) -> str:
    """The layout (order of axes) of the images that a convolution reads and writes."""
    name = str(call.op.name)
    rank = CONVOLUTION_RANKS.get(name) or TRANSPOSED_RANKS[name]
    layout, filters = str(call.attrs.data_layout), str(call.attrs.kernel_layout)
    (outside, inside), axes = "IO" if name in TRANSPOSED_RANKS else "OI", SPATIAL[-rank:]
    known = {
        channels_first(rank): f"{outside}{inside}{axes}",
        channels_last(rank): f"{outside}{axes}{inside}",
    }
    if known.get(layout) != filters:
        raise ConfigError(
            f"a convolution has the layouts {layout} and {filters}",
            hint="Import the network as its framework writes it, in NCHW and OIHW.",
        )
    return layout


def convolution_operator(conv: ConvolutionCall) -> tuple[ConvolutionSpec, NDArray[Any]]:
    """The operator to tune for an ordinary convolution, and its weights."""
    groups, shape, filters = int(conv.call.attrs.groups), conv.input, conv.weights
    common: dict[str, Any] = {
        "input": shape,
        "kernel": filters.shape[2:],
        "stride": conv.numbers("strides"),
        "padding": conv.numbers("padding"),
        "dilation": conv.numbers("dilation"),
        "layout": conv.layout,
    }
    if groups == shape[1] and groups > 1:
        depthwise = DEPTHWISE[conv.rank]
        return depthwise(**common, multiplier=filters.shape[0] // groups), filters
    grouped = GROUPED[conv.rank]
    return grouped(**common, filters=filters.shape[0], groups=groups), filters


_MATRIX = 2


@attrs.frozen(kw_only=True, eq=False)
class Product:
    """A convolution or matrix product of a graph.

    Attributes:
        spec: The operator in float32.
        inputs: The expressions that the operator reads.
        weights: The weights, output channels first. None for a product of two tensors.
    """

    spec: OperatorSpec
    inputs: tuple[Any, ...]
    weights: NDArray[Any] | None = None


def product_of(value: Any, numbers: NDArray[Any] | None = None) -> Product | None:
    """The convolution or matrix product that an expression calls, or None for others."""
    conv = convolution_of(value, numbers)
    if conv is not None and not conv.transposed:
        spec, weights = convolution_operator(conv)
        return Product(spec=spec, inputs=(value.args[0],), weights=weights)
    if operator_name(value) != "relax.matmul":
        return None
    left, right = value.args
    a, b = shape_of(left), shape_of(right)
    if str(left.ty.dtype) != FLOAT32 or len(a) < _MATRIX or len(b) < _MATRIX or 0 in (*a, *b):
        return None
    if numbers is None and isinstance(right, tvm.ir.GenericConst):
        numbers = array_of(right)
    matrix = None if numbers is None else shared_matrix(numbers)
    sizes: dict[str, Any]
    if matrix is not None:
        sizes = {"input": (math.prod(a[:-1]), a[-1]), "units": b[-1]}
        return Product(spec=DenseSpec(**sizes), inputs=(left,), weights=matrix.T)
    if a[:-2] != b[:-2] or not isinstance(left, relax.Var) or not isinstance(right, relax.Var):
        return None  # no template has broadcast or constant operands, which are rare
    batch = math.prod(a[:-2])
    sizes = {"a": (batch, *a[-2:]), "b": (batch, *b[-2:])}
    return Product(spec=BatchMatmulSpec(**sizes), inputs=(left, right))
