"""Tensors whose extent along an axis is known only after the operator that computes them.

Such a tensor has the largest possible extent, and a count says how many of its elements are valid.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import attrs
from chameleon_core.plugin_api import ConfigError
from chameleon_tvm.api import emit, tirx

from chameleon_networks._graph.constants import ELEMENTWISE, array_of, slices_of
from chameleon_networks._graph.relax_utils import (
    COUNTED,
    COUNTS_ATTRIBUTE,
    axes_of,
    bindings_of,
    is_counted,
    opaque_loops,
    operator_name,
    relax,
    shape_of,
    sort_key,
    state_count,
    tvm,
    values_of,
)

COUNTED_ATTRIBUTE = "chameleon.counted"
"""The attribute of a kernel with the number of its first results that are counted.

They are counted along their first axis. The last result is the count.
"""

_SAME_DEPTH = 8
"""So many operators before a mask may be repeated."""

COUNTED_SIZE = "the size of an axis that it reads is known only when the network runs"
"""The beginning of the reason why an operator cannot read a counted tensor."""

Axes = Mapping[int, Any]
"""The variable with the count of each counted axis of a tensor."""


class CountedSizeError(Exception):
    """An operator would compute with elements beyond the count. The message gives the reason."""


# Analysis of a graph: the axes of each tensor that are counted.


class CountedAxes:
    """Finds out which axes of a graph's tensors are counted.

    Elements beyond a count have any value, so an operator must not mix them with others.

    Args:
        value_of: A function that returns the value of a variable, or None for a parameter.
        function_of: A function that returns the function of a global variable.

    Attributes:
        places: The chosen places by what they were chosen from, so that equal masks have one count.
    """

    def __init__(self, value_of: Callable[[Any], Any], function_of: Callable[[Any], Any]) -> None:
        self._value_of, self._function_of = value_of, function_of
        self._known: dict[Any, Axes] = {}
        self.places: dict[Any, Any] = {}

    @classmethod
    def in_module(cls, module: Any) -> CountedAxes:
        """The counted axes of a module's ``main``."""
        return cls(values_of(module["main"]).get, lambda variable: module[variable])

    @classmethod
    def in_builder(cls, builder: Any) -> CountedAxes:
        """The counted axes of the function that a builder makes."""
        return cls(builder.lookup_binding, lambda variable: builder.get()[variable])

    def of(self, value: Any) -> Axes:
        """The counted axes of a tensor, each with the variable that has its count.

        Raises:
            CountedSizeError: An operator mixes elements along a counted axis.
        """
        # Without recursion, which long networks would exceed.
        left = [value] if isinstance(value, relax.Var) else [*relax.analysis.free_vars(value)]
        while left:
            variable = left[-1]
            if variable in self._known:
                left.pop()
                continue
            own = self._value_of(variable)
            reads = [] if own is None else relax.analysis.free_vars(own)
            missing = [one for one in reads if one not in self._known and one is not variable]
            if missing:
                left += missing
                continue
            self._known[variable] = {} if own is None else self._of_value(own)
            left.pop()
        return self._of_value(value)

    def key_of(self, value: Any, depth: int = _SAME_DEPTH) -> Any:
        """A key that tensors share if the same operators compute them, up to some depth."""
        own = self._value_of(value) if isinstance(value, relax.Var) else value
        is_scalar = isinstance(own, tvm.ir.GenericConst) and not own.ty.ndim
        if isinstance(own, relax.Var):
            key = self.key_of(own, depth)
        elif isinstance(own, relax.Tuple):
            key = tuple(self.key_of(field, depth) for field in own.fields)
        elif isinstance(own, relax.Call) and depth:
            parts = (self.key_of(argument, depth - 1) for argument in own.args)
            key = (operator_name(own), str(own.attrs), str(own.ty), *parts)
        elif is_scalar:
            key = (str(own.ty.dtype), array_of(own).item())
        else:
            is_number = isinstance(value, relax.Var | relax.Call | tvm.ir.GenericConst)
            key = value if is_number else str(value)
        return key

    def _of_value(self, value: Any) -> Axes:
        if isinstance(value, relax.Var):
            return self._known[value]
        if isinstance(value, relax.TupleGetItem):
            return self._of_part(value)
        # The fields of tuples are looked up one by one.
        return self._of_call(value) if isinstance(value, relax.Call) else {}

    def _of_call(self, value: Any) -> Axes:
        """The counted axes of an operator's result."""
        kernel = value.args[0] if operator_name(value) == "relax.call_tir" else None
        if kernel is not None and str(kernel.name_hint).startswith((COUNTED, _FILLED)):
            return {}  # the kernel reads no element beyond a count
        tensors = self._tensors(value.args)
        counted = [self._of_value(tensor) for tensor in tensors]
        if not any(counted):
            return {}
        if operator_name(value) == "relax.take" and self._is_place(tensors[1]):
            # Places of chosen elements are places of elements that count.
            axis = int(value.attrs.axis or 0) % len(shape_of(tensors[0]))
            counted[0] = {at: count for at, count in counted[0].items() if at != axis}
        rule = _RULES.get(operator_name(value))
        if rule is None:
            raise CountedSizeError(f"{COUNTED_SIZE}, and it may mix elements along it")
        return rule(value, tensors, counted)

    def _is_place(self, value: Any) -> bool:
        """Whether a tensor has places that a kernel chose."""
        while True:
            own = self._value_of(value) if isinstance(value, relax.Var) else value
            name = operator_name(own)
            if isinstance(own, relax.TupleGetItem):
                return own.index == 0 and is_counted(self._value_of(own.tuple_value))
            if name == "relax.where":  # of negative indices
                value = own.args[2]
            elif name in _MOVES:
                value = own.args[0]
            elif isinstance(own, relax.Var):
                value = own
            else:
                return False

    def _of_part(self, part: Any) -> Axes:
        """The counted axes of a part of a tuple."""
        whole = part.tuple_value
        value = self._value_of(whole) if isinstance(whole, relax.Var) else whole
        while isinstance(value, relax.Var):
            whole, value = value, self._value_of(value)
        if isinstance(value, relax.Tuple):
            return self.of(value.fields[part.index])
        if operator_name(value) == "relax.call_tir":
            function = self._function_of(value.args[0])
            number = int((function.attrs or {}).get(COUNTED_ATTRIBUTE, 0))
            if part.index < number:
                last = len(value.ty_args[0].fields) - 1
                return {0: _Count(whole, last)}
            return {}
        return self._known.get(whole, {}) if isinstance(whole, relax.Var) else {}

    def _tensors(self, arguments: Iterable[Any]) -> list[Any]:
        """The tensors among the arguments of a call, also those in a tuple."""
        found: list[Any] = []
        for argument in arguments:
            kind = getattr(argument, "ty", None)
            value = argument
            while isinstance(value, relax.Var) and isinstance(kind, relax.TupleType):
                if self._known[value]:
                    raise CountedSizeError(f"{COUNTED_SIZE}, and it reads several tensors at once")
                value = self._value_of(value)
            if isinstance(value, relax.Tuple):
                found += self._tensors(value.fields)
            elif isinstance(kind, relax.TensorType):
                found.append(argument)
        return found


