"""Attention in a network: products of queries and keys, their softmax, and what it weights."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from chameleon_tvm.operators.attention_specs import KEY_LAYOUTS, TOKENS_INSIDE, ordered
from chameleon_tvm.operators.specs import AttentionSpec
from numpy.typing import NDArray

from chameleon_networks.graph.constants import array_of
from chameleon_networks.graph.moves import shape_of
from chameleon_networks.graph.relaxed import operator_name, relax, tvm
from chameleon_networks.graph.strided import View, scalar_of, step_of, view_of_all, views_of
from chameleon_networks.graph.strides import dense_strides

_NEUTRAL = frozenset(
    f"relax.{name}"
    for name in ("reshape", "expand_dims", "squeeze", "flatten", "broadcast_to", "astype")
)
_HIDES = -1e4
"""What networks put in the places of hidden scores is at most this."""
_LEAST = float(np.finfo(np.float32).min)
_GUARD = {"logical_not", "astype", "max", "reshape", "any"}
"""Operators between the scores and whether all of a row are minus infinity."""


@attrs.frozen(kw_only=True, eq=False)
class Mask:
    """What is added to scores.

    Attributes:
        value: an array where it is constant, else an expression of the graph.
        shape: of the value, as many axes as the scores it is added to.
        scores: shape of those.
    """

    value: NDArray[Any] | Any
    shape: tuple[int, ...]
    scores: tuple[int, ...]


@attrs.frozen(kw_only=True, eq=False)
class SoftmaxInput:
    """What goes into a softmax.

    Attributes:
        product: the variable that is the product of queries and keys.
        factor: what it is multiplied with.
        masks: what is added.
        shape: of the scores, with as many axes as they have anywhere on the way.
        members: the variables on the way, the product included.
    """

    product: Any
    factor: float
    masks: tuple[Mask, ...]
    shape: tuple[int, ...]
    members: tuple[Any, ...]


class SoftmaxInputFinder:
    """Walks a graph backwards.

    Args:
        values: what its variables are bound to.
    """

    def __init__(self, values: Mapping[Any, Any]) -> None:
        self._values = values

    def of_powers(self, tensor: Any) -> SoftmaxInput | None:
        """The scores whose softmax a tensor is, shape aside; None where it is something else.

        Rows whose scores are all minus infinity may be replaced by zeros, as torch does.
        """
        tensor, passed = self._without_neutral(tensor)
        call = self._call(tensor)
        if _name(call) == "where":
            guarded = self._guarded(call)
            if guarded is None:
                return None
            passed = (*passed, tensor, *guarded[1])
            tensor = guarded[0]
            call = self._call(tensor)
        if _name(call) != "nn.softmax":
            return None
        rank = len(shape_of(call))
        if int(call.attrs.axis) % rank != rank - 1 or str(call.ty.dtype) != "float32":
            return None
        found = self._scores(call.args[0])
        return None if found is None else _longer(found, tensor, *passed)

    def _scores(self, tensor: Any) -> SoftmaxInput | None:
        call = self._call(tensor)
        name = _name(call)
        if name == "matmul":
            return SoftmaxInput(
                product=tensor,
                factor=1.0,
                masks=(),
                shape=shape_of(tensor),
                members=(tensor,),
            )
        found = None
        if _is_neutral(call):
            found = self._scores(call.args[0])
        elif name in {"multiply", "divide"}:
            found = self._scaled(call, name)
        elif name == "maximum":
            # Networks keep scores with masks finite; hidden ones stay hidden.
            number = scalar_of(call.args[1])
            found = self._scores(call.args[0]) if number is not None and number < _HIDES else None
        elif name == "add":
            found = self._added(call)
        elif name == "where":
            found = self._hidden(call)
        return None if found is None else _longer(found, tensor)

    def _scaled(self, call: Any, name: str) -> SoftmaxInput | None:
        left, right = call.args
        if name == "multiply" and scalar_of(left) is not None:
            left, right = right, left
        number = scalar_of(right)
        found = None if not number else self._scores(left)
        if number is None or found is None or found.masks:
            return None
        factor = 1.0 / number if name == "divide" else number
        return attrs.evolve(found, factor=found.factor * factor)

    def _added(self, call: Any) -> SoftmaxInput | None:
        shape = shape_of(call)
        for tensor, other in (call.args, reversed(call.args)):
            found = self._scores(tensor)
            if found is None or shape_of(tensor) != shape or str(other.ty.dtype) != "float32":
                continue
            constant = isinstance(other, tvm.ir.GenericConst)
            value = array_of(other) if constant else other
            return _masked(found, Mask(value=value, shape=shape_of(other), scores=shape))
        return None

    def _hidden(self, call: Any) -> SoftmaxInput | None:
        """Scores some of which are replaced by a number that a softmax makes zero."""
        seen, *tensors = call.args
        numbers = [scalar_of(one) for one in tensors]
        for place, number in enumerate(numbers):
            if number is None or number > _HIDES:
                continue
            tensor = tensors[1 - place]
            found = self._scores(tensor)
            if found is None or shape_of(tensor) != shape_of(call):
                continue
            # The least number swallows what it is added to, as if it were put in its place.
            low = number if math.isinf(number) else _LEAST
            pair = (low, 0.0) if place == 0 else (0.0, low)
            value: Any
            if isinstance(seen, tvm.ir.GenericConst):
                value = np.where(array_of(seen), *pair).astype(np.float32)
            else:
                value = relax.op.where(seen, *(relax.const(one, "float32") for one in pair))
            mask = Mask(value=value, shape=shape_of(seen), scores=shape_of(call))
            return _masked(found, mask)
        return None

    def _guarded(self, call: Any) -> tuple[Any, tuple[Any, ...]] | None:
        """The softmax that is kept unless all scores of a row are minus infinity, and the rest."""
        condition, zeros, softmax = call.args
        kept = self._call(softmax)
        constant = isinstance(zeros, tvm.ir.GenericConst)
        if _name(kept) != "nn.softmax" or not constant or array_of(zeros).any():
            return None
        passed = []
        while True:
            test = self._call(condition)
            if test is None:
                return None
            passed.append(condition)
            if _name(test) == "equal":
                break
            if _name(test) not in _GUARD:
                return None
            condition = test.args[0]
        same = test.args[0].same_as(kept.args[0]) and scalar_of(test.args[1]) == -math.inf
        return (softmax, tuple(passed)) if same else None

    def _without_neutral(self, tensor: Any) -> tuple[Any, tuple[Any, ...]]:
        passed = []
        while _is_neutral(call := self._call(tensor)):
            passed.append(tensor)
            tensor = call.args[0]
        return tensor, tuple(passed)

    def _call(self, tensor: Any) -> Any:
        """The call of an operator that a tensor is; None for everything else."""
        value = self._values.get(tensor) if isinstance(tensor, relax.Var) else None
        return value if operator_name(value) else None


def _name(call: Any) -> str:
    return operator_name(call).removeprefix("relax.")


def _is_neutral(call: Any) -> bool:
    """Whether a call changes neither the numbers of a tensor nor their order in memory."""
    if call is None or str(call.op.name) not in _NEUTRAL:
        return False
    before, after = call.args[0].ty, call.ty
    return str(before.dtype) == str(after.dtype) and math.prod(shape_of(call)) == math.prod(
        shape_of(call.args[0])
    )


def _longer(found: SoftmaxInput, *members: Any) -> SoftmaxInput:
    shape = max((found.shape, *(shape_of(one) for one in members[:1])), key=len)
    return attrs.evolve(found, members=(*found.members, *members), shape=shape)


def _masked(found: SoftmaxInput, mask: Mask) -> SoftmaxInput:
    return attrs.evolve(found, masks=(*found.masks, mask))


_SURELY_HIDES = -1e9
"""A mask of at most this hides a key, whatever its score."""
RANK = 4
"""Axes of scores: batch, heads, queries, keys."""


def four_axes(shape: tuple[int, ...]) -> tuple[int, int, int, int]:
    """Scores' shape as (batch, heads, queries, keys)."""
    padded = (*(1,) * (RANK - len(shape)), *shape)
    *batch, heads, queries, keys = padded
    return (math.prod(batch), heads, queries, keys)


