"""Gives fusion groups the dtypes of their dequantized operands.

A product of dequantized integers is exact in integers (Jacob et al., arXiv 1712.05877, section
2.2).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from chameleon_core.plugin_api import FLOAT32, ConfigError
from chameleon_tvm.api import (
    COMPUTE,
    INT8,
    LARGEST_PRODUCT,
    LARGEST_SUM,
    UINT8,
    BatchMatmulSpec,
    ComputeType,
    FusedSpec,
    Quantization,
    QuantizedProduct,
    TypedSpec,
    slope_of,
)
from numpy.typing import NDArray

from chameleon_networks._graph.constants import array_of
from chameleon_networks._graph.fusion_groups import Constants, FusionGroup
from chameleon_networks._graph.matching_products import product_of
from chameleon_networks._graph.quantization import (
    DEQUANTIZE,
    QUANTIZE,
    QParams,
    QParamsFinder,
    is_call,
    qparams_of,
)
from chameleon_networks._graph.relax_utils import relax, tvm

_DATA, _WEIGHTS = COMPUTE[INT8].data, COMPUTE[INT8].weights
_HOMOGENEOUS = frozenset({"none", "relu"})
"""Activations f with f(a x) = a f(x) for positive a, besides leaky ReLUs."""


@attrs.frozen(kw_only=True, eq=False)
class IntegerOperands:
    """The operands of a convolution or matrix product on integers.

    Attributes:
        spec: The operator in float32.
        data: The quantization parameters of the data.
        weights: The weights in int8, output channels first.
        scales: The float32 scale of each output channel's weights.
    """

    spec: FusedSpec
    data: QParams
    weights: NDArray[Any]
    scales: NDArray[np.float32]

    @property
    def inputs(self) -> tuple[Any, ...]:
        """The quantized tensor that the operator reads, as a tuple."""
        return (self.data.source,)

    @property
    def output_scales(self) -> NDArray[np.float32]:
        """The scale of each output channel's integer sums."""
        return self.data.scale * self.scales

    def bias(self, bias_values: NDArray[Any]) -> NDArray[np.int32] | None:
        """Divide a float32 bias by the output scales, or None if sums might exceed 32 bits.

        Args:
            bias_values: The bias in float32, of shape (output channels,).
        """
        terms = self.weights[0].size
        rounded = np.rint(bias_values.astype(np.float64) / self.output_scales.astype(np.float64))
        if not (np.abs(rounded) <= LARGEST_SUM - terms * LARGEST_PRODUCT).all():
            return None
        return rounded.astype(np.int32)

    def requantization(
        self, residual: QParams | None, output: QParams | None, activation: str
    ) -> tuple[NDArray[np.float32], Quantization]:
        """The factor of each channel's integer sums, and the other constants of requantization."""
        scale = self.output_scales
        residual_scale = np.float32(1) if residual is None else residual.scale[0]
        multiplier = np.float32(1)
        if output is not None:
            if activation in _HOMOGENEOUS or slope_of(activation) is not None:
                # onnxruntime rounds the factors of ``QLinearConv`` in the same order.
                scale = scale / output.scale
                residual_scale = residual_scale / output.scale[0] if residual else residual_scale
            else:
                multiplier = multiplier / output.scale[0]
        return scale.astype(np.float32), Quantization(
            data_zero_point=float(self.data.zero_point[0]),
            residual_scale=float(residual_scale),
            residual_zero_point=float(residual.zero_point[0]) if residual else 0.0,
            out_multiplier=float(multiplier),
            out_zero_point=float(output.zero_point[0]) if output else 0.0,
        )