@attrs.frozen
class _Count:
    """A count: a part of the tuple that a kernel gives."""

    whole: Any
    index: int


Rule = Callable[[Any, Sequence[Any], Sequence[Axes]], Axes]
"""A function of a call, the tensors that it reads and their counted axes. It returns the counted
axes of the result."""


def _mixes(what: str) -> CountedSizeError:
    return CountedSizeError(f"{COUNTED_SIZE}, and it {what} along this axis")


def _broadcast(call: Any, tensors: Sequence[Any], counted: Sequence[Axes]) -> Axes:
    """Element-wise operators: each operand has the same count along an axis, or extent 1."""
    result_shape = shape_of(call)
    result: dict[int, Any] = {}
    for tensor, axes in zip(tensors, counted, strict=True):
        before = len(result_shape) - len(shape_of(tensor))
        for axis, count in axes.items():
            if shape_of(tensor)[axis] != result_shape[before + axis]:
                raise _mixes("combines elements with those of other tensors")
            if result.setdefault(before + axis, count) != count:
                raise _mixes("combines elements with those of another count")
    for tensor, axes in zip(tensors, counted, strict=True):
        shape = shape_of(tensor)
        before = len(result_shape) - len(shape)
        for axis in result:
            own = axis - before
            if own >= 0 and own not in axes and shape[own] != 1:
                raise _mixes("combines elements with those of a tensor of fixed size")
    return result


def _reshape(call: Any, tensors: Sequence[Any], counted: Sequence[Axes]) -> Axes:
    """Reshapes in which the counted axis stays whole."""
    before, after = shape_of(tensors[0]), shape_of(call)
    result = {}
    for axis, count in counted[0].items():
        outer = math.prod(before[:axis])
        places = [
            place
            for place, extent in enumerate(after)
            if extent == before[axis] and math.prod(after[:place]) == outer
        ]
        if len(places) != 1:
            raise _mixes("splits or joins elements")
        result[places[0]] = count
    return result


def _expand_dims(call: Any, _tensors: Sequence[Any], counted: Sequence[Axes]) -> Axes:
    rank = len(shape_of(call))
    added = {int(axis) % rank for axis in call.attrs.axis}
    kept = [axis for axis in range(rank) if axis not in added]
    return {kept[axis]: count for axis, count in counted[0].items()}


