"""Finds attention in a network: a product of queries and keys, its softmax, a weighted sum."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
from chameleon_tvm.api import KEY_LAYOUTS, AttentionSpec, ordered

from chameleon_networks._graph import attention_scores
from chameleon_networks._graph.attention_scores import SoftmaxInput, SoftmaxInputFinder
from chameleon_networks._graph.fusion_groups import FusionGroup
from chameleon_networks._graph.relax_utils import operator_name, shape_of
from chameleon_networks._graph.strided_views import (
    StridedView,
    identity_view,
    rearrangement_of,
    views_of,
)
from chameleon_networks._graph.strides import dense_strides

*_TOKENS_INSIDE, _ = KEY_LAYOUTS
"""Layouts of queries, values and outputs: those of keys without the transposed one."""


def find_attentions(
    bindings: Sequence[Any], values: Mapping[Any, Any], users: Mapping[Any, Sequence[Any]]
) -> list[FusionGroup]:
    """Find every attention of a network, in order."""
    finder = _AttentionFinder(bindings, values, users)
    return [match for binding in bindings if (match := finder.match(binding)) is not None]


@attrs.frozen(eq=False)
class _OperandLayout:
    """Queries, keys or values as a view of an array, with its layout and stored heads."""

    view: StridedView
    layout: str
    heads: int


class _AttentionFinder:
    def __init__(
        self, bindings: Sequence[Any], values: Mapping[Any, Any], users: Mapping[Any, Sequence[Any]]
    ) -> None:
        self._values = values
        self._users = users
        self._order = {binding.var: position for position, binding in enumerate(bindings)}
        self._scores = SoftmaxInputFinder(values)

    def match(self, binding: Any) -> FusionGroup | None:
        """The attention whose last matrix product a binding computes, or None."""
        call = binding.value
        scores = self._scores.of_powers(call.args[0]) if _is_product(call) else None
        if scores is None or not _is_product(self._values[scores.product]):
            return None
        shape = self._four(scores)
        if math.prod(shape) != math.prod(shape_of(scores.product)):
            return None  # broadcast operands or scores are not supported
        output, layout, after = self._output(binding.var, (*shape[:3], shape_of(call)[-1]))
        members = {*scores.members, binding.var, *after}
        masking = attention_scores.masking_of(scores.masks, shape, guarded=scores.guarded)
        parts = self._parts(scores, call, shape)
        if masking is None or parts is None or not self._only_read_by(members, output):
            return None
        spec, inputs = parts
        return FusionGroup(
            spec=attrs.evolve(
                spec, output_layout=layout, causal=masking.causal, mask=masking.shape
            ),
            inputs=(*inputs, *masking.inputs),
            members=tuple(sorted(members, key=self._order.__getitem__)),
            readers=attention_scores.readers_of(
                inputs, members, (scores.product, binding.var), self._values, self._users
            ),
        )

    def _four(self, scores: SoftmaxInput) -> tuple[int, int, int, int]:
        """The shape of scores as (batch, heads, queries, keys), even if the graph merges axes."""
        batch, heads, queries, keys = attention_scores.scores_shape(scores.shape)
        if len(scores.shape) < attention_scores.RANK:
            left = self._values[scores.product].args[0]
            for view in views_of(left, self._values):
                parts = view.axes[0] if len(view.axes) == len(scores.shape) else ()
                if len(parts) == 2:  # noqa: PLR2004 - an axis of samples and heads
                    batch, heads = (extent for extent, _ in parts)
                    break
        return (batch, heads, queries, keys)

    def _only_read_by(self, members: set[Any], output: Any) -> bool:
        """Whether only the attention itself reads the variables that its kernel does not store."""
        return all(
            user is not None and user.var in members
            for member in members
            if not member.same_as(output)
            for user in self._users[member]
        )

    def _output(self, product: Any, shape: tuple[int, ...]) -> tuple[Any, str, list[Any]]:
        """The last rearranged output that a kernel can write, and its layout and operators."""
        view = identity_view(product).reshaped(shape)
        if view is None:
            return product, _TOKENS_INSIDE[0], []
        wanted = {
            _memory_order(view.permuted(["BHSD".index(axis) for axis in layout])): layout
            for layout in reversed(_TOKENS_INSIDE)
        }
        match = product, _TOKENS_INSIDE[0], 0
        passed: list[Any] = []
        current: StridedView | None = identity_view(product)
        variable = product
        while current is not None:
            users = self._users[variable]
            if len(users) != 1 or users[0] is None:
                break
            step = rearrangement_of(users[0].value, self._values)
            if step is None or not step[0].same_as(variable):
                break
            current = step[1](current)
            variable = users[0].var
            passed.append(variable)
            layout = None
            if current is not None and current.factor == 1.0:
                layout = wanted.get(_memory_order(current))
            if layout is not None:
                match = variable, layout, len(passed)
        output, layout, count = match
        return output, layout, passed[:count]

    def _parts(
        self, scores: SoftmaxInput, mixed: Any, shape: tuple[int, ...]
    ) -> tuple[AttentionSpec, tuple[Any, ...]] | None:
        """The operator without its mask and output layout, and the arrays that it reads."""
        product = self._values[scores.product]
        left, right = product.args
        features, out_features = shape_of(left)[-1], shape_of(mixed)[-1]
        query = (*shape[:3], features)
        transposed = (*shape[:2], features, shape[3])
        value = (*shape[:2], shape[3], out_features)
        views = (
            self._views(left, product, query),
            [view.permuted((0, 1, 3, 2)) for view in self._views(right, product, transposed)],
            [view for view in self._views(mixed.args[1], mixed, value) if view.factor == 1.0],
        )
        return _match_packed(views, scores) or _match_separate(views, scores)

    def _views(self, tensor: Any, product: Any, shape: tuple[int, ...]) -> list[StridedView]:
        """The views of a product's operand that have the given shape."""
        batch = (*shape_of(product)[:-2], *shape_of(tensor)[-2:])
        views = (view.broadcast(batch).reshaped(shape) for view in views_of(tensor, self._values))
        return [view for view in views if view is not None]


