"""Rewrites a network so that fusion groups read rounded tensors and have rounded weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import attrs
import numpy as np
from chameleon_core.plugin_api import FLOAT32, ConfigError
from chameleon_tvm.api import COMPUTE, ConvolutionSpec, DenseSpec, FusedSpec, is_channels_last
from numpy.typing import NDArray

from chameleon_networks._graph.constants import array_of
from chameleon_networks._graph.fusion_groups import FusionGroup
from chameleon_networks._graph.propagate_quantization import propagate_quantization
from chameleon_networks._graph.relax_utils import emit_like, mutate, relax, shape_of, tvm
from chameleon_networks._quantize.data_flow import DataFlow, ReadFormats, TensorFormat
from chameleon_networks._quantize.eligibility import find_eligible
from chameleon_networks._quantize.ranges import Affine
from chameleon_networks._quantize.weights import (
    Means,
    constants_for,
    placeholder_weights,
    quantize_weights,
)


def apply_dtypes(
    module: Any,
    fusions: Sequence[FusionGroup],
    types: Mapping[int, str],
    ranges: Mapping[str, Affine],
    means: Means = MappingProxyType({}),
    *,
    placeholders: bool = False,
) -> Any:
    """Insert quantize and dequantize pairs before fusion groups, and round their weights."""
    # Readers of a dtype share a pair. With ``placeholders``, weights get only dtypes and shapes,
    # because rounding a hundred million weights takes seconds.
    reduced = {index: dtype for index, dtype in types.items() if dtype != FLOAT32}
    for dtype in sorted(set(reduced.values())):
        reasons = find_eligible(fusions, dtype).reasons
        for index in (index for index, dtype_of in reduced.items() if dtype_of == dtype):
            if index in reasons:
                raise ConfigError(
                    f"operator {index} of the network cannot be computed in {dtype}: "
                    f"{reasons[index]}",
                    hint="Leave it in float32.",
                )
    if not reduced:
        return module
    network = DataFlow(module, fusions)
    reads = ReadFormats(network, reduced, ranges)
    constants = _constants(network, reduced, {} if placeholders else means)
    typed = mutate(module, _DtypeMutator(module, reads, constants, placeholders=placeholders))
    return propagate_quantization(typed)


@attrs.frozen(kw_only=True, eq=False)
class _ReplacedConstant:
    """The replacement of a constant operand of a fusion group.

    Attributes:
        fusion: The fusion group.
        dtype: The dtype of the weights.
        bias: One number per output channel, if the operand is the bias. None if it is the weights.
    """

    fusion: FusionGroup
    dtype: str = FLOAT32
    bias: NDArray[Any] | None = None


def _constants(
    network: DataFlow, types: Mapping[int, str], means: Means
) -> dict[Any, _ReplacedConstant]:
    """The replaced constants, by the variable of the binding that reads each constant."""
    constants: dict[Any, _ReplacedConstant] = {}
    for index, dtype in types.items():
        fusion = network.fusions[index]
        if fusion.constants.weights is None:
            continue
        group_bindings = [b for b in network.bindings if network.fusion_at.get(b.var) == index]
        # The first member with a constant reads the weights; a transpose before it has none.
        constant_readers = [
            binding.var for binding in group_bindings if any(map(_is_constant, binding.value.args))
        ]
        constants[constant_readers[0]] = _ReplacedConstant(fusion=fusion, dtype=dtype)
        mean = means.get(network.names[fusion.inputs[0]])
        if mean is not None and isinstance(fusion.spec, FusedSpec) and fusion.spec.bias:
            bias = constants_for(fusion, dtype, mean).bias
            constants[constant_readers[1]] = _ReplacedConstant(fusion=fusion, bias=bias)
    return constants


@relax.expr_functor.mutator
class _DtypeMutator(relax.PyExprMutator):
    """Inserts quantize and dequantize pairs before their readers, and replaces constants."""

    def __init__(
        self,
        module: Any,
        reads: ReadFormats,
        constants: Mapping[Any, _ReplacedConstant],
        *,
        placeholders: bool,
    ) -> None:
        super().__init__(module)
        self._placeholder_weights = placeholders
        self._formats = reads.of
        self._pairs: dict[tuple[Any, TensorFormat], Any] = {}
        self._constants = constants

    def visit_dataflow_block_(self, block: Any) -> Any:
        # A block's variables cannot be read in another one.
        self._pairs = {}
        return super().visit_dataflow_block_(block)

    def visit_var_binding_(self, binding: Any) -> None:
        formats = self._formats.get(binding.var, {})
        constant = self._constants.get(binding.var)
        if not formats and constant is None:
            super().visit_var_binding_(binding)
            return
        value = self._read_formats(binding.value, formats)
        if constant is not None:
            rank = len(shape_of(binding.var))
            arguments = [
                self._constant(argument, constant, rank) if _is_constant(argument) else argument
                for argument in value.args
            ]
            value = relax.Call(value.op, arguments, value.attrs, value.ty_args)
        variable = emit_like(self.builder_, value, binding.var, str(binding.var.name))
        self.set_var_remap(binding.var, variable)

    def _read_formats(self, value: Any, formats: Mapping[Any, TensorFormat]) -> Any:
        """Rewrite an expression so that it reads tensors in their formats."""
        if isinstance(value, relax.Var):
            tensor_format = formats.get(value)
            return (
                self.visit_expr(value)
                if tensor_format is None
                else self._quantized_pair(value, tensor_format)
            )
        if isinstance(value, relax.Tuple):
            return relax.Tuple([self._read_formats(field, formats) for field in value.fields])
        if isinstance(value, relax.Call):
            arguments = [self._read_formats(argument, formats) for argument in value.args]
            return relax.Call(value.op, arguments, value.attrs, value.ty_args)
        return self.visit_expr(value)

    def _quantized_pair(self, variable: Any, tensor_format: TensorFormat) -> Any:
        """A tensor, quantized and dequantized once for all readers of a format."""
        if (variable, tensor_format) not in self._pairs:
            builder, qparams = self.builder_, tensor_format.qparams(self.visit_expr(variable))
            quantized = builder.emit(qparams.quantize(builder, qparams.source))
            self._pairs[variable, tensor_format] = builder.emit(
                qparams.dequantize(builder, quantized)
            )
        return self._pairs[variable, tensor_format]

    def _constant(self, operand: Any, constant: _ReplacedConstant, rank: int) -> Any:
        """The replacement of a constant operand, for an operator whose result has rank ``rank``."""
        spec = constant.fusion.spec
        if constant.bias is not None:
            second = isinstance(spec, ConvolutionSpec) and not is_channels_last(spec.output_layout)
            axis = 1 if second else rank - 1
            shape = [-1 if position == axis else 1 for position in range(rank)]
            return relax.const(constant.bias.reshape(shape), FLOAT32)
        weights = array_of(operand)
        dtype = COMPUTE[constant.dtype].weights
        if not dtype.whole:
            rounded = np.ones_like(weights) if self._placeholder_weights else dtype.rounded(weights)
            return relax.const(rounded, FLOAT32)
        # Output channels come first in filters, and last in matrices of products.
        axis = weights.ndim - 1 if isinstance(spec, DenseSpec) else 0
        first = np.moveaxis(weights, axis, 0)
        quantized = (placeholder_weights if self._placeholder_weights else quantize_weights)(
            first, dtype
        )
        qparams = quantized.qparams(axis)
        return self.builder_.emit(qparams.dequantize(self.builder_, qparams.source))


def _is_constant(argument: Any) -> bool:
    return isinstance(argument, tvm.ir.GenericConst)
