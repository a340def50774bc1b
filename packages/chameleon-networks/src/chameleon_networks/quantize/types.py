"""Types put into a network: what its chains read, rounded, and their weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import attrs
import numpy as np
from chameleon_core.errors import ConfigError
from chameleon_tvm.operators.layouts import is_channels_last
from chameleon_tvm.operators.specs import ConvolutionSpec, DenseSpec, FusedSpec
from chameleon_tvm.types import COMPUTE, FLOAT32
from numpy.typing import NDArray

from chameleon_networks.graph.constants import array_of
from chameleon_networks.graph.fused_operators import FusedOperator
from chameleon_networks.graph.moves import shape_of
from chameleon_networks.graph.moving import with_encoded_moves
from chameleon_networks.graph.relaxed import emitted, relax, rewritten, tvm
from chameleon_networks.graph.steps import Step
from chameleon_networks.quantize.eligibility import eligible
from chameleon_networks.quantize.ranges import Affine
from chameleon_networks.quantize.reads import Form, Network, Reads
from chameleon_networks.quantize.weights import (
    Means,
    constants_in,
    encoded_weights,
    sketched_weights,
)


def with_types(
    module: Any,
    chains: Sequence[FusedOperator],
    types: Mapping[int, str],
    ranges: Mapping[str, Affine],
    means: Means = MappingProxyType({}),
    *,
    sketched: bool = False,
) -> Any:
    """A network some of whose chains read rounded tensors and have rounded weights.

    Its inputs and outputs are float32 still. Pairs in the graph show the roundings: ``quantize``
    and ``dequantize`` for int8 and int7, and two functions for bfloat16 and float16. All readers of
    a tensor in that type share a pair. Moves of numbers between two pairs of one range move those
    of eight bits, or of two bytes.

    Weights of int8 and int7 are dequantized constants, with a scale for each output channel. Those
    of other types are float32 constants that the type has.

    Args:
        module: what ``prepared`` returned.
        chains: its chains.
        types: of chains, by place; ``float32`` leaves one as it is, as no entry does.
        ranges: of tensors by name, as ``Simulation.calibrated`` returns them.
        means: of channels of tensors, by name, as ``Simulation`` has them. They correct biases of
            chains that read one of these for the shift by rounded weights.
        sketched: weights have their types and shapes, and are all alike. Rounding a hundred million
            of them takes seconds, and the types of operators do not depend on it.

    Raises:
        ConfigError: a chain cannot have its type, or a tensor has no range.
    """
    reduced = {index: kind for index, kind in types.items() if kind != FLOAT32}
    for kind in sorted(set(reduced.values())):
        reasons = eligible(chains, kind).reasons
        for index in (index for index, other in reduced.items() if other == kind):
            if index in reasons:
                raise ConfigError(
                    f"operator {index} of the network cannot be computed in {kind}: "
                    f"{reasons[index]}",
                    hint="Leave it in float32.",
                )
    if not reduced:
        return module
    network = Network(module, chains)
    reads = Reads(network, reduced, ranges)
    constants = _constants(network, reduced, {} if sketched else means)
    typed = rewritten(module, _Typed(module, reads, constants, sketched=sketched))
    return with_encoded_moves(typed)


@attrs.frozen(kw_only=True, eq=False)
class _Constant:
    """The replacement of a constant operand.

    Attributes:
        chain: whose constant it is.
        kind: of weights.
        bias: one number per output channel; None if weights are replaced.
    """

    chain: FusedOperator
    kind: str = FLOAT32
    bias: NDArray[Any] | None = None


def _constants(network: Network, types: Mapping[int, str], means: Means) -> dict[Any, _Constant]:
    """New constants by the variable of the binding that reads them."""
    constants: dict[Any, _Constant] = {}
    for index, kind in types.items():
        chain = network.chains[index]
        if chain.constants.weights is None:
            continue
        own = [node for node in network.bindings if network.chain_at.get(node.var) == index]
        # The first member with a constant multiplies by weights; a move in front of it has none.
        reading = [binding.var for binding in own if any(map(_is_constant, binding.value.args))]
        constants[reading[0]] = _Constant(chain=chain, kind=kind)
        mean = means.get(network.names[chain.inputs[0]])
        if mean is not None and isinstance(chain.spec, FusedSpec) and chain.spec.bias:
            bias = constants_in(chain, kind, mean).bias
            constants[reading[1]] = _Constant(chain=chain, bias=bias)
    return constants


@relax.expr_functor.mutator
class _Typed(relax.PyExprMutator):
    """Puts pairs in front of what reads them, and other constants in the places of constants."""

    def __init__(
        self, module: Any, reads: Reads, constants: Mapping[Any, _Constant], *, sketched: bool
    ) -> None:
        super().__init__(module)
        self._sketched = sketched
        self._reads = reads.of
        self._pairs: dict[tuple[Any, Form], Any] = {}
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
        variable = emitted(self.builder_, value, binding.var, str(binding.var.name))
        self.set_var_remap(binding.var, variable)

    def _with_pairs(self, value: Any, forms: Mapping[Any, Form]) -> Any:
        """An expression that reads tensors in their forms."""
        if isinstance(value, relax.Var):
            form = forms.get(value)
            return self.visit_expr(value) if form is None else self._pair(value, form)
        if isinstance(value, relax.Tuple):
            return relax.Tuple([self._with_pairs(field, forms) for field in value.fields])
        if isinstance(value, relax.Call):
            arguments = [self._with_pairs(argument, forms) for argument in value.args]
            return relax.Call(value.op, arguments, value.attrs, value.ty_args)
        return self.visit_expr(value)

    def _pair(self, variable: Any, form: Form) -> Any:
        """A tensor rounded and back in float32: one pair for all who read it so."""
        if (variable, form) not in self._pairs:
            builder, step = self.builder_, _step(self.visit_expr(variable), form)
            encoded = builder.emit(step.encode(builder, step.source))
            self._pairs[variable, form] = builder.emit(step.decode(builder, encoded))
        return self._pairs[variable, form]

    def _constant(self, operand: Any, constant: _Constant, rank: int) -> Any:
        """A constant operand of a tensor of some rank, replaced."""
        spec = constant.chain.spec
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
        encoded = (sketched_weights if self._sketched else encoded_weights)(first, kind)
        step = encoded.step(axis)
        return self.builder_.emit(step.decode(self.builder_, step.source))


def _step(source: Any, form: Form) -> Step:
    """The step that encodes a tensor in a form."""
    if form.affine is None:
        return Step(source=source, dtype=form.kind.name)
    return Step(
        source=source,
        dtype=form.kind.name,
        scale=np.array([form.affine.scale], np.float32),
        zero_point=np.array([form.affine.zero_point], np.int64),
    )


def _is_constant(argument: Any) -> bool:
    return isinstance(argument, tvm.ir.GenericConst)
