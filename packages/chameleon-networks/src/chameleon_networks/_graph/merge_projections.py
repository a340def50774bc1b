"""Merges the products that project one tensor to the queries, keys and values of an attention.

One larger product reads the tensor once, and starts threads once. The attention then reads its
queries, keys and values from one array, as in networks that are written with one projection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from chameleon_networks._graph.attention_operators import find_attentions
from chameleon_networks._graph.constants import array_of, constant_of, per_channel
from chameleon_networks._graph.relax_utils import (
    bindings_of,
    emit_like,
    mutate,
    operator_name,
    relax,
    shape_of,
    tvm,
    users_of,
    values_of,
)

_MERGED = "merged_products"
"""Attribute of a function: the units of the products that each merged product replaces, by the name
of the merged product's variable."""

_LAYOUT = "BSHD"


def merged_units(function: Any) -> dict[str, tuple[int, ...]]:
    """The units of the products that each merged product of a function replaces, by variable."""
    known = function.attrs.get(_MERGED) if function.attrs else None
    return {str(name): tuple(map(int, units)) for name, units in (known or {}).items()}


def merge_projections(module: Any) -> Any:
    """Merge the products before each attention that reads three products of the same tensor."""
    function = module["main"]
    bindings, values, users = bindings_of(function), values_of(function), users_of(function)
    merger = _ProjectionMerger(module)
    for attention in find_attentions(bindings, values, users):
        spec: Any = attention.spec
        layouts = {spec.query_layout, spec.key_layout, spec.value_layout}
        fits = layouts == {_LAYOUT} and spec.query[2:] == spec.key[2:] == spec.value[2:]
        if fits and not spec.packed:
            parts = [_projection_of(part, values, users) for part in attention.inputs[:3]]
            merger.merge([part for part in parts if part is not None])
    if not merger.replaced:
        return module
    merged = mutate(module, merger)
    merged["main"] = merged["main"].with_attr(_MERGED, merger.units)
    return merged


@attrs.frozen(kw_only=True, eq=False)
class _Projection:
    """A product of a tensor and a constant matrix, and a bias.

    Attributes:
        variable: The variable of the sum, or of the product if it has no bias.
        data: The tensor, of shape (axes of rows, features).
        source: The tensor before all reshapes.
        weights: The matrix, of shape (features, units).
        bias: One number for each unit, or None.
    """

    variable: Any
    data: Any
    source: Any
    weights: NDArray[Any]
    bias: NDArray[Any] | None


def _projection_of(
    variable: Any, values: Mapping[Any, Any], users: Mapping[Any, Sequence[Any]]
) -> _Projection | None:
    """The projection that ends with a variable which only one operator reads, or None."""
    call: Any = values.get(variable)
    bias = None
    product = variable
    if operator_name(call) == "relax.add":
        product, constant = call.args if isinstance(call.args[0], relax.Var) else call.args[::-1]
        if not isinstance(constant, tvm.ir.GenericConst) or not isinstance(product, relax.Var):
            return None
        shape = shape_of(call)
        bias = per_channel(
            array_of(constant), rank=len(shape), axis=len(shape) - 1, channels=shape[-1]
        )
        if bias is None or shape != shape_of(product) or len(users[product]) != 1:
            return None
        call = values.get(product)
    if operator_name(call) != "relax.matmul" or len(users[variable]) != 1:
        return None
    data, constant = call.args
    if not isinstance(data, relax.Var) or not isinstance(constant, tvm.ir.GenericConst):
        return None
    source, origin = data, values.get(data)
    while origin is not None and operator_name(origin) == "relax.reshape":
        source = origin.args[0]
        origin = values.get(source)
    weights = array_of(constant)
    if weights.ndim != 2 or str(call.ty.dtype) != str(weights.dtype):  # noqa: PLR2004 - a matrix
        return None
    return _Projection(variable=variable, data=data, source=source, weights=weights, bias=bias)


@relax.expr_functor.mutator
class _ProjectionMerger(relax.PyExprMutator):
    """Rewrites the first of several projections to their merged product, all to its parts.

    Attributes:
        replaced: The projections that each variable is a part of.
        units: The units of the products that each merged product replaces, by its variable.
    """

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self.replaced: dict[Any, tuple[Sequence[_Projection], int]] = {}
        self.units: dict[str, list[int]] = {}
        self._split: dict[Any, Any] = {}

    def merge(self, projections: Sequence[_Projection]) -> None:
        """Merge the three projections to queries, keys and values if they read one tensor."""
        variables = {projection.variable for projection in projections}
        same = all(
            projection.source.same_as(projections[0].source)
            and shape_of(projection.data) == shape_of(projections[0].data)
            and projection.weights.dtype == projections[0].weights.dtype
            for projection in projections
        )
        if same and len(variables) == 3 and not variables & self.replaced.keys():  # noqa: PLR2004
            for index, projection in enumerate(projections):
                self.replaced[projection.variable] = projections, index

    def visit_var_binding_(self, binding: Any) -> None:
        if binding.var not in self.replaced:
            super().visit_var_binding_(binding)
            return
        projections, index = self.replaced[binding.var]
        first = projections[0].variable
        if first not in self._split:
            # Each projection may read a reshape of its own, which may come later.
            self._split[first] = self._merged(projections, projections[index].data)
        part = relax.TupleGetItem(self._split[first], index)
        self.set_var_remap(binding.var, emit_like(self.builder_, part, binding.var))

    def _merged(self, projections: Sequence[_Projection], data: Any) -> Any:
        """Emit the merged product of some data, its bias and its parts."""
        emit = self.builder_.emit
        weights = constant_of(np.concatenate([each.weights for each in projections], axis=1))
        # No variable of an importer or another pass has such a name.
        product = emit(relax.op.matmul(self.visit_expr(data), weights), _MERGED)
        units = [each.weights.shape[1] for each in projections]
        self.units[str(product.name)] = units
        biases = [
            np.zeros(count, each.weights.dtype) if each.bias is None else each.bias
            for each, count in zip(projections, units, strict=True)
        ]
        if any(each.bias is not None for each in projections):
            product = emit(relax.op.add(product, constant_of(np.concatenate(biases))))
        ends = np.cumsum(units)[:-1].tolist()
        return emit(relax.op.split(product, ends, axis=-1))