def operands_of(value: Any, values: Mapping[Any, Any]) -> IntegerOperands | None:
    """The operands of a convolution or matrix product of 8-bit integers, or None."""
    if not isinstance(value, relax.Call) or len(value.args) != 2:  # noqa: PLR2004
        return None
    data, weights = (qparams_of(values.get(operand), DEQUANTIZE) for operand in value.args)
    if data is None or weights is None or not _are_operands(data, weights):
        return None
    symmetric = _symmetric_weights(weights)
    product = None if symmetric is None else product_of(value, symmetric)
    if product is None or product.weights is None or not isinstance(product.spec, FusedSpec):
        return None
    channels = weights.source.ty.ndim - 1 if is_call(value, "relax.matmul") else 0
    if not weights.per_tensor and weights.axis != channels:
        return None
    try:
        attrs.evolve(product.spec, dtype=INT8)
    except ConfigError:
        return None  # the sums may exceed 32 bits
    scales = np.broadcast_to(weights.scale, (product.spec.output_channels,)).astype(np.float32)
    return IntegerOperands(spec=product.spec, data=data, weights=product.weights, scales=scales)


def _are_operands(data: QParams, weights: QParams) -> bool:
    """Whether data are computed in 8 bits with a single scale, and weights are constant."""
    return (
        is_per_tensor_data(data, _DATA.name)
        and isinstance(weights.source, tvm.ir.GenericConst)
        and bool(data.scale[0] > 0)
        and bool((weights.scale > 0).all())
    )


def is_per_tensor_data(qparams: QParams, dtype: str) -> bool:
    """Whether an activation is dequantized from a dtype with a single scale."""
    return qparams.per_tensor and qparams.dtype == dtype and isinstance(qparams.source, relax.Var)


def _symmetric_weights(weights: QParams) -> NDArray[Any] | None:
    """Quantized weights with the zero point 0, or None if they do not fit into int8."""
    if weights.dtype not in {INT8, UINT8}:
        return None
    shifted = weights.subtract_zero_point(array_of(weights.source))
    low, high = shifted.min(initial=0), shifted.max(initial=0)
    return shifted.astype(INT8) if low >= _WEIGHTS.low and high <= _WEIGHTS.high else None


@attrs.frozen(kw_only=True, eq=False)
class _Output:
    """How a fusion group writes its result, and the variables up to the quantized result.

    Attributes:
        qparams: The parameters of the result in the dtype of the data. None for float32.
        residual: The parameters of the residual, which has the dtype of the output.
        skipped: The variables after the operator, up to the encoded result.
    """

    qparams: QParams | None = None
    residual: QParams | None = None
    skipped: tuple[Any, ...] = ()

    def dtype(self, kind: ComputeType) -> str:
        """The output dtype of an operator with a compute dtype."""
        return FLOAT32 if self.qparams is None else kind.data.name