def _squeeze(call: Any, tensors: Sequence[Any], counted: Sequence[Axes]) -> Axes:
    shape, axes = shape_of(tensors[0]), call.attrs.axis
    # Without axes, an axis of one element goes away, even if other calls have more.
    removed = [] if axes is None else [int(axis) % len(shape) for axis in axes]
    if axes is None or not counted[0].keys().isdisjoint(removed):
        raise _mixes("leaves out axes of one element")
    kept = [axis for axis in range(len(shape)) if axis not in removed]
    return {kept.index(axis): count for axis, count in counted[0].items()}


def _permute(call: Any, _tensors: Sequence[Any], counted: Sequence[Axes]) -> Axes:
    order = axes_of(call)
    return {order.index(axis): count for axis, count in counted[0].items()}


def _slice(call: Any, tensors: Sequence[Any], counted: Sequence[Axes]) -> Axes:
    """Slices along other axes, or from the first element to one that is given."""
    rank = len(shape_of(tensors[0]))
    for axis, begin, end, step in slices_of(call):
        if axis % rank in counted[0] and (begin != 0 or step != 1 or end < 0):
            raise _mixes("takes a slice that does not begin at the first element")
    return counted[0]


def _concat(call: Any, _tensors: Sequence[Any], counted: Sequence[Axes]) -> Axes:
    axis = int(call.attrs.axis) % len(shape_of(call))
    if any(axis in axes for axes in counted):
        raise _mixes("joins tensors")
    first = next(filter(None, counted))
    if any(axes != first for axes in counted):
        raise _mixes("joins tensors with other sizes")
    return first


def _split(call: Any, tensors: Sequence[Any], counted: Sequence[Axes]) -> Axes:
    used = _used_axes(call, tensors)
    if not used.isdisjoint(counted[0]):
        raise _mixes("splits the tensor")
    return counted[0]


def _used_axes(call: Any, tensors: Sequence[Any]) -> set[int]:
    """The axes along which an operator works."""
    rank, axes = len(shape_of(tensors[0])), call.attrs.axis
    if axes is None:
        return set(range(rank))
    listed = [axes] if isinstance(axes, int | tirx.IntImm) else axes
    return {int(axis) % rank for axis in listed}


def _along(call: Any, tensors: Sequence[Any], counted: Sequence[Axes]) -> Axes:
    """Operators along other axes that keep all axes, such as softmax and sorts."""
    if not _used_axes(call, tensors).isdisjoint(counted[0]):
        raise _mixes("mixes elements")
    return counted[0]


def _reduce(call: Any, tensors: Sequence[Any], counted: Sequence[Axes]) -> Axes:
    """Reductions along other axes."""
    axes, used = _along(call, tensors, counted), _used_axes(call, tensors)
    if call.attrs.keepdims:
        return axes
    kept = [axis for axis in range(len(shape_of(tensors[0]))) if axis not in used]
    return {kept.index(axis): count for axis, count in axes.items()}


def _take(call: Any, tensors: Sequence[Any], counted: Sequence[Axes]) -> Axes:
    """``take``: the axes of the indices replace one axis of the data."""
    (data, indices), (of_data, of_indices) = tensors, counted
    axis = int(call.attrs.axis or 0) % len(shape_of(data))
    if axis in of_data:
        raise _mixes("reads elements at given places")
    more = len(shape_of(indices)) - 1
    moved = {at if at < axis else at + more: count for at, count in of_data.items()}
    return {**moved, **{axis + at: count for at, count in of_indices.items()}}


def _gather_elements(call: Any, tensors: Sequence[Any], counted: Sequence[Axes]) -> Axes:
    (data, _), (of_data, of_indices) = tensors, counted
    axis = int(call.attrs.axis) % len(shape_of(data))
    if axis in of_data:
        raise _mixes("reads elements at given places")
    if any(of_indices.get(at) != count for at, count in of_data.items()):
        raise _mixes("combines elements with those of other tensors")
    return of_indices


def _gather_nd(call: Any, tensors: Sequence[Any], counted: Sequence[Axes]) -> Axes:
    (_, indices), (of_data, of_indices) = tensors, counted
    if of_data or len(shape_of(indices)) - 1 in of_indices or int(call.attrs.batch_dims):
        raise _mixes("reads elements at given places")
    return of_indices


def _index_tensor(_call: Any, tensors: Sequence[Any], counted: Sequence[Axes]) -> Axes:
    of_data, *of_indices = counted
    shapes = {tuple(shape_of(index)) for index in tensors[1:]}
    if of_data or len(shapes) > 1 or any(axes != of_indices[0] for axes in of_indices):
        raise _mixes("reads elements at given places")
    return of_indices[0]


