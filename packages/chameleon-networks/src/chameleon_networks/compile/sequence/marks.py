"""Marks concatenations, splits, slices and shuffles that views or tables may replace.

A view is a part of a larger tensor in memory. With a table, a kernel looks up where each channel
is.

Marked functions are not fused. If all neighbours of a marked function are element-wise or move data
too, the mark is dropped. Then TVM's fused kernel is as good, since it reads and writes each element
once.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Any, cast

import attrs
from chameleon_core.errors import ConfigError
from chameleon_tvm.quick_tvm import te, tirx

from chameleon_networks.compile.sequence.accesses import count_lookups, table_axis
from chameleon_networks.graph.moves import shape_of
from chameleon_networks.graph.relaxed import extents_of, known_extents, relax, tvm
from chameleon_networks.graph.strided import Step, View, step_of, views_of
from chameleon_networks.graph.strides import dense_strides

_PATTERN = "op_pattern"
_INJECTIVE, _FUSIBLE, _OPAQUE = 2, 4, 8
"""Values of TVM's ``OpPatternKind``. Operators that are at most injective are fused with each
other. Products and convolutions are fused with element-wise operators after them. Opaque functions
are never fused."""


def with_useful_marks(module: Any) -> Any:
    """Keep the marks of functions that are worth replacing by views or tables, and drop all others.

    A mark says that a function only moves data, such as a concatenation. A later pass can remove a
    marked function, so that its neighbours read or write the data in place. This pays only if a
    neighbour is a kernel with much work, such as a convolution. TVM fuses functions without a mark
    as usual, which is as fast. Functions that keep their marks are not fused.

    Args:
        module: The module that ``with_marks`` returned, after ``AnnotateTIROpPattern``.
    """
    neighbours = _Neighbours(module)
    wanted = {kernel.name_hint for kernel in neighbours.worth_a_view()}
    for variable, function in list(module.functions_items()):
        if not isinstance(function, tirx.PrimFunc) or mark_of(function) is None:
            continue
        if variable.name_hint in wanted:
            module.update_func(variable, function.with_attr(_PATTERN, _OPAQUE))
        else:
            module.update_func(variable, function.without_attr(str(mark_of(function))))
    # A reshape of a view costs nothing, unless it makes a move that reads it count in its shape.
    for kernel in neighbours.reshapes_of(wanted):
        module.update_func(kernel, module[kernel].with_attr(_PATTERN, _OPAQUE))
    return module


class _Neighbours:
    """Finds the kernel that computes each value of ``main``, and the kernels that read it."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._calls: list[tuple[Any, Any]] = []
        self._same: dict[Any, Any] = {}
        """For fields of tuples and reshaped values, the variable that they come from."""
        self._reshapes: list[tuple[Any, Any]] = []
        """The kernels that only reshape, and the variable that each of them reshapes."""
        self._producers: dict[Any, Any] = {}
        """The call of the kernel that computes each variable."""
        self._read: dict[Any, list[tuple[Any, int, Any]]] = defaultdict(list)
        """For each value, its readers: the kernel, the parameter's number, and the kernel's result.
        """
        body = module["main"].body
        for block in body.blocks:
            for binding in block.bindings:
                self._visit(binding)
        self._returned = {self._root(variable) for variable in relax.analysis.free_vars(body.body)}
        self._looked_up = set(self._worth_tables())
        self._by_heavy: set[Any] = set()
        """The variables that heavy kernels compute, perhaps fused with element-wise operators."""
        for variable, call in self._calls:
            if self._is_by_heavy(call):
                self._by_heavy.add(variable)

    def worth_a_view(self) -> Iterator[Any]:
        """Yield the marked kernels that should become views, so that they copy nothing.

        A marked kernel only moves elements, as a concatenation does. TVM fuses such moves into many
        kernels, but not into kernels with much work, such as convolutions. So a view pays if a
        kernel with much work reads the moved elements, or writes the parts of a concatenation.
        """
        for variable, call in self._calls:
            mark = mark_of(self._module[call.args[0]])
            readers = [kernel for kernel, _, _ in self._read[variable]]
            if mark == SHUFFLE:
                if call.args[0].name_hint in self._looked_up:
                    yield call.args[0]
            elif mark == CONCAT:
                parts = [self._root(part) for part in call.args[1].fields]
                moved_anyway = (
                    len(readers) == 1
                    and self._pattern(readers[0]) == _INJECTIVE
                    and self._may_be_fused(readers[0])
                    and variable not in self._returned
                )
                written = [part in self._by_heavy for part in parts]
                if all(written) or (any(written) and not moved_anyway):
                    yield call.args[0]
            elif mark is not None and any(map(self._heavy, readers)):
                yield call.args[0]

    def reshapes_of(self, concatenations: Collection[str]) -> list[Any]:
        """The kernels that reshape the results of the named concatenations."""
        return [
            kernel
            for kernel, argument in self._reshapes
            if (call := self._producers.get(self._root(argument))) is not None
            and mark_of(self._module[call.args[0]]) == CONCAT
            and call.args[0].name_hint in concatenations
        ]

    def _worth_tables(self) -> Iterator[str]:
        """Yield the names of shuffles for which lookups cost less than loads and stores would."""
        shuffles = {
            variable: call
            for variable, call in self._calls
            if mark_of(self._module[call.args[0]]) == SHUFFLE
        }
        while shuffles:
            group = [next(iter(shuffles))]
            gain = 0
            for variable in group:
                size = math.prod(int(extent) for extent in shuffles[variable].ty_args[0].shape)
                lookups, following = self._lookups(variable, shuffles[variable])
                if lookups is not None:
                    gain += 2 * size - lookups
                group += [user for user in following if user in shuffles and user not in group]
            calls = [shuffles.pop(variable) for variable in group]
            if gain > 0:
                yield from (str(call.args[0].name_hint) for call in calls)

    def _lookups(self, shuffled: Any, call: Any) -> tuple[int | None, list[Any]]:
        """How many lookups the readers of a shuffle need, and the shuffles among its readers.

        The number is None if a reader cannot look up its channels, so that they must be copied.
        """
        axis = int(self._module[call.args[0]].attrs[SHUFFLE][0])
        shape = [int(extent) for extent in call.ty_args[0].shape]
        following: list[Any] = []
        counts: list[int | None] = []
        values = [shuffled]
        for value in values:
            if value in self._returned:
                counts.append(None)
            for kernel, position, result in self._read[value]:
                function = self._module[kernel]
                mark = mark_of(function)
                if mark is None:
                    there = table_axis(function, position, shape, axis)
                    counts.append(
                        None if there is None else count_lookups(function, position, there)
                    )
                elif mark == SHUFFLE:
                    following.append(result)
                elif result not in values:
                    values.append(result)
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None, following

    def _may_be_fused(self, kernel: Any) -> bool:
        mark = mark_of(self._module[kernel])
        return mark is None or (mark == SHUFFLE and kernel.name_hint not in self._looked_up)

    def _visit(self, binding: Any) -> None:
        value = binding.value
        if isinstance(value, relax.TupleGetItem):
            self._same[binding.var] = value.tuple_value
        if not isinstance(value, relax.Call) or value.op != tvm.ir.Op.get("relax.call_tir"):
            return
        kernel, arguments = value.args[0], value.args[1].fields
        moves = self._pattern(kernel) == _INJECTIVE and len(arguments) == 1
        if moves and relax.analysis.has_reshape_pattern(self._module[kernel]):
            self._same[binding.var] = arguments[0]
            self._reshapes.append((kernel, arguments[0]))
            return
        self._calls.append((binding.var, value))
        self._producers[binding.var] = value
        for position, argument in enumerate(arguments):
            self._read[self._root(argument)].append((kernel, position, binding.var))

    def _root(self, value: Any) -> Any:
        while value in self._same:
            value = self._same[value]
        return value

    def _pattern(self, kernel: Any) -> int:
        return int((self._module[kernel].attrs or {}).get(_PATTERN, _OPAQUE))

    def _is_by_heavy(self, call: Any) -> bool:
        """Whether a call belongs to ``_by_heavy``, which knows the calls before it."""
        pattern = self._pattern(call.args[0])
        if pattern > _INJECTIVE:
            return True
        sources = [self._root(argument) for argument in call.args[1].fields]
        if mark_of(self._module[call.args[0]]) == CONCAT:
            return self._by_heavy.issuperset(sources)
        return pattern < _INJECTIVE and any(
            self._fusible(source) and len(self._read[source]) == 1 for source in sources
        )

    def _fusible(self, value: Any) -> bool:
        """Whether element-wise operators after a value are fused into its producer."""
        call = self._producers.get(value)
        if call is None:
            return False
        pattern = self._pattern(call.args[0])
        return pattern == _FUSIBLE or (pattern < _INJECTIVE and value in self._by_heavy)

    def _heavy(self, kernel: Any) -> bool:
        """Whether TVM fuses no moves into a kernel: a product, a reduction, or a tuned kernel."""
        return self._pattern(kernel) > _INJECTIVE or kernel.name_hint in self._looked_up


