"""The chains of a network: each operator worth tuning, with what is fused into its kernel."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from chameleon_core.errors import ConfigError
from chameleon_tvm.operators.layouts import channels_first, is_channels_last
from chameleon_tvm.operators.specs import (
    BatchMatmulSpec,
    ConvolutionSpec,
    DenseSpec,
    FusedSpec,
    GroupedSpec,
    OperatorSpec,
    TypedSpec,
)
from chameleon_tvm.types import FLOATING_IN
from numpy.typing import NDArray

from chameleon_networks.graph.attention_operators import attentions_of
from chameleon_networks.graph.constants import array_of, per_channel, single_matrix
from chameleon_networks.graph.fused_operators import FusedOperator
from chameleon_networks.graph.half_steps import ROUND, WIDEN, HalfSteps
from chameleon_networks.graph.matching_activations import activation_after
from chameleon_networks.graph.matching_convolutions import (
    CONVOLUTION_RANKS,
    convolution_of,
    made_of,
)
from chameleon_networks.graph.moves import axes_of, shape_of
from chameleon_networks.graph.quantized_operators import in_integers, operands_of
from chameleon_networks.graph.quantized_products import product_in_integers
from chameleon_networks.graph.quantized_steps import is_call
from chameleon_networks.graph.relaxed import relax, tvm


def to_half_precision(
    chain: FusedOperator,
    steps: HalfSteps,
    values: Mapping[Any, Any],
    users: Mapping[Any, Sequence[Any]],
) -> FusedOperator:
    """A chain of float32 as one of a type of two bytes where it is one, else as it is.

    Args:
        chain: with all that follows the product but what rounds it.
        steps: those of the module.
        values: of all variables.
        users: the bindings that read each variable; None among them for the function's result.
    """
    spec = chain.spec
    if not isinstance(spec, TypedSpec):
        return chain
    sources = [steps.source(values.get(one), WIDEN) for one in chain.operands]
    operands = [one for one in sources if isinstance(one, relax.Var)]
    held = {str(one.ty.dtype) for one in operands}
    if not operands or len(operands) < len(sources):
        return chain
    half = FLOATING_IN.get(held.pop())
    if half is None or held:
        return chain
    for weights in chain.constants[:1]:
        if not np.array_equal(half.rounded(weights), weights):
            return chain
    rest = chain.inputs[len(operands) :]
    passed = _rounded_after(chain.last, steps, users, half.storage_dtype)
    if isinstance(spec, FusedSpec) and spec.residual and passed:
        # A residual has the type of the output.
        [residual] = (steps.source(values.get(one), WIDEN) for one in rest)
        if isinstance(residual, relax.Var) and str(residual.ty.dtype) == half.storage_dtype:
            rest = (residual,)
        else:
            passed = ()
    written = half.name if passed else "float32"
    try:
        narrow = attrs.evolve(spec, dtype=half.name, output_dtype=written)
    except ConfigError:
        return chain
    return attrs.evolve(
        chain, spec=narrow, inputs=(*operands, *rest), members=(*chain.members, *passed)
    )


def _rounded_after(
    variable: Any, steps: HalfSteps, users: Mapping[Any, Sequence[Any]], held: str
) -> tuple[Any, ...]:
    """The variables up to the rounding that alone reads a variable; none where others do."""
    passed: list[Any] = []
    while True:
        reading = users[variable]
        if len(reading) != 1 or reading[0] is None:
            return ()
        value, variable = reading[0].value, reading[0].var
        passed.append(variable)
        if steps.source(value, ROUND) is not None:
            return tuple(passed) if str(variable.ty.dtype) == held else ()
        if not is_call(value, "relax.reshape"):
            return ()


_MATRIX = 2


def chains_of(module: Any) -> list[FusedOperator]:
    """The chains of a prepared network, in its order.

    A chain is a convolution or matrix product in float32, with the bias, the residual and the
    activation that follow it and are used nowhere else, or an attention from the product of
    queries and keys to that of weights and values. Where data and weights are dequantized 8-bit
    integers, it is computed with these, and quantized in the same kernel where all that reads its
    result is one ``quantize``. Where what is multiplied is widened from bfloat16 or float16, and
    weights are numbers of it, the chain is one of that type, and so is its result where all that
    reads it rounds it.

    Args:
        module: what ``prepared`` returned.

    Raises:
        ConfigError: an operator cannot be what it says.
    """
    return list(_Finder(module["main"], HalfSteps(module)).chains())


class _Finder:
    def __init__(self, function: Any, steps: HalfSteps) -> None:
        self._steps = steps
        self._bindings = [binding for block in function.body.blocks for binding in block.bindings]
        self._values = {binding.var: binding.value for binding in self._bindings}
        self._users: dict[Any, list[Any]] = defaultdict(list)
        for binding in self._bindings:
            for variable in relax.analysis.free_vars(binding.value):
                self._users[variable].append(binding)
        self._users[function.body.body].append(None)
        self._taken: set[Any] = set()

    def chains(self) -> Iterator[FusedOperator]:
        attentions = {}
        for found in attentions_of(self._bindings, self._values, self._users):
            attentions[found.members[0]] = found
            self._taken.update(found.members)
        for binding in self._bindings:
            value = binding.value
            if binding.var in attentions:
                found = attentions[binding.var]
                attention = FusedOperator(
                    spec=found.spec,
                    inputs=found.inputs,
                    members=found.members,
                    readers=found.readers,
                )
                attention = to_half_precision(attention, self._steps, self._values, self._users)
                self._taken.update(attention.members)
                yield attention
            if binding.var in self._taken:
                continue
            operands = operands_of(value, self._values)
            made = _made(value) if operands is None else operands.made
            if made is None:
                continue
            spec, inputs, constants = made
            chain = FusedOperator(
                spec=spec, inputs=inputs, constants=constants, members=(binding.var,)
            )
            if operands is None:
                chain = self._with_move(chain)
            longer = self._extended(chain) if isinstance(spec, FusedSpec) else chain
            if operands is not None:
                longer = in_integers(longer, chain, operands, self._values, self._users)
            else:
                longer = to_half_precision(longer, self._steps, self._values, self._users)
                longer = product_in_integers(longer, self._values, self._users)
            self._taken.update(longer.members)
            yield longer

    def _with_move(self, chain: FusedOperator) -> FusedOperator:
        """The chain reading images as they come, moved to channels last for it alone."""
        spec, data = chain.spec, chain.inputs[0]
        move = self._values.get(data)
        if (
            not isinstance(spec, GroupedSpec)
            or not is_channels_last(spec.layout)
            or not isinstance(move, relax.Call)
            or move.op != tvm.ir.Op.get("relax.permute_dims")
            or axes_of(move) != (0, *range(2, spec.rank + 2), 1)
            or len(self._users[data]) != 1
            or data in self._taken
        ):
            return chain
        return attrs.evolve(
            chain,
            spec=attrs.evolve(spec, layout=channels_first(spec.rank), output_layout=spec.layout),
            inputs=(move.args[0],),
            members=(data, *chain.members),
        )

    def _extended(self, chain: FusedOperator) -> FusedOperator:
        """The chain with all that follows and can be computed in registers."""
        passed: list[Any] = []
        variable = chain.last
        while True:
            found = activation_after(variable, self._users, self._values)
            if found is not None and not self._taken.intersection(found.members):
                members = (*chain.members, *passed, *found.members)
                assert isinstance(chain.spec, FusedSpec)  # noqa: S101 - only those are extended
                spec = attrs.evolve(chain.spec, activation=found.name)
                return attrs.evolve(chain, spec=spec, members=members)
            user = self._only_user(variable)
            if user is None:
                return chain
            call = user.value
            variable = user.var
            passed.append(variable)
            if str(call.op.name) == "relax.reshape":
                continue  # only counts if something follows
            longer = _with(chain, call, passed)
            if longer is None:
                return chain
            chain = longer
            passed = []

    def _only_user(self, variable: Any) -> Any | None:
        users = self._users[variable]
        if len(users) != 1 or users[0] is None or users[0].var in self._taken:
            return None
        call = users[0].value
        whole = isinstance(call, relax.Call) and isinstance(call.op, tvm.ir.Op)
        # Another reader of a variable than the chain itself, as in x + x, is no residual.
        return users[0] if whole and sum(a.same_as(variable) for a in call.args) == 1 else None


def _with(chain: FusedOperator, call: Any, passed: list[Any]) -> FusedOperator | None:
    """The chain with one more operator at its end, or None where it does not fit."""
    spec = chain.spec
    assert isinstance(spec, FusedSpec)  # noqa: S101 - only those are extended
    longer = attrs.evolve(chain, members=(*chain.members, *passed))
    if str(call.op.name) != "relax.add" or spec.residual:
        return None
    # A sum with something larger repeats what the kernel computes; that is no epilogue.
    same_size = math.prod(shape_of(call)) == math.prod(shape_of(chain.last))
    return _with_sum(longer, spec, call) if same_size else None


def _with_sum(chain: FusedOperator, spec: FusedSpec, call: Any) -> FusedOperator | None:
    """The chain with a bias or a residual added."""
    other = next(a for a in call.args if not any(a.same_as(member) for member in chain.members))
    if isinstance(other, tvm.ir.GenericConst):
        bias = None if spec.bias else _bias(array_of(other), spec, call)
        if bias is None:
            return None
        constants = (*chain.constants, bias)
        return attrs.evolve(chain, spec=attrs.evolve(spec, bias=True), constants=constants)
    if not isinstance(other, relax.Var) or shape_of(other) != shape_of(call):
        return None
    inputs = (*chain.inputs, other)
    return attrs.evolve(chain, spec=attrs.evolve(spec, residual=True), inputs=inputs)


def _bias(constant: NDArray[Any], spec: FusedSpec, call: Any) -> NDArray[Any] | None:
    """A constant as one number per channel, or None where it is something else."""
    rank = len(shape_of(call))
    first = isinstance(spec, ConvolutionSpec) and not is_channels_last(spec.output_layout)
    axis = 1 if first else rank - 1
    return per_channel(constant, rank=rank, axis=axis, channels=spec.output_channels)


_Made = tuple[OperatorSpec, tuple[Any, ...], tuple[NDArray[Any], ...]]


def _made(value: Any) -> _Made | None:
    """What a convolution or matrix product in float32 is; None for another expression."""
    if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.Op):
        return None
    name = str(value.op.name)
    if name in CONVOLUTION_RANKS:
        return _convolution(value)
    return _product(value) if name == "relax.matmul" else None


def _convolution(call: Any) -> _Made | None:
    found = convolution_of(call)
    if found is None:
        return None
    spec, weights = made_of(found)
    return spec, (call.args[0],), (weights,)


def _product(call: Any) -> _Made | None:
    left, right = call.args
    a, b = shape_of(left), shape_of(right)
    if _dtype(left) != "float32" or len(a) < _MATRIX or len(b) < _MATRIX:
        return None
    weights = single_matrix(array_of(right)) if isinstance(right, tvm.ir.GenericConst) else None
    if weights is not None:
        sizes: dict[str, Any] = {"input": (math.prod(a[:-1]), a[-1]), "units": b[-1]}
        return DenseSpec(**sizes), (left,), (weights.T,)
    if a[:-2] != b[:-2] or not isinstance(left, relax.Var) or not isinstance(right, relax.Var):
        return None  # broadcast, or a constant batch: no template of ours, and rare
    batch = math.prod(a[:-2])
    sizes = {"a": (batch, *a[-2:]), "b": (batch, *b[-2:])}
    return BatchMatmulSpec(**sizes), (left, right), ()


def _dtype(argument: Any) -> str:
    return str(argument.ty.dtype)