class DtypeAssigner:
    """Gives fusion groups the dtypes that a network's quantization implies."""

    def __init__(
        self, finder: QParamsFinder, values: Mapping[Any, Any], users: Mapping[Any, Sequence[Any]]
    ) -> None:
        self._finder = finder
        self._values = values
        self._users = users

    def operands(self, value: Any) -> IntegerOperands | None:
        """The result of ``operands_of`` for an expression."""
        return operands_of(value, self._values)

    def assign(self, fusion: FusionGroup) -> FusionGroup:
        """Let a fusion group read quantized operands if they have a dtype that kernels multiply."""
        operands = [
            qparams
            for operand in fusion.operands
            if (qparams := self._qparams_of(operand)) is not None
        ]
        kind, spec = _compute_type(fusion, operands), fusion.spec
        if kind is None or not isinstance(spec, TypedSpec):
            return fusion
        output = self._output_of(fusion, kind.data.name)
        constants = fusion.constants
        if kind.quantized:
            constants = Constants(
                quantization=_product_quantization(operands, output.qparams).array
            )
        try:
            reduced = attrs.evolve(spec, dtype=kind.name, output_dtype=output.dtype(kind))
        except ConfigError:
            return fusion  # the sums may exceed 32 bits
        rest = (
            fusion.inputs[len(operands) :] if output.residual is None else (output.residual.source,)
        )
        return attrs.evolve(
            fusion,
            spec=reduced,
            inputs=(*(qparams.source for qparams in operands), *rest),
            constants=constants,
            members=(*fusion.members, *output.skipped),
        )

    def assign_integer(
        self, fusion: FusionGroup, alone: FusionGroup, operands: IntegerOperands
    ) -> FusionGroup:
        """Make a fusion group compute in int8, without its bias if sums might exceed 32 bits."""
        spec = fusion.spec
        assert isinstance(spec, FusedSpec)  # noqa: S101 - only fused operators have operands
        bias_values = fusion.constants.bias
        bias = operands.bias(
            np.zeros(spec.output_channels, np.float32) if bias_values is None else bias_values
        )
        if bias is None:
            return self.assign_integer(alone, alone, operands)
        output = self._output_of(fusion, _DATA.name)
        scale, quantization = operands.requantization(
            output.residual, output.qparams, spec.activation
        )
        rest = fusion.inputs[1:] if output.residual is None else (output.residual.source,)
        return attrs.evolve(
            fusion,
            spec=attrs.evolve(
                spec, dtype=INT8, bias=False, output_dtype=output.dtype(COMPUTE[INT8])
            ),
            inputs=(operands.data.source, *rest),
            constants=Constants(
                weights=operands.weights, scale=scale, bias=bias, quantization=quantization.array
            ),
            members=(*fusion.members, *output.skipped),
        )

    def _qparams_of(self, variable: Any) -> QParams | None:
        return self._finder.of(self._values.get(variable), DEQUANTIZE)

    def _output_of(self, fusion: FusionGroup, dtype: str) -> _Output:
        """How a fusion group writes its result if it computes in a dtype."""
        output, skipped = self._quantize_after(fusion.last)
        if output is None or not output.per_tensor or output.dtype != dtype:
            return _Output()
        if not (isinstance(fusion.spec, FusedSpec) and fusion.spec.residual):
            return _Output(qparams=output, skipped=skipped)
        residual = self._qparams_of(fusion.inputs[1])
        if residual is None or not is_per_tensor_data(residual, dtype):
            return _Output()
        return _Output(qparams=output, residual=residual, skipped=skipped)

    def _quantize_after(self, variable: Any) -> tuple[QParams | None, tuple[Any, ...]]:
        """The quantization that alone reads a variable, and the variables up to its result."""
        skipped: list[Any] = []
        while True:
            readers = self._users[variable]
            if len(readers) != 1 or readers[0] is None:
                return None, ()
            value, variable = readers[0].value, readers[0].var
            skipped.append(variable)
            qparams = self._finder.of(value, QUANTIZE)
            if qparams is not None or not is_call(value, "relax.reshape"):
                return qparams, tuple(skipped)


def _compute_type(fusion: FusionGroup, operands: Sequence[QParams]) -> ComputeType | None:
    """The dtype in which a fusion group can multiply its dequantized operands, or None."""
    spec, weights = fusion.spec, fusion.constants.weights
    if not isinstance(spec, TypedSpec) or not operands or len(operands) < len(fusion.operands):
        return None
    candidates = (compute for compute in COMPUTE.values() if not compute.variant_of)
    kind = next((compute for compute in candidates if compute.data.name == operands[0].dtype), None)
    if kind is None or not all(is_per_tensor_data(qparams, kind.data.name) for qparams in operands):
        return None
    if kind.quantized:
        return kind if isinstance(spec, BatchMatmulSpec) else None
    fit = weights is None or np.array_equal(kind.weights.rounded(weights), weights)
    return kind if fit else None


def _product_quantization(operands: Sequence[QParams], output: QParams | None) -> QuantizedProduct:
    """The zero points and the scale of a batch of products of two integer tensors."""
    lhs, rhs = operands
    scale = np.float32(lhs.scale[0]) * np.float32(rhs.scale[0])
    if output is not None:
        scale = scale / np.float32(output.scale[0])
    return QuantizedProduct(
        left_zero_point=float(lhs.zero_point[0]),
        right_zero_point=float(rhs.zero_point[0]),
        scale=float(scale),
        out_zero_point=float(output.zero_point[0]) if output is not None else 0.0,
    )