@attrs.frozen(kw_only=True, eq=False)
class Shuffle:
    """A tensor with the elements of another tensor, in another order along one axis.

    Attributes:
        source: The other tensor, an expression.
        axis: The axis.
        parts: The axis as nested loops, the outermost first. Each is a pair: the number of
            iterations, and the step along the axis of ``source``.
    """

    source: Any
    axis: int
    parts: tuple[tuple[int, int], ...]

    @property
    def table(self) -> tuple[int, ...]:
        """For each index of the axis, the index in ``source``."""
        digits = [range(0, extent * step, step) for extent, step in self.parts]
        return tuple(map(sum, itertools.product(*digits)))


def shuffle_of(value: Any, values: Mapping[Any, Any]) -> Shuffle | None:
    """The shuffle of channels that a reshape or permutation computes, or None for others.

    Args:
        value: The expression, which may be a reshape or a permutation.
        values: The expression that each variable is bound to.
    """
    if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.Op):
        return None
    if str(value.op.name) not in {"relax.reshape", "relax.permute_dims"}:
        return None
    parent, derive = cast(Step, step_of(value, values))
    try:
        views = [derive(view) for view in views_of(parent, values)]
    except ConfigError:
        return None  # a shape is known only while the network runs
    shuffles = (_shuffle(view) for view in views if view is not None)
    return next((shuffle for shuffle in shuffles if shuffle is not None), None)


