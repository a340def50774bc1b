"""Finds the operators to tune, each with the operators that its kernel fuses."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import attrs
from chameleon_tvm.api import (
    ConvolutionSpec,
    FusedSpec,
    GroupedSpec,
    channels_first,
    is_channels_last,
)
from numpy.typing import NDArray

from chameleon_networks._graph.attention_operators import find_attentions
from chameleon_networks._graph.constants import array_of, per_channel
from chameleon_networks._graph.fusion_groups import Constants, FusionGroup
from chameleon_networks._graph.matching_activations import match_activation
from chameleon_networks._graph.matching_products import product_of
from chameleon_networks._graph.merge_projections import merged_units
from chameleon_networks._graph.quantization import QParamsFinder
from chameleon_networks._graph.relax_utils import (
    axes_of,
    bindings_of,
    operator_name,
    relax,
    shape_of,
    tvm,
    users_of,
    values_of,
)
from chameleon_networks._graph.typed_operators import DtypeAssigner


def find_fusions(module: Any) -> list[FusionGroup]:
    """Find the fusion groups of a prepared network, in order."""
    # The result has the dtype of its dequantized operands if a kernel multiplies them, and the
    # output too if all its readers quantize it.
    return list(_FusionFinder(module["main"], QParamsFinder(module)).fusions())


class _FusionFinder:
    def __init__(self, function: Any, finder: QParamsFinder) -> None:
        self._bindings = bindings_of(function)
        self._values = values_of(function)
        self._users = users_of(function)
        self._fused: set[Any] = set()
        self._merged = merged_units(function)
        self._typed = DtypeAssigner(finder, self._values, self._users)

    def fusions(self) -> Iterator[FusionGroup]:
        attentions = {}
        for match in find_attentions(self._bindings, self._values, self._users):
            attentions[match.members[0]] = match
            self._fused.update(match.members)
        for binding in self._bindings:
            value = binding.value
            if binding.var in attentions:
                attention = self._typed.assign(attentions[binding.var])
                self._fused.update(attention.members)
                yield attention
            if binding.var in self._fused:
                continue
            operands = self._typed.operands(value)
            product = operands or product_of(value)
            if product is None:
                continue
            fusion = FusionGroup(
                spec=product.spec,
                inputs=product.inputs,
                constants=Constants(weights=product.weights),
                members=(binding.var,),
                merged=self._merged.get(str(binding.var.name), ()),
            )
            if operands is None:
                fusion = self._absorb_transpose(fusion)
            extended = self._extend(fusion) if isinstance(product.spec, FusedSpec) else fusion
            if operands is not None:
                extended = self._typed.assign_integer(extended, fusion, operands)
            else:
                extended = self._typed.assign(extended)
            self._fused.update(extended.members)
            yield extended

    def _absorb_transpose(self, fusion: FusionGroup) -> FusionGroup:
        """Let a convolution read channels first if only it reads a transpose to channels last."""
        spec, data = fusion.spec, fusion.inputs[0]
        move: Any = self._values.get(data)
        if (
            not isinstance(spec, GroupedSpec)
            or not is_channels_last(spec.layout)
            or operator_name(move) != "relax.permute_dims"
            or axes_of(move) != (0, *range(2, spec.rank + 2), 1)
            or len(self._users[data]) != 1
            or data in self._fused
        ):
            return fusion
        return attrs.evolve(
            fusion,
            spec=attrs.evolve(spec, layout=channels_first(spec.rank), output_layout=spec.layout),
            inputs=(move.args[0],),
            members=(data, *fusion.members),
        )

    def _extend(self, fusion: FusionGroup) -> FusionGroup:
        """Add following biases, residuals and activations, which a kernel computes in registers."""
        skipped: list[Any] = []
        variable = fusion.last
        while True:
            activation = match_activation(variable, self._users, self._values)
            if activation is not None and not self._fused.intersection(activation.members):
                members = (*fusion.members, *skipped, *activation.members)
                assert isinstance(fusion.spec, FusedSpec)  # noqa: S101 - only FusedSpec can be extended
                spec = attrs.evolve(fusion.spec, activation=activation.name)
                return attrs.evolve(fusion, spec=spec, members=members)
            user = self._only_user(variable)
            if user is None:
                return fusion
            call = user.value
            variable = user.var
            skipped.append(variable)
            if str(call.op.name) == "relax.reshape":
                continue  # fused only if another operator follows
            extended = _add_epilogue(fusion, call, skipped)
            if extended is None:
                return fusion
            fusion = extended
            skipped = []

    def _only_user(self, variable: Any) -> Any | None:
        users = self._users[variable]
        if len(users) != 1 or users[0] is None or users[0].var in self._fused:
            return None
        call = users[0].value
        # In x + x, the other operand is no residual.
        once = operator_name(call) and sum(a.same_as(variable) for a in call.args) == 1
        return users[0] if once else None


def _add_epilogue(fusion: FusionGroup, call: Any, skipped: list[Any]) -> FusionGroup | None:
    """Extend a fusion group by a bias or residual that ``call`` adds, or None."""
    spec = fusion.spec
    assert isinstance(spec, FusedSpec)  # noqa: S101 - only FusedSpec can be extended
    if str(call.op.name) != "relax.add" or spec.residual:
        return None
    # A sum with a larger tensor broadcasts the result, which an epilogue cannot.
    if math.prod(shape_of(call)) != math.prod(shape_of(fusion.last)):
        return None
    extended = attrs.evolve(fusion, members=(*fusion.members, *skipped))
    other = next(a for a in call.args if not any(a.same_as(member) for member in extended.members))
    if isinstance(other, tvm.ir.GenericConst):
        bias = None if spec.bias else _channel_bias(array_of(other), spec, call)
        if bias is None:
            return None
        constants = attrs.evolve(fusion.constants, bias=bias)
        return attrs.evolve(extended, spec=attrs.evolve(spec, bias=True), constants=constants)
    if not isinstance(other, relax.Var) or shape_of(other) != shape_of(call):
        return None
    inputs = (*fusion.inputs, other)
    return attrs.evolve(extended, spec=attrs.evolve(spec, residual=True), inputs=inputs)


def _channel_bias(constant: NDArray[Any], spec: FusedSpec, call: Any) -> NDArray[Any] | None:
    """A constant as one number per channel, or None if it is something else."""
    rank = len(shape_of(call))
    first = isinstance(spec, ConvolutionSpec) and not is_channels_last(spec.output_layout)
    axis = 1 if first else rank - 1
    return per_channel(constant, rank=rank, axis=axis, channels=spec.output_channels)
