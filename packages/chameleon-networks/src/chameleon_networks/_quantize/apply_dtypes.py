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
from chameleon_networks._graph.propagate_transposes import shape_of
from chameleon_networks._graph.relax_utils import emit_like, mutate, relax, tvm
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
    sketched: bool = False,
) -> Any:
    """Insert quantize and dequantize pairs before fusion groups, and round their weights.

    Args:
        module: The module that ``prepared`` returned.
        fusions: The fusion groups of the network.
        types: The dtypes of fusion groups, by index. An operator that is missing here, or has
            ``float32``, is not changed.
        ranges: The range of each tensor, by tensor name, as ``Simulation.calibrated`` returns them.
        means: The mean of each channel of tensors, by tensor name, as in ``Simulation.means``. For
            operators that read these tensors, biases are corrected for the rounding of the weights.
        sketched: Whether weights get only the right dtypes and shapes, with equal values. Rounding
            a hundred million weights takes seconds, and the dtypes of operators do not depend on
            it.
    """
    # Readers of a dtype share a pair. With ``sketched``, weights get only dtypes and shapes.
    reduced = {index: kind for index, kind in types.items() if kind != FLOAT32}
    for kind in sorted(set(reduced.values())):
        reasons = find_eligible(fusions, kind).reasons
        for index in (index for index, other in reduced.items() if other == kind):
            if index in reasons:
                raise ConfigError(
                    f"operator {index} of the network cannot be computed in {kind}: "
                    f"{reasons[index]}",
                    hint="Leave it in float32.",
                )
    if not reduced:
        return module
    network = DataFlow(module, fusions)
    reads = ReadFormats(network, reduced, ranges)
    constants = _constants(network, reduced, {} if sketched else means)
    typed = mutate(module, _DtypeMutator(module, reads, constants, sketched=sketched))
    return propagate_quantization(typed)


@attrs.frozen(kw_only=True, eq=False)
class _ReplacedConstant:
    """The replacement of a constant operand of a fusion group.

    Attributes:
        fusion: The fusion group.
        kind: The dtype of the weights.
        bias: One number per output channel, if the operand is the bias. None if it is the weights.
    """

    fusion: FusionGroup
    kind: str = FLOAT32
    bias: NDArray[Any] | None = None


def _constants(
    network: DataFlow, types: Mapping[int, str], means: Means
) -> dict[Any, _ReplacedConstant]:
    """The replaced constants, by the variable of the binding that reads each constant."""
    constants: dict[Any, _ReplacedConstant] = {}
    for index, kind in types.items():
        fusion = network.fusions[index]
        if fusion.constants.weights is None:
            continue
        own = [node for node in network.bindings if network.fusion_at.get(node.var) == index]
        # The first member with a constant multiplies by weights; a move in front of it has none.
        reading = [binding.var for binding in own if any(map(_is_constant, binding.value.args))]
        constants[reading[0]] = _ReplacedConstant(fusion=fusion, kind=kind)
        mean = means.get(network.names[fusion.inputs[0]])
        if mean is not None and isinstance(fusion.spec, FusedSpec) and fusion.spec.bias:
            bias = constants_for(fusion, kind, mean).bias
            constants[reading[1]] = _ReplacedConstant(fusion=fusion, bias=bias)
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
        sketched: bool,
    ) -> None:
        super().__init__(module)
        self._sketched = sketched
        self._reads = reads.of
        self._pairs: dict[tuple[Any, TensorFormat], Any] = {}
        self._constants = constants

    def visit_dataflow_block_(self, block: Any) -> Any:
        # A block's variables cannot be read in another one.
        self._pairs = {}
        return super().visit_dataflow_block_(block)

    def visit_var_binding_(self, binding: Any) -> None:
        forms = self._reads.get(binding.var, {})
        constant = self._constants.get(binding.var)
        if not forms and constant is None:
            super().visit_var_binding_(binding)
            return
        value = self._with_pairs(binding.value, forms)
        if constant is not None:
            rank = len(shape_of(binding.var))
            arguments = [
                self._constant(argument, constant, rank) if _is_constant(argument) else argument
                for argument in value.args
            ]
            value = relax.Call(value.op, arguments, value.attrs, value.ty_args)
        variable = emit_like(self.builder_, value, binding.var, str(binding.var.name))
        self.set_var_remap(binding.var, variable)

    def _with_pairs(self, value: Any, forms: Mapping[Any, TensorFormat]) -> Any:
        """Rewrite an expression so that it reads tensors in their forms."""
        if isinstance(value, relax.Var):
            form = forms.get(value)
            return self.visit_expr(value) if form is None else self._pair(value, form)
        if isinstance(value, relax.Tuple):
            return relax.Tuple([self._with_pairs(field, forms) for field in value.fields])
        if isinstance(value, relax.Call):
            arguments = [self._with_pairs(argument, forms) for argument in value.args]
            return relax.Call(value.op, arguments, value.attrs, value.ty_args)
        return self.visit_expr(value)

    def _pair(self, variable: Any, form: TensorFormat) -> Any:
        """A tensor rounded to a form and back to float32, once for all its readers in that form."""
        if (variable, form) not in self._pairs:
            builder, step = self.builder_, form.step(self.visit_expr(variable))
            encoded = builder.emit(step.emit_quantize(builder, step.source))
            self._pairs[variable, form] = builder.emit(step.emit_dequantize(builder, encoded))
        return self._pairs[variable, form]

    def _constant(self, operand: Any, constant: _ReplacedConstant, rank: int) -> Any:
        """The replacement of a constant operand, for an operator whose result has rank ``rank``."""
        spec = constant.fusion.spec
        if constant.bias is not None:
            second = isinstance(spec, ConvolutionSpec) and not is_channels_last(spec.output_layout)
            axis = 1 if second else rank - 1
            shape = [-1 if position == axis else 1 for position in range(rank)]
            return relax.const(constant.bias.reshape(shape), FLOAT32)
        weights = array_of(operand)
        kind = COMPUTE[constant.kind].weights
        if not kind.whole:
            rounded = np.ones_like(weights) if self._sketched else kind.rounded(weights)
            return relax.const(rounded, FLOAT32)
        # Filters have output channels first, in any layout; matrices of products last.
        axis = weights.ndim - 1 if isinstance(spec, DenseSpec) else 0
        first = np.moveaxis(weights, axis, 0)
        encoded = (placeholder_weights if self._sketched else quantize_weights)(first, kind)
        step = encoded.step(axis)
        return self.builder_.emit(step.emit_dequantize(self.builder_, step.source))


def _is_constant(argument: Any) -> bool:
    return isinstance(argument, tvm.ir.GenericConst)