def _shuffle(view: View) -> Shuffle | None:
    """The shuffle that a view represents.

    None if the view changes more than the order of one axis.
    """
    shape = shape_of(view.source)
    strides = dense_strides(shape)
    several = [axis for axis, parts in enumerate(view.axes) if len(parts) > 1]
    if view.shape != shape or view.factor != 1.0 or len(several) != 1:
        return None
    [axis] = several
    for index, (extent, stride) in enumerate(zip(shape, strides, strict=True)):
        if index != axis and extent > 1 and view.axes[index] != ((extent, stride),):
            return None
    if any(step % strides[axis] for _, step in view.axes[axis]):
        return None
    parts = tuple((extent, step // strides[axis]) for extent, step in view.axes[axis])
    shuffle = Shuffle(source=view.source, axis=axis, parts=parts)
    return shuffle if sorted(shuffle.table) == list(range(shape[axis])) else None


CONCAT, SPLIT, SLICE = "chameleon.concat", "chameleon.split", "chameleon.slice"
"""Attributes of functions: the axis of a concatenation or a split, or the first indices of a slice.
"""
SHUFFLE = "chameleon.shuffle"
"""An attribute of functions that shuffle: the axis, then the source index of each index."""

_MARKS = (CONCAT, SPLIT, SLICE, SHUFFLE)


def with_marks(module: Any) -> Any:
    """Replace operators that only move data by calls of functions with a mark.

    These operators are concatenations, splits, slices and channel shuffles. Later passes may remove
    marked functions.

    Args:
        module: An ``IRModule`` in normal form, before ``LegalizeOps``.
    """
    marker = _Marker(module)
    variable = module.get_global_var("main")
    marker.builder_.update_func(variable, marker.visit_expr(module["main"]))
    return relax.transform.DeadCodeElimination()(marker.builder_.get())


def mark_of(function: Any) -> str | None:
    """The mark of a function, or None."""
    return next((mark for mark in _MARKS if mark in (function.attrs or {})), None)


@relax.expr_functor.mutator
class _Marker(relax.PyExprMutator):
    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self._values = {
            binding.var: binding.value
            for block in module["main"].body.blocks
            for binding in block.bindings
        }

    def visit_call_(self, call: Any) -> Any:
        shuffle = shuffle_of(call, self._values)
        if shuffle is not None:
            return self._shuffled(shuffle, call)
        call = self.visit_expr_post_order(call)
        name = str(call.op.name) if isinstance(call.op, tvm.ir.Op) else ""
        value: int | list[int] | None
        if name == "relax.concat" and isinstance(call.args[0], relax.Tuple):
            arrays = list(call.args[0].fields)
            mark, value = CONCAT, _axis(call.attrs.axis, call)
        elif name == "relax.split":
            arrays = [call.args[0]]
            mark, value = SPLIT, _axis(call.attrs.axis, call.args[0])
        elif name == "relax.strided_slice":
            arrays = [call.args[0]]
            mark, value = SLICE, _first_indices(call)
        else:
            return call
        kinds = [call.ty] if mark != SPLIT else list(call.ty.fields)
        if value is None or not all(_static(kind) for kind in (*(a.ty for a in arrays), *kinds)):
            return call
        inputs = [
            te.placeholder(_extents(a.ty), str(a.ty.dtype), f"part{n}")
            for n, a in enumerate(arrays)
        ]
        function = _moving(mark, value, inputs, [_extents(kind) for kind in kinds])
        function = function.without_attr("global_symbol").with_attr(mark, value)
        kernel = self.builder_.add_func(function, mark.removeprefix("chameleon."))
        return relax.call_tir(kernel, arrays, list(kinds) if mark == SPLIT else kinds[0])

    def _shuffled(self, shuffle: Shuffle, call: Any) -> Any:
        source = self.visit_expr(shuffle.source)
        array = te.placeholder(_extents(source.ty), str(source.ty.dtype), "source")
        axis = shuffle.axis

        def element(*indices: Any) -> Any:
            (_, far), *inner = shuffle.parts
            offset, rest = 0, indices[axis]
            for extent, step in reversed(inner):
                offset, rest = offset + rest % extent * step, rest // extent
            return array(*indices[:axis], offset + rest * far, *indices[axis + 1 :])

        shuffled = te.compute(array.shape, element, "shuffle")
        function = te.create_prim_func([array, shuffled], index_dtype_override="int64")
        value = [axis, *shuffle.table]
        function = function.without_attr("global_symbol").with_attr(SHUFFLE, value)
        kernel = self.builder_.add_func(function, "shuffle")
        return relax.call_tir(kernel, [source], call.ty)


def _moving(mark: str, value: Any, inputs: list[Any], shapes: list[list[int]]) -> Any:
    """A function that moves the data, for the case that no view can replace it."""
    if mark == CONCAT:
        outputs = [_concatenated(inputs, value, shapes[0])]
    elif mark == SLICE:
        outputs = [_part(inputs[0], shapes[0], value, "slice")]
    else:
        outputs, start = [], 0
        for number, shape in enumerate(shapes):
            first = [start if axis == value else 0 for axis in range(len(shape))]
            outputs.append(_part(inputs[0], shape, first, f"split{number}"))
            start += shape[value]
    # Relax counts in 64 bits, and TVM fuses only what counts alike.
    return te.create_prim_func([*inputs, *outputs], index_dtype_override="int64")


def _part(source: Any, shape: list[int], first: Any, name: str) -> Any:
    def element(*indices: Any) -> Any:
        return source(*(index + start for index, start in zip(indices, first, strict=True)))

    return te.compute(shape, element, name)


def _concatenated(inputs: list[Any], axis: int, shape: list[int]) -> Any:
    def element(*indices: Any) -> Any:
        value, start = None, 0
        for source in inputs:
            moved = [*indices]
            moved[axis] = indices[axis] - start
            read = source(*moved)
            value = (
                read if value is None else tirx.if_then_else(indices[axis] >= start, read, value)
            )
            start += int(source.shape[axis])
        return value

    return te.compute(shape, element, "concat")


def _axis(axis: Any, value: Any) -> int:
    return int(axis if axis is not None else 0) % len(value.ty.shape)


def _first_indices(call: Any) -> list[int] | None:
    """The first index of a slice on each axis.

    None if the slice skips elements or is not static.
    """
    source, *lists = call.args
    if len(lists) < 3 or not all(isinstance(part, relax.Tuple) for part in lists):  # noqa: PLR2004
        return None
    if not all(hasattr(field, "value") for part in lists for field in part.fields):
        return None
    axes, begins, _, *steps = ([int(field.value) for field in part.fields] for part in lists)
    if any(step != 1 for part in steps for step in part):
        return None
    first = [0] * len(source.ty.shape)
    for axis, begin in zip(axes, begins, strict=True):
        extent = int(source.ty.shape[axis])
        first[axis] = min(max(begin + extent if begin < 0 else begin, 0), extent)
    return first


def _static(kind: Any) -> bool:
    return known_extents(kind) is not None


def _extents(kind: Any) -> list[int]:
    return list(extents_of(kind))