def _matmul(call: Any, tensors: Sequence[Any], counted: Sequence[Axes]) -> Axes:
    """Products whose rows or columns are counted."""
    ranks = [len(shape_of(tensor)) for tensor in tensors]
    rank = len(shape_of(call))
    result = {}
    for own, outer, axes in zip(ranks, (2, 1), counted, strict=True):
        for axis, count in axes.items():
            if min(ranks) == 1 or axis != own - outer:
                raise _mixes("sums products")
            result[rank - outer] = count
    return result


_MOVES = frozenset(
    f"relax.{name}"
    for name in ("astype", "reshape", "squeeze", "expand_dims", "permute_dims", "strided_slice")
)
"""Operators that keep numbers, or leave some out."""

_RULES: dict[str, Rule] = {
    **dict.fromkeys(
        (
            *(*ELEMENTWISE, "relax.astype", "relax.isinf", "relax.isfinite", "relax.where"),
            *(f"relax.{name}" for name in ("round", "trunc", "tan", "sinh", "cosh", "atan2")),
            "relax.broadcast_to",
        ),
        _broadcast,
    ),
    "relax.reshape": _reshape,
    "relax.expand_dims": _expand_dims,
    "relax.squeeze": _squeeze,
    "relax.permute_dims": _permute,
    "relax.strided_slice": _slice,
    "relax.concat": _concat,
    "relax.split": _split,
    **dict.fromkeys(
        (
            *("relax.nn.softmax", "relax.nn.log_softmax", "relax.sort", "relax.argsort"),
            *("relax.topk", "relax.cumsum", "relax.cumprod", "relax.flip"),
        ),
        _along,
    ),
    **dict.fromkeys(
        (
            *(f"relax.{name}" for name in ("sum", "mean", "max", "min", "prod", "std", "variance")),
            *("relax.argmax", "relax.argmin"),
        ),
        _reduce,
    ),
    "relax.take": _take,
    "relax.gather_elements": _gather_elements,
    "relax.gather_nd": _gather_nd,
    "relax.index_tensor": _index_tensor,
    "relax.matmul": _matmul,
}
"""Rules for the operators that may read a counted tensor."""


def with_counts(module: Any) -> Any:
    """A module that also returns the counts of its outputs, and whose ``main`` names their axes."""
    if not any(str(variable.name_hint).startswith(COUNTED) for variable in module.functions):
        return module
    main = module["main"]
    axes, values = CountedAxes.in_module(module), values_of(main)
    result = main.body.body
    whole = values.get(result, result)
    outputs = list(whole.fields) if isinstance(whole, relax.Tuple) else [result]
    rows: dict[Any, list[list[int]]] = {}
    for number, output in enumerate(outputs):
        try:
            counted = axes.of(output)
        except CountedSizeError as error:
            raise ConfigError(f"output {number} cannot be compiled: {error}") from error
        for axis, count in counted.items():
            rows.setdefault(count, []).append([number, axis])
    if not rows:
        return module
    if state_count(main):
        raise ConfigError(
            "the network has outputs whose sizes depend on values, and buffers that calls change",
            hint="Make the buffers inputs and outputs of the network.",
        )
    bindings, counts = bindings_of(main), []
    for count in rows:
        kind = count.whole.ty.fields[count.index]
        variable = relax.DataflowVar("count", kind)
        bindings.append(relax.VarBinding(variable, relax.TupleGetItem(count.whole, count.index)))
        counts.append(variable)
    value = relax.Tuple([*outputs, *counts])
    kind = relax.TupleType([output.ty for output in value.fields])
    variable = relax.Var("outputs", kind)
    block = relax.DataflowBlock([*bindings, relax.VarBinding(variable, value)])
    function = relax.Function(main.params, relax.SeqExpr([block], variable), kind, attrs=main.attrs)
    function = function.with_attr(COUNTS_ATTRIBUTE, list(rows.values()))
    functions = {**dict(module.functions_items()), module.get_global_var("main"): function}
    return relax.transform.Normalize()(tvm.IRModule(functions, attrs=module.attrs))


# Kernels with counted results.


def _counted_call(builder: Any, kernel: Any, name: str, arguments: Sequence[Any]) -> list[Any]:
    """Call a kernel whose last results are those that it writes; returns variables of these."""
    function, results, counted = kernel
    function = opaque_loops(function).with_attr(COUNTED_ATTRIBUTE, counted)
    name = f"{COUNTED}{name}"
    kinds = [relax.TensorType(list(one.shape), str(one.dtype)) for one in results]
    variable = builder.add_func(function, name)
    whole = builder.emit(relax.call_tir(variable, list(arguments), kinds))
    return [builder.emit(relax.TupleGetItem(whole, number)) for number in range(len(kinds))]