@attrs.frozen(kw_only=True, eq=False)
class Masking:
    """What all masks together add to scores, with axes (batch, heads, queries, keys)."""

    constant: NDArray[Any] | None = None
    computed: Any = None
    computed_shape: tuple[int, ...] = ()

    @classmethod
    def of(cls, mask: Mask, scores: tuple[int, ...]) -> Masking | None:
        """A mask with the axes of the scores; None where it has none of these shapes."""
        shape = _mask_shape(mask, scores)
        if shape is None:
            return None
        if isinstance(mask.value, np.ndarray):
            return cls(constant=mask.value.reshape(shape))
        value = mask.value if mask.shape == shape else relax.op.reshape(mask.value, list(shape))
        return cls(computed=value, computed_shape=shape)

    def __add__(self, other: Masking) -> Masking:
        constants = [one for one in (self.constant, other.constant) if one is not None]
        computed = [one for one in (self, other) if one.computed is not None]
        value = computed[0].computed if computed else None
        shape = computed[0].computed_shape if computed else ()
        for one in computed[1:]:
            value = relax.op.add(value, one.computed)
            shape = tuple(np.broadcast_shapes(shape, one.computed_shape))
        return Masking(
            constant=functools.reduce(np.add, constants) if constants else None,
            computed=value,
            computed_shape=shape,
        )

    @property
    def causal(self) -> bool:
        """Whether the mask does nothing but hide later keys."""
        if self.constant is None or self.computed is not None:
            return False
        seen = np.tri(*self.constant.shape[2:], dtype=np.bool_)
        later = self.constant[..., ~seen]
        return bool(
            later.size and (later <= _SURELY_HIDES).all() and not self.constant[..., seen].any()
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the input there is to add; empty for none."""
        if self.computed is not None:
            constant = () if self.constant is None else self.constant.shape
            return tuple(np.broadcast_shapes(self.computed_shape, constant))
        if self.constant is None or self.causal or not self.constant.any():
            return ()
        return self.constant.shape

    @property
    def inputs(self) -> tuple[Any, ...]:
        """The expression to add, if any."""
        if not self.shape:
            return ()
        if self.constant is None:
            return (self.computed,)
        constant = relax.const(np.ascontiguousarray(self.constant, np.float32))
        return (constant if self.computed is None else relax.op.add(self.computed, constant),)


def masking_of(masks: Sequence[Mask], scores: tuple[int, ...]) -> Masking | None:
    """The sum of masks; None where one has a shape that no kernel reads."""
    total = Masking()
    for mask in masks:
        one = Masking.of(mask, scores)
        if one is None:
            return None
        total = total + one
    return total


def _mask_shape(mask: Mask, scores: tuple[int, ...]) -> tuple[int, ...] | None:
    """A mask's shape with the axes (batch, heads, queries, keys) of the scores."""
    rank = len(mask.scores)
    shape = (*(1,) * (rank - len(mask.shape)), *mask.shape)
    leading, whole = shape[:-2], mask.scores[:-2]
    last = shape[-2:]
    if math.prod(leading) == 1:
        return (1, 1, *last)
    if leading == whole:
        return (*scores[:2], *last)
    if rank < RANK or four_axes(mask.scores) != scores:
        return None
    *batch, heads = leading
    if math.prod(batch) == 1 or tuple(batch) == tuple(whole[:-1]):
        return (math.prod(batch), heads, *last)
    return None


def readers_of(
    inputs: Sequence[Any],
    members: Collection[Any],
    products: tuple[Any, Any],
    values: Mapping[Any, Any],
    users: Mapping[Any, Sequence[Any]],
) -> tuple[tuple[Any, ...], ...] | None:
    """For each input those that read it; None where others read what is between it and a product.

    Args:
        inputs: the arrays that queries, keys and values are views of.
        members: what the kernel replaces.
        products: of queries and keys, and of powers and values.
        values: what variables are bound to.
        users: the bindings that read a variable; None stands for the function's result.
    """
    found: list[dict[Any, None]] = [{} for _ in inputs]
    between: set[Any] = set()
    scores, mixed = products
    operands = [*((one, scores) for one in values[scores].args), (values[mixed].args[1], mixed)]
    for operand, product in operands:
        current, reader = operand, product
        while (place := _place_of(current, inputs)) is None:
            value = values.get(current)
            step = step_of(value, values)
            if step is None:
                return None
            reader = value.tuple_value if isinstance(value, relax.TupleGetItem) else current
            between.update((current, reader))
            current = step[0]
        found[place][reader] = None
    ours = between.union(members)
    read = [user for one in between for user in users[one]]
    if any(user is None or user.var not in ours for user in read):
        return None
    return tuple(tuple(one) for one in found)


def _place_of(tensor: Any, inputs: Sequence[Any]) -> int | None:
    return next((place for place, one in enumerate(inputs) if one.same_as(tensor)), None)


@attrs.frozen(kw_only=True, eq=False)
class AttentionMatch:
    """Attention found in a graph.

    Attributes:
        spec: what a kernel computes; unnamed.
        inputs: expressions of the graph it reads, in the operator's order.
        members: the variables that the kernel replaces, in the graph's order.
        readers: for each input but the mask the variables of the bindings that read it for this
            attention; None where something else reads what they compute.
    """

    spec: AttentionSpec
    inputs: tuple[Any, ...]
    members: tuple[Any, ...]
    readers: tuple[tuple[Any, ...], ...] | None = None


def attentions_of(
    bindings: Sequence[Any], values: Mapping[Any, Any], users: Mapping[Any, Sequence[Any]]
) -> list[AttentionMatch]:
    """Every attention of a network, in its order.

    Args:
        bindings: of the network's function, in order.
        values: what variables are bound to.
        users: the bindings that read a variable; None stands for the function's result.
    """
    finder = _Finder(bindings, values, users)
    return [match for binding in bindings if (match := finder.match(binding)) is not None]


@attrs.frozen(kw_only=True, eq=False)
class _Stored:
    """Queries, keys or values as a kernel may read them."""

    source: Any
    layout: str
    heads: int
    factor: float


class _Finder:
    def __init__(
        self,
        bindings: Sequence[Any],
        values: Mapping[Any, Any],
        users: Mapping[Any, Sequence[Any]],
    ) -> None:
        self._values = values
        self._users = users
        self._order = {binding.var: place for place, binding in enumerate(bindings)}
        self._scores = SoftmaxInputFinder(values)

    def match(self, binding: Any) -> AttentionMatch | None:
        """The attention whose product of powers and values a binding is; None for others."""
        call = binding.value
        scores = self._scores.of_powers(call.args[0]) if _is_product(call) else None
        if scores is None or not _is_product(self._values[scores.product]):
            return None
        shape = self._four(scores)
        if math.prod(shape) != math.prod(shape_of(scores.product)):
            return None  # one side of the product is broadcast, or scores are
        output, layout, after = self._output(binding.var, (*shape[:3], shape_of(call)[-1]))
        members = {*scores.members, binding.var, *after}
        masking = masking_of(scores.masks, shape)
        parts = self._parts(scores, call, shape)
        if masking is None or parts is None or not self._only_read_by(members, output):
            return None
        spec, inputs = parts
        changes: dict[str, Any] = {
            "output_layout": layout,
            "causal": masking.causal,
            "mask": masking.shape,
        }
        return AttentionMatch(
            spec=attrs.evolve(spec, **changes),
            inputs=(*inputs, *masking.inputs),
            members=tuple(sorted(members, key=self._order.__getitem__)),
            readers=readers_of(
                inputs, members, (scores.product, binding.var), self._values, self._users
            ),
        )

    def _four(self, scores: SoftmaxInput) -> tuple[int, int, int, int]:
        """Shape (batch, heads, queries, keys) of scores, of which both may be one axis."""
        batch, heads, queries, keys = four_axes(scores.shape)
        if len(scores.shape) < RANK:
            left = self._values[scores.product].args[0]
            for view in views_of(left, self._values):
                parts = view.axes[0] if len(view.axes) == len(scores.shape) else ()
                if len(parts) == 2:  # noqa: PLR2004 - samples apart, with the heads of one between
                    batch, heads = (extent for extent, _ in parts)
                    break
        return (batch, heads, queries, keys)

    def _only_read_by(self, members: set[Any], output: Any) -> bool:
        """Whether nothing else reads what the kernel does not store."""
        return all(
            user is not None and user.var in members
            for member in members
            if not member.same_as(output)
            for user in self._users[member]
        )

    def _output(self, product: Any, shape: tuple[int, ...]) -> tuple[Any, str, list[Any]]:
        """The last rearrangement of the output that a layout of ours is, and those on the way."""
        view = view_of_all(product).reshaped(shape)
        if view is None:
            return product, TOKENS_INSIDE[0], []
        wanted = {
            _memory(view.permuted(["BHSD".index(axis) for axis in layout])): layout
            for layout in reversed(TOKENS_INSIDE)
        }
        found = product, TOKENS_INSIDE[0], 0
        passed: list[Any] = []
        current: View | None = view_of_all(product)
        variable = product
        while current is not None:
            users = self._users[variable]
            if len(users) != 1 or users[0] is None:
                break
            step = step_of(users[0].value, self._values)
            if step is None or not step[0].same_as(variable):
                break
            current = step[1](current)
            variable = users[0].var
            passed.append(variable)
            layout = None
            if current is not None and current.factor == 1.0:
                layout = wanted.get(_memory(current))
            if layout is not None:
                found = variable, layout, len(passed)
        output, layout, count = found
        return output, layout, passed[:count]

    def _parts(
        self, scores: SoftmaxInput, mixed: Any, shape: tuple[int, ...]
    ) -> tuple[AttentionSpec, tuple[Any, ...]] | None:
        """The operator without mask and output, and the arrays it reads."""
        product = self._values[scores.product]
        left, right = product.args
        features, out_features = shape_of(left)[-1], shape_of(mixed)[-1]
        query = (*shape[:3], features)
        transposed = (*shape[:2], features, shape[3])
        value = (*shape[:2], shape[3], out_features)
        views = (
            self._views(left, product, query),
            [one.permuted((0, 1, 3, 2)) for one in self._views(right, product, transposed)],
            [one for one in self._views(mixed.args[1], mixed, value) if one.factor == 1.0],
        )
        return _packed(views, scores) or _apart(views, scores)

    def _views(self, tensor: Any, product: Any, shape: tuple[int, ...]) -> list[View]:
        """A side of a product as views of this shape."""
        batch = (*shape_of(product)[:-2], *shape_of(tensor)[-2:])
        found = (view.broadcast(batch).reshaped(shape) for view in views_of(tensor, self._values))
        return [view for view in found if view is not None]


def _packed(
    views: Sequence[Sequence[View]], scores: SoftmaxInput
) -> tuple[AttentionSpec, tuple[Any, ...]] | None:
    """The operator where one array holds query, key and value, heads after heads."""
    for query in views[0]:
        same = [[one for one in part if one.source.same_as(query.source)] for part in views[1:]]
        for key in same[0]:
            shared = _heads(key)
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
                    _heads(part) == count
                    and part.offset == first * features
                    and _strided(part, [strides["BSHD".index(axis)] for axis in "BHSD"])
                    for part, first, count in zip(
                        (query, key, value), firsts, (heads, shared, shared), strict=True
                    )
                )
                if fits:
                    one = _Stored(source=None, layout="BSHD", heads=shared, factor=1.0)
                    spec = _spec((query, key, value), (one, one, one), scores, packed=True)
                    return spec, (query.source,)
    return None