def _match_packed(
    views: Sequence[Sequence[StridedView]], scores: SoftmaxInput
) -> tuple[AttentionSpec, tuple[Any, ...]] | None:
    """The operator if one array holds query, key and value, all heads of each, or None."""
    for query in views[0]:
        same = [[view for view in part if view.source.same_as(query.source)] for part in views[1:]]
        for key in same[0]:
            shared = _stored_heads(key)
            batch, heads, tokens, features = query.shape
            if shared is None or key.shape[2:] != (tokens, features):
                continue
            everything = (batch, tokens, heads + 2 * shared, features)
            if math.prod(shape_of(query.source)) != math.prod(everything):
                continue
            strides = dense_strides(everything)
            firsts = (0, heads, heads + shared)
            for value in same[1]:
                fits = value.shape == key.shape and all(
                    _stored_heads(part) == count
                    and part.offset == first * features
                    and _has_strides(part, [strides["BSHD".index(axis)] for axis in "BHSD"])
                    for part, first, count in zip(
                        (query, key, value), firsts, (heads, shared, shared), strict=True
                    )
                )
                if fits:
                    parts = [_OperandLayout(view, "BSHD", shared) for view in (query, key, value)]
                    return _spec(parts, scores, packed=True), (query.source,)
    return None


def _match_separate(
    views: Sequence[Sequence[StridedView]], scores: SoftmaxInput
) -> tuple[AttentionSpec, tuple[Any, ...]] | None:
    """The operator if query, key and value are separate arrays, or None."""
    query = next(_match_layouts(views[0], _TOKENS_INSIDE, shared=False), None)
    if query is None:
        return None
    for key in _match_layouts(views[1], KEY_LAYOUTS):
        for value in _match_layouts(views[2], _TOKENS_INSIDE):
            if key.heads == value.heads:
                parts = (query, key, value)
                spec = _spec(parts, scores, packed=False)
                return spec, tuple(part.view.source for part in parts)
    return None


def _spec(parts: Sequence[_OperandLayout], scores: SoftmaxInput, *, packed: bool) -> AttentionSpec:
    query, key, value = (part.view for part in parts)
    shared = parts[1].heads
    sizes: dict[str, Any] = {
        "query": query.shape,
        "key": (key.shape[0], shared, *key.shape[2:]),
        "value": (value.shape[0], shared, *value.shape[2:]),
    }
    return AttentionSpec(
        **sizes,
        scale=scores.factor * query.factor * key.factor,
        query_layout=parts[0].layout,
        key_layout=parts[1].layout,
        value_layout=parts[2].layout,
        packed=packed,
    )


def _match_layouts(
    views: Sequence[StridedView], layouts: Sequence[str], *, shared: bool = True
) -> Iterator[_OperandLayout]:
    """Yield the views that are complete arrays in one of the layouts."""
    for view in views:
        heads = _stored_heads(view)
        if heads is None or view.offset or (heads != view.shape[1] and not shared):
            continue
        shape = (view.shape[0], heads, *view.shape[2:])
        if math.prod(shape) != math.prod(shape_of(view.source)):
            continue
        for layout in layouts:
            strides = dense_strides(ordered(shape, layout))
            if _has_strides(view, [strides[layout.index(axis)] for axis in "BHSD"]):
                yield _OperandLayout(view, layout, heads)
                break


def _stored_heads(view: StridedView) -> int | None:
    """How many heads of a view are stored, if neighbouring heads share keys, or None."""
    axis = view.axes[1]
    if not axis:
        return 1
    if axis[-1][1] == 0:
        return 1 if len(axis) == 1 else (axis[0][0] if len(axis) == 2 else None)  # noqa: PLR2004
    return axis[0][0] if len(axis) == 1 else None


def _has_strides(view: StridedView, strides: Sequence[int]) -> bool:
    """Whether the axes of a view have the given strides, apart from shared heads."""
    for position, (axis, stride) in enumerate(zip(view.axes, strides, strict=True)):
        parts = axis[:-1] if position == 1 and axis and axis[-1][1] == 0 else axis
        if len(parts) > 1 or (parts and parts[0][1] != stride):
            return False
    return True


def _memory_order(view: StridedView) -> tuple[tuple[int, int], ...]:
    """The order in which a view walks through memory, for any shape of the view."""
    flat = view.reshaped((math.prod(view.shape),))
    return flat.axes[0] if flat is not None else tuple(p for axis in view.axes for p in axis)


def _is_product(call: Any) -> bool:
    return (
        operator_name(call) == "relax.matmul"
        and str(call.ty.dtype) == str(call.args[0].ty.dtype) == "float32"
        and min(len(shape_of(operand)) for operand in call.args) > 2  # noqa: PLR2004
    )