def _flat(builder: Any, tensor: Any, shape: Sequence[int] = (-1,)) -> Any:
    return builder.emit(relax.op.reshape(tensor, list(shape)))


def _int64(name: str, *shape: int) -> Any:
    return emit.buffer(name, list(shape), dtype="int64")


def _filled(buffer: Any) -> Any:
    """The statement that fills a buffer of int64 with zeros."""
    extents = {f"at{axis}": int(extent) for axis, extent in enumerate(buffer.shape)}
    zero = tirx.const(0, "int64")
    return emit.loops(extents, lambda *at: emit.store(buffer, at, zero))


def _index(value: Any) -> Any:
    return tirx.Cast("int32", value)


def _next(count: Any) -> Any:
    """The statement that adds one to a count."""
    return emit.store(count, [0], emit.load(count, [0]) + tirx.const(1, "int64"))


_FILLED = "filled"
"""The beginning of the names of kernels that replace the elements beyond a count."""


def _number(builder: Any, count: Any) -> Any:
    """The tensor with a count."""
    return builder.emit(relax.TupleGetItem(count.whole, count.index))


def _filled_beyond(builder: Any, tensor: Any, axes: Axes, value: float) -> Any:
    """A tensor with a number in place of the elements beyond its counts."""
    shape, dtype = shape_of(tensor), str(tensor.ty.dtype)
    for axis, count in axes.items():
        rows = [math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])]
        data, result = (emit.buffer(name, rows, dtype=dtype) for name in ("x", "y"))
        number = _int64("count", 1)

        def fill(*place: Any, data: Any = data, result: Any = result, number: Any = number) -> Any:
            counts = tirx.Cast("int64", place[1]) < emit.load(number, [0])
            own = tirx.Select(counts, emit.load(data, place), tirx.const(value, dtype))
            return emit.store(result, place, own)

        body = emit.loops(dict(zip(("row", "at", "column"), rows, strict=True)), fill)
        function = opaque_loops(emit.function([data, number, result], body))
        flat = _flat(builder, tensor, rows)
        kernel = builder.add_func(function, _FILLED)
        arguments = [flat, _number(builder, count)]
        made = builder.emit(relax.call_tir(kernel, arguments, relax.TensorType(rows, dtype)))
        tensor = _flat(builder, made, shape)
    return tensor


def nonzero_places(builder: Any, tensor: Any, known: CountedAxes) -> Any:
    """The places of the elements of a flattened tensor that are not zero, as int64.

    Args:
        builder: The builder of the graph.
        tensor: The tensor.
        known: Finds out which axes of the graph's tensors are counted.
    """
    key = known.key_of(tensor)
    if key not in known.places:
        filled = _filled_beyond(builder, tensor, known.of(tensor), 0)
        known.places[key] = _nonzero_places(builder, filled)
    return known.places[key]


def _nonzero_places(builder: Any, tensor: Any) -> Any:
    tensor = _flat(builder, tensor)
    [extent] = shape_of(tensor)
    dtype = str(tensor.ty.dtype)
    data = emit.buffer("x", [extent], dtype=dtype)
    places, count = _int64("places", extent), _int64("count", 1)

    def look(at: Any) -> Any:
        value = emit.load(data, [at])
        is_chosen = value if dtype == "bool" else tirx.NE(value, tirx.const(0, dtype))
        slot = _index(emit.load(count, [0]))
        kept = emit.store(places, [slot], tirx.Cast("int64", at))
        return emit.when(is_chosen, emit.sequence([kept, _next(count)]))

    body = emit.sequence([_filled(places), _filled(count), emit.loop("at", extent, look)])
    kernel = emit.function([data, places, count], body), [places, count], 1
    return _counted_call(builder, kernel, "nonzero", [tensor])[0]


def coordinates(builder: Any, places: Any, shape: Sequence[int]) -> list[Any]:
    """The index along each axis of a tensor, for places in the flattened tensor."""
    indices = []
    for axis, extent in enumerate(shape):
        step, index = math.prod(shape[axis + 1 :]), places
        if step > 1:
            index = builder.emit(relax.op.floor_divide(index, relax.const(step, "int64")))
        if axis:
            index = builder.emit(relax.op.floor_mod(index, relax.const(extent, "int64")))
        indices.append(index)
    return indices