def _apart(
    views: Sequence[Sequence[View]], scores: SoftmaxInput
) -> tuple[AttentionSpec, tuple[Any, ...]] | None:
    """The operator where query, key and value are arrays of their own."""
    queries = list(_stored(views[0], TOKENS_INSIDE, shared=False))
    for key_view, key in _stored(views[1], KEY_LAYOUTS):
        for value_view, value in _stored(views[2], TOKENS_INSIDE):
            if not queries or key.heads != value.heads:
                continue
            query_view, query = queries[0]
            parts = (query, key, value)
            spec = _spec((query_view, key_view, value_view), parts, scores, packed=False)
            return spec, tuple(part.source for part in parts)
    return None


def _spec(
    views: Sequence[View], parts: Sequence[_Stored], scores: SoftmaxInput, *, packed: bool
) -> AttentionSpec:
    query, key, value = views
    shared = parts[1].heads
    layouts = [part.layout for part in parts]
    sizes: dict[str, Any] = {
        "query": query.shape,
        "key": (key.shape[0], shared, *key.shape[2:]),
        "value": (value.shape[0], shared, *value.shape[2:]),
    }
    return AttentionSpec(
        **sizes,
        scale=scores.factor * query.factor * key.factor,
        query_layout=layouts[0],
        key_layout=layouts[1],
        value_layout=layouts[2],
        packed=packed,
    )


