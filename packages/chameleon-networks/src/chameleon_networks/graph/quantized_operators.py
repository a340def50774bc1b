"""Chains whose products are of 8-bit integers: what is dequantized, multiplied and quantized again.

A convolution or matrix product of ``dequantize(data)`` and ``dequantize(weights)`` is exact in
integers (Jacob et al., arXiv 1712.05877, section 2.2). What follows is in real numbers until it is
quantized, in the same kernel where nothing else reads it: that is what ONNX's ``QLinearConv``
computes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from chameleon_core.errors import ConfigError
from chameleon_tvm.operators.quantized import Quantization
from chameleon_tvm.operators.spec import slope_of
from chameleon_tvm.operators.specs import DenseSpec, FusedSpec
from numpy.typing import NDArray

from chameleon_networks.graph.constants import array_of, single_matrix
from chameleon_networks.graph.fused_operators import FusedOperator
from chameleon_networks.graph.matching_convolutions import (
    CONVOLUTION_RANKS,
    ConvolutionCall,
    layout_of,
    logical_weights,
    made_of,
)
from chameleon_networks.graph.moves import shape_of
from chameleon_networks.graph.quantized_steps import DEQUANTIZE, QUANTIZE, Step, is_call, step_of
from chameleon_networks.graph.relaxed import relax, tvm

DATA, WEIGHTS = "uint8", "int8"
"""Types of what int8 kernels multiply."""
_MATRIX = 2
_LIMIT = 2**31 - 1
_LARGEST_PRODUCT = 255 * 128
_HOMOGENEOUS = frozenset({"none", "relu"})
"""Activations that a positive factor passes through, as it does through any leaky ReLU."""


@attrs.frozen(kw_only=True, eq=False)
class Operands:
    """What an int8 kernel multiplies.

    Attributes:
        spec: the operator as it is in float32.
        data: the step of its data.
        weights: logical ones, int8.
        scales: float32, of each output channel's weights.
    """

    spec: FusedSpec
    data: Step
    weights: NDArray[np.int8]
    scales: NDArray[np.float32]

    @property
    def made(self) -> tuple[FusedSpec, tuple[Any, ...], tuple[NDArray[Any], ...]]:
        """The operator, its inputs and its constants, as those of one in float32."""
        return self.spec, (self.data.source,), (self.weights,)

    @property
    def units(self) -> NDArray[np.float32]:
        """What a sum of one stands for, in each output channel."""
        return self.data.scale * self.scales

    def bias(self, real: NDArray[Any]) -> NDArray[np.int32] | None:
        """A bias in units of the sums; None where sums with it may pass 32 bits.

        Args:
            real: shape (output channels,).
        """
        terms = self.weights[0].size
        rounded = np.rint(real.astype(np.float64) / self.units.astype(np.float64))
        if not (np.abs(rounded) <= _LIMIT - terms * _LARGEST_PRODUCT).all():
            return None
        return rounded.astype(np.int32)


def operands_of(value: Any, values: Mapping[Any, Any]) -> Operands | None:
    """What a convolution or matrix product multiplies; None where that is not all in 8 bits.

    Args:
        value: any expression.
        values: of all variables.
    """
    product = is_call(value, "relax.matmul")
    if not product and not any(is_call(value, name) for name in CONVOLUTION_RANKS):
        return None
    data, weights = (step_of(values.get(one), DEQUANTIZE) for one in value.args)
    if data is None or weights is None or not _are_operands(data, weights):
        return None
    numbers = _symmetric(weights)
    if numbers is None:
        return None
    return (_product if product else _convolution)(value, data, weights, numbers)


def _are_operands(data: Step, weights: Step) -> bool:
    """Whether data are computed in uint8 with one scale, and weights are constant."""
    return (
        is_data(data)
        and isinstance(weights.source, tvm.ir.GenericConst)
        and bool(data.scale[0] > 0)
        and bool((weights.scale > 0).all())
    )


def is_data(step: Step) -> bool:
    """Whether a tensor is in uint8 with one scale.

    Args:
        step: what dequantizes it.
    """
    return step.whole and step.dtype == DATA and isinstance(step.source, relax.Var)


def _convolution(
    call: Any, data: Step, weights: Step, numbers: NDArray[np.int8]
) -> Operands | None:
    if not weights.whole and weights.axis != 0:
        return None
    layout = layout_of(call)
    found = ConvolutionCall(call=call, layout=layout, weights=logical_weights(numbers, layout))
    spec, logical = made_of(found)
    return _operands(spec, data, logical, weights)


def _product(call: Any, data: Step, weights: Step, numbers: NDArray[np.int8]) -> Operands | None:
    rows = shape_of(call.args[0])
    if len(rows) < _MATRIX or numbers.ndim < _MATRIX:
        return None
    matrix = single_matrix(numbers)
    if matrix is None:
        return None
    if not weights.whole and weights.axis != numbers.ndim - 1:
        return None
    sizes: dict[str, Any] = {"input": (math.prod(rows[:-1]), rows[-1]), "units": matrix.shape[1]}
    return _operands(DenseSpec(**sizes), data, np.ascontiguousarray(matrix.T), weights)


def _operands(
    spec: FusedSpec, data: Step, logical: NDArray[np.int8], weights: Step
) -> Operands | None:
    try:
        attrs.evolve(spec, dtype=WEIGHTS)
    except ConfigError:
        return None  # its sums may pass 32 bits
    return Operands(
        spec=spec,
        data=data,
        weights=logical,
        scales=np.broadcast_to(weights.scale, (spec.output_channels,)).astype(np.float32),
    )


def _symmetric(weights: Step) -> NDArray[np.int8] | None:
    """Quantized weights with zero at 0; None where they are no int8 then."""
    if weights.dtype not in {"int8", "uint8"}:
        return None
    numbers = array_of(weights.source)
    shape = [1] * numbers.ndim
    if not weights.whole:
        shape[weights.axis] = len(weights.zero_point)
    shifted = numbers.astype(np.int64) - weights.zero_point.reshape(shape)
    limits = np.iinfo(WEIGHTS)
    inside = shifted.min(initial=0) >= limits.min and shifted.max(initial=0) <= limits.max
    return shifted.astype(np.int8) if inside else None


def in_integers(
    chain: FusedOperator,
    alone: FusedOperator,
    operands: Operands,
    values: Mapping[Any, Any],
    users: Mapping[Any, Sequence[Any]],
) -> FusedOperator:
    """A chain of float32 as one of int8.

    Args:
        chain: with all that follows the product but what quantizes it.
        alone: the product alone, which is taken where sums with the bias may pass 32 bits.
        operands: what it multiplies.
        values: of all variables.
        users: the bindings that read each variable; None among them for the function's result.
    """
    spec = chain.spec
    assert isinstance(spec, FusedSpec)  # noqa: S101 - only those have operands
    real = chain.constants[1] if spec.bias else np.zeros(spec.output_channels, np.float32)
    bias = operands.bias(real)
    if bias is None:
        return in_integers(alone, alone, operands, values, users)
    output, passed = quantized_after(chain.last, users)
    residual = None
    if spec.residual and output is not None:
        residual = step_of(values.get(chain.inputs[1]), DEQUANTIZE)
        if residual is None or not is_data(residual):
            # A residual has the type of the output.
            residual, output, passed = None, None, ()
    scale, quantization = _parameters(operands, residual, output, spec.activation)
    return attrs.evolve(
        chain,
        spec=attrs.evolve(
            spec, dtype=WEIGHTS, bias=False, output_dtype=DATA if output else "float32"
        ),
        inputs=(chain.inputs[0], residual.source) if residual else chain.inputs,
        constants=(operands.weights, scale, bias, quantization.array),
        members=(*chain.members, *passed),
    )


def _parameters(
    operands: Operands, residual: Step | None, output: Step | None, activation: str
) -> tuple[NDArray[np.float32], Quantization]:
    """What sums of each channel are multiplied by, and what is the same for all channels."""
    scale = operands.units
    residual_scale = np.float32(1) if residual is None else residual.scale[0]
    multiplier = np.float32(1)
    if output is not None:
        if activation in _HOMOGENEOUS or slope_of(activation) is not None:
            # The order in which onnxruntime rounds the factors of ``QLinearConv``, too.
            scale = scale / output.scale
            residual_scale = residual_scale / output.scale[0] if residual else residual_scale
        else:
            multiplier = multiplier / output.scale[0]
    return scale.astype(np.float32), Quantization(
        data_zero_point=float(operands.data.zero_point[0]),
        residual_scale=float(residual_scale),
        residual_zero_point=float(residual.zero_point[0]) if residual else 0.0,
        out_multiplier=float(multiplier),
        out_zero_point=float(output.zero_point[0]) if output else 0.0,
    )


def quantized_after(
    variable: Any, users: Mapping[Any, Sequence[Any]]
) -> tuple[Step | None, tuple[Any, ...]]:
    """The step that is the only one to read a variable, and the variables up to its result.

    Args:
        variable: what a chain computes in float32.
        users: the bindings that read each variable; None among them for the function's result.
    """
    passed: list[Any] = []
    while True:
        reading = users[variable]
        if len(reading) != 1 or reading[0] is None:
            return None, ()
        value, variable = reading[0].value, reading[0].var
        passed.append(variable)
        step = step_of(value, QUANTIZE)
        if step is not None:
            return (step, tuple(passed)) if step.whole and step.dtype == DATA else (None, ())
        if not is_call(value, "relax.reshape"):
            return None, ()