@attrs.frozen(eq=False)
class _Heap:
    """A binary heap of keys with places, the least one first (Williams, Heapsort, 1964).

    Equal keys are in the order of their places.
    """

    _keys: Any
    _places: Any
    _size: Any
    _slot: Any

    @classmethod
    def of(cls, most: int) -> _Heap:
        """A heap of so many keys at most."""
        # One more element, as a comparison of the last child reads its neighbour.
        keys = _int64("keys", most + 1)
        places = emit.buffer("places", [most + 1], dtype="int32")
        size, slot = (emit.buffer(name, [1], dtype="int32") for name in ("size", "slot"))
        return cls(keys, places, size, slot)

    @property
    def buffers(self) -> list[Any]:
        """The buffers to allocate."""
        return [self._keys, self._places, self._size, self._slot]

    @property
    def length(self) -> Any:
        """How many keys the heap has."""
        return emit.load(self._size, [0])

    @property
    def first(self) -> Any:
        """The place of the least key."""
        return emit.load(self._places, [0])

    def clear(self) -> Any:
        """The statement that empties the heap."""
        return emit.store(self._size, [0], tirx.const(0, "int32"))

    def append(self, key: Any, place: Any) -> Any:
        """The statement that adds a key, after which the heap needs ``order``."""
        more = emit.store(self._size, [0], self.length + 1)
        return emit.sequence([*self._written(self.length, key, place), more])

    def order(self) -> Any:
        """The statement that puts the keys in the order of a heap."""
        half = tirx.truncdiv(self.length, tirx.const(2, "int32"))
        return emit.loop("back", half, lambda back: self._sink(half - 1 - back))

    def remove_first(self) -> Any:
        """The statement that removes the least key."""
        last = self.length
        moved = self._written(
            tirx.const(0, "int32"), emit.load(self._keys, [last]), emit.load(self._places, [last])
        )
        less = emit.store(self._size, [0], self.length - 1)
        return emit.sequence([less, *moved, self._sink(tirx.const(0, "int32"))])

    def _written(self, slot: Any, key: Any, place: Any) -> list[Any]:
        return [emit.store(self._keys, [slot], key), emit.store(self._places, [slot], place)]

    def _precedes(self, one: Any, other: Any) -> Any:
        keys, places = (
            [emit.load(buffer, [slot]) for slot in (one, other)]
            for buffer in (self._keys, self._places)
        )
        tie = tirx.all(tirx.EQ(*keys), places[0] < places[1])
        return tirx.any(keys[0] < keys[1], tie)

    def _sink(self, slot: Any) -> Any:
        """The statement that moves a key down until none below it precedes it."""
        end = int(self._keys.shape[0])

        def step(_: Any) -> Any:
            own, left, child = (tirx.Var(name, "int32") for name in ("own", "left", "child"))
            key, place = tirx.Var("key", "int64"), tirx.Var("place", "int32")
            right = tirx.all(left + 1 < self.length, self._precedes(left + 1, left))
            exchanged = [
                tirx.Bind(key, emit.load(self._keys, [own])),
                tirx.Bind(place, emit.load(self._places, [own])),
                *self._written(
                    own, emit.load(self._keys, [child]), emit.load(self._places, [child])
                ),
                *self._written(child, key, place),
                emit.store(self._slot, [0], child),
            ]
            stop = emit.store(self._slot, [0], tirx.const(end, "int32"))
            below = [
                tirx.Bind(child, tirx.Select(right, left + 1, left)),
                emit.branch([(self._precedes(child, own), emit.sequence(exchanged))], stop),
            ]
            return emit.sequence(
                [
                    tirx.Bind(own, emit.load(self._slot, [0])),
                    tirx.Bind(left, own * 2 + 1),
                    emit.when(left < self.length, emit.sequence(below)),
                ]
            )

        steps = [
            emit.store(self._slot, [0], slot),
            emit.loop("level", end.bit_length(), step),
        ]
        return emit.sequence(steps)