def _stored(
    views: Sequence[View], layouts: Sequence[str], *, shared: bool = True
) -> Iterator[tuple[View, _Stored]]:
    """Views that are whole arrays in one of the layouts."""
    for view in views:
        heads = _heads(view)
        if heads is None or view.offset or (heads != view.shape[1] and not shared):
            continue
        shape = (view.shape[0], heads, *view.shape[2:])
        if math.prod(shape) != math.prod(shape_of(view.source)):
            continue
        for layout in layouts:
            strides = dense_strides(ordered(shape, layout))
            if _strided(view, [strides[layout.index(axis)] for axis in "BHSD"]):
                yield (
                    view,
                    _Stored(source=view.source, layout=layout, heads=heads, factor=view.factor),
                )
                break


def _heads(view: View) -> int | None:
    """How many heads a view has in memory, each of which as many neighbours may share."""
    axis = view.axes[1]
    if not axis:
        return 1
    if axis[-1][1] == 0:
        return 1 if len(axis) == 1 else (axis[0][0] if len(axis) == 2 else None)  # noqa: PLR2004
    return axis[0][0] if len(axis) == 1 else None


def _strided(view: View, strides: Sequence[int]) -> bool:
    """Whether axes have these strides; heads that are shared aside."""
    for place, (axis, stride) in enumerate(zip(view.axes, strides, strict=True)):
        parts = axis[:-1] if place == 1 and axis and axis[-1][1] == 0 else axis
        if len(parts) > 1 or (parts and parts[0][1] != stride):
            return False
    return True


def _memory(view: View) -> tuple[tuple[int, int], ...]:
    """The order in which a view walks through memory, whatever its shape."""
    flat = view.reshaped((math.prod(view.shape),))
    return flat.axes[0] if flat is not None else tuple(p for axis in view.axes for p in axis)


def _is_product(call: Any) -> bool:
    return (
        operator_name(call) == "relax.matmul"
        and str(call.ty.dtype) == str(call.args[0].ty.dtype) == "float32"
        and min(len(shape_of(one)) for one in call.args) > 2  # noqa: PLR2004
    )