@attrs.frozen(kw_only=True)
class Suppression:
    """Non-maximum suppression: keeps boxes that overlap no better one.

    Attributes:
        most: The largest number of boxes that are kept for each class of each image.
        has_centers: Whether a box is (x, y, width, height) of its center, not two corners.
        is_plain: Whether corners are in order and an empty union counts as no overlap, as in
            torchvision. Otherwise, corners may be in any order, as in ONNX.
    """

    most: int
    has_centers: bool = False
    is_plain: bool = False

    def apply(
        self, builder: Any, boxes: Any, scores: Any, overlap: Any, least: Any, *, axes: Axes
    ) -> Any:
        """Rows (image, class, box) of the kept boxes, the best one of each class first.

        Args:
            builder: The builder of the graph.
            boxes: Boxes of shape (images, boxes, 4).
            scores: Scores of shape (images, classes, boxes).
            overlap: A tensor of the largest share of two boxes' union that they may have in common.
            least: A tensor of a number that scores must exceed, or None.
            axes: The counted axes of the scores, of which the last one may be counted.
        """
        images, classes, count = shape_of(scores)
        if axes.keys() - {2}:
            raise CountedSizeError(f"{COUNTED_SIZE}, and it is not that of the boxes")
        limits = [_flat(builder, one, [1]) for one in (overlap, least) if one is not None]
        limits += [_number(builder, one) for one in axes.values()]
        inputs = [
            emit.buffer("boxes", [images, count, 4], dtype=str(boxes.ty.dtype)),
            emit.buffer("scores", [images, classes, count], dtype=str(scores.ty.dtype)),
            *(
                emit.buffer(f"limit{number}", [1], dtype=str(one.ty.dtype))
                for number, one in enumerate(limits)
            ),
        ]
        rows, most = images * classes, min(self.most, count)
        lists = emit.buffer("lists", [rows, most], dtype="int32")
        lengths = emit.buffer("lengths", [rows], dtype="int32")
        kept, number = _int64("kept", rows * most, 3), _int64("count", 1)

        def join(row: Any, at: Any) -> Any:
            slot = _index(emit.load(number, [0]))
            values = [row // classes, row % classes, emit.load(lists, [row, at])]
            stored = [
                emit.store(kept, [slot, column], tirx.Cast("int64", value))
                for column, value in enumerate(values)
            ]
            is_listed = at < emit.load(lengths, [row])
            return emit.when(is_listed, emit.sequence([*stored, _next(number)]))

        steps = [
            emit.parallel("row", rows, lambda row: self._of_class(inputs, lists, lengths, row)),
            _filled(kept),
            _filled(number),
            emit.loops({"row": rows, "at": most}, join),
        ]
        body = emit.allocate([lists, lengths], emit.sequence(steps))
        kernel = emit.function([*inputs, kept, number], body), [kept, number], 1
        arguments = [boxes, scores, *limits]
        return _counted_call(builder, kernel, "non_max_suppression", arguments)[0]

    def _of_class(self, inputs: Any, lists: Any, lengths: Any, row: Any) -> Any:
        """List the boxes of one class that are kept."""
        boxes, scores, overlap, *limits = inputs
        _, classes, extent = (int(length) for length in scores.shape)
        image, label = row // classes, row % classes
        heap = _Heap.of(extent)
        length, is_kept = (emit.buffer(name, [1], dtype="int32") for name in ("length", "is_kept"))
        one, zero = tirx.const(1, "int32"), tirx.const(0, "int32")

        def propose(box: Any) -> Any:
            score = emit.load(scores, [image, label, box])
            added = heap.append(tirx.Cast("int64", ~sort_key(score)), box)
            for limit in limits:
                bound = emit.load(limit, [0])
                if str(limit.dtype) == "int64":  # the number of boxes
                    added = emit.when(tirx.Cast("int64", box) < bound, added)
                else:
                    added = emit.when(score > tirx.Cast(str(score.ty), bound), added)
            return added

        def consider(_: Any) -> Any:
            box, end = tirx.Var("box", "int32"), tirx.Var("end", "int32")

            def compare(earlier: Any) -> Any:
                other = emit.load(lists, [row, earlier])
                suppressed = self._overlaps(boxes, image, other, box, overlap)
                is_open = tirx.EQ(emit.load(is_kept, [0]), one)
                return emit.when(is_open, emit.when(suppressed, emit.store(is_kept, [0], zero)))

            listed = [emit.store(lists, [row, end], box), emit.store(length, [0], end + 1)]
            steps = [
                tirx.Bind(box, heap.first),
                tirx.Bind(end, emit.load(length, [0])),
                heap.remove_first(),
                emit.store(is_kept, [0], one),
                emit.loop("earlier", end, compare),
                emit.when(tirx.EQ(emit.load(is_kept, [0]), one), emit.sequence(listed)),
            ]
            is_open = emit.load(length, [0]) < tirx.const(int(lists.shape[1]), "int32")
            return emit.when(tirx.all(heap.length > zero, is_open), emit.sequence(steps))

        steps = [
            emit.store(length, [0], zero),
            heap.clear(),
            emit.loop("box", extent, propose),
            heap.order(),
            emit.loop("rank", extent, consider),
            emit.store(lengths, [row], emit.load(length, [0])),
        ]
        return emit.allocate([length, is_kept, *heap.buffers], emit.sequence(steps))

    def _overlaps(self, boxes: Any, image: Any, one: Any, other: Any, limit: Any) -> Any:
        """Whether the union of two boxes has more than the allowed share in common."""
        dtype = str(boxes.dtype)
        zero = tirx.const(0, dtype)
        ends = [self._ends(boxes, image, box) for box in (one, other)]
        (low, high), (other_low, other_high) = ends
        begins = [tirx.max(a, b) for a, b in zip(low, other_low, strict=True)]
        stops = [tirx.min(a, b) for a, b in zip(high, other_high, strict=True)]
        sides = [stop - begin for begin, stop in zip(begins, stops, strict=True)]
        if self.is_plain:
            sides = [tirx.max(side, zero) for side in sides]
        common = sides[0] * sides[1]
        areas = [(high[0] - low[0]) * (high[1] - low[1]) for low, high in ends]
        union = areas[0] + areas[1] - common
        wide = str(limit.dtype)
        share = tirx.Cast(wide, common / union) > emit.load(limit, [0])
        if self.is_plain:
            return share
        nonempty = [*(side > zero for side in sides), common > zero, *(a > zero for a in areas)]
        return tirx.all(*nonempty, union > zero, share)

    def _ends(self, boxes: Any, image: Any, box: Any) -> tuple[list[Any], list[Any]]:
        """The lower and the upper ends of a box along its two axes."""
        numbers = [emit.load(boxes, [image, box, column]) for column in range(4)]
        firsts, seconds = numbers[:2], numbers[2:]
        if self.has_centers:
            halves = [size / tirx.const(2, str(boxes.dtype)) for size in seconds]
            pairs = list(zip(firsts, halves, strict=True))
            return [a - half for a, half in pairs], [a + half for a, half in pairs]
        if self.is_plain:
            return firsts, seconds
        pairs = list(zip(firsts, seconds, strict=True))
        return [tirx.min(a, b) for a, b in pairs], [tirx.max(a, b) for a, b in pairs]


def distinct(
    builder: Any, tensor: Any, axes: Axes, *, is_sorted: bool, neighbours: bool = False
) -> list[Any]:
    """The first places of distinct elements of a flattened tensor, and facts about them.

    Args:
        builder: The builder of the graph.
        tensor: The tensor.
        axes: Its counted axes, of which there must be none.
        is_sorted: Whether the distinct elements come in ascending order, not that of their places.
        neighbours: Whether equal elements count as one only if they follow each other.

    Returns:
        The first place of each distinct element, the number of the distinct element at each place,
        and how often each distinct element occurs.
    """
    if axes:
        raise _mixes("compares elements")
    tensor = _flat(builder, tensor)
    [extent] = shape_of(tensor)
    if neighbours:
        order = relax.const(list(range(extent)), "int64")
        is_sorted = True
    else:
        order = builder.emit(relax.op.argsort(tensor, 0, dtype="int64"))
    data = emit.buffer("x", [extent], dtype=str(tensor.ty.dtype))
    sequence = _int64("order", extent)
    places, inverse, repeats = (_int64(name, extent) for name in ("places", "inverse", "repeats"))
    count = _int64("count", 1)
    group, number = (emit.buffer(name, [extent], dtype="int32") for name in ("group", "number"))

    def place(at: Any) -> Any:
        return _index(emit.load(sequence, [at]))

    def found(at: Any) -> Any:
        """Give the element at a place the number of its group."""
        value, before = (emit.load(data, [place(p)]) for p in (at, tirx.max(at - 1, 0)))
        is_new = tirx.any(tirx.EQ(at, 0), tirx.NE(value, before))
        last = _index(emit.load(count, [0])) - 1
        return emit.sequence(
            [emit.when(is_new, _next(count)), emit.store(group, [place(at)], last)]
        )

    def listed(at: Any) -> Any:
        own, slot = tirx.Var("own", "int32"), tirx.Var("slot", "int32")
        value = emit.load(group, [at])
        steps = [tirx.Bind(own, value)]
        if is_sorted:
            steps.append(tirx.Bind(slot, own))
        else:
            end = _index(emit.load(count, [0]))
            fresh = emit.sequence([emit.store(number, [own], end), _next(count)])
            steps += [
                emit.when(emit.load(number, [own]) < 0, fresh),
                tirx.Bind(slot, emit.load(number, [own])),
            ]
        times = emit.load(repeats, [slot])
        first = emit.store(places, [slot], tirx.Cast("int64", at))
        steps += [
            emit.when(tirx.EQ(times, tirx.const(0, "int64")), first),
            emit.store(repeats, [slot], times + tirx.const(1, "int64")),
            emit.store(inverse, [at], tirx.Cast("int64", slot)),
        ]
        return emit.sequence(steps)

    steps = [*map(_filled, (places, repeats, count)), emit.loop("at", extent, found)]
    if not is_sorted:
        unknown = tirx.const(-1, "int32")
        steps += [
            _filled(count),
            emit.loop("at", extent, lambda at: emit.store(number, [at], unknown)),
        ]
    steps.append(emit.loop("at", extent, listed))
    results = [places, repeats, inverse, count]
    body = emit.allocate([group, number], emit.sequence(steps))
    kernel = emit.function([data, sequence, *results], body), results, 2
    whole = _counted_call(builder, kernel, "distinct", [tensor, order])
    return [whole[0], whole[2], whole[1]]
