"""Marks concatenations, splits, slices and shuffles that views or gathers may replace.

Marked functions are not fused, so those between cheap operators lose the mark.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, cast

import attrs
from chameleon_core.plugin_api import ConfigError
from chameleon_tvm.api import te, tirx

from chameleon_networks._compile.sequence.buffer_accesses import count_gathered_indices, gather_axis
from chameleon_networks._graph.relax_utils import (
    bindings_of,
    mutate,
    operator_name,
    relax,
    shape_of,
    static_shape,
    tvm,
    values_of,
)
from chameleon_networks._graph.strided_views import (
    Rearrangement,
    StridedView,
    rearrangement_of,
    views_of,
)
from chameleon_networks._graph.strides import dense_strides

_PATTERN = "op_pattern"
_INJECTIVE, _FUSIBLE, _OPAQUE = 2, 4, 8
"""Values of TVM's ``OpPatternKind``. Operators that are at most injective are fused with each
other. Products and convolutions are fused with element-wise operators after them. Opaque functions
are never fused."""


def select_view_candidates(module: Any) -> Any:
    """Keep the marks of functions next to kernels with much work, such as convolutions."""
    # TVM fuses the other functions, which is as fast.
    neighbours = _KernelGraph(module)
    kept = {kernel.name_hint for kernel in neighbours.view_kernels()}
    for variable, function in list(module.functions_items()):
        if not isinstance(function, tirx.PrimFunc) or view_kind(function) is None:
            continue
        if variable.name_hint in kept:
            module.update_func(variable, function.with_attr(_PATTERN, _OPAQUE))
        else:
            module.update_func(variable, function.without_attr(str(view_kind(function))))
    # A reshape of a view is free, but not if TVM fuses it into the data movement that reads it.
    for kernel in neighbours.reshapes_of(kept):
        module.update_func(kernel, module[kernel].with_attr(_PATTERN, _OPAQUE))
    return module


class _KernelGraph:
    """The calls of kernels in ``main``, by the values that they compute and read."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._calls: dict[Any, Any] = {}
        """The call of the kernel that computes each variable."""
        self._aliases: dict[Any, Any] = {}
        """For fields of tuples and reshaped values, the variable that they come from."""
        self._reshapes: list[tuple[Any, Any]] = []
        """The kernels that only reshape, and the variable that each of them reshapes."""
        self._read: dict[Any, list[tuple[Any, int, Any]]] = defaultdict(list)
        """For each value, its readers: the kernel, the parameter's number, and the kernel's result.
        """
        for binding in bindings_of(module["main"]):
            self._visit(binding)
        returned = relax.analysis.free_vars(module["main"].body.body)
        self._returned = {self._root(variable) for variable in returned}
        self._gathered_shuffles = set(self._worth_gathering())
        self._computed_by_heavy: set[Any] = set()
        """The variables that heavy kernels compute, perhaps fused with element-wise operators."""
        for variable, call in self._calls.items():
            if self._is_computed_by_heavy(call):
                self._computed_by_heavy.add(variable)

    def view_kernels(self) -> Iterator[Any]:
        """Yield the marked kernels whose elements a kernel with much work reads or writes."""
        # TVM fuses no data movement into such a kernel.
        for variable, call in self._calls.items():
            kind = view_kind(self._module[call.args[0]])
            readers = [kernel for kernel, _, _ in self._read[variable]]
            if kind == SHUFFLE:
                if call.args[0].name_hint in self._gathered_shuffles:
                    yield call.args[0]
            elif kind == CONCAT:
                parts = [self._root(part) for part in call.args[1].fields]
                moved_anyway = (
                    len(readers) == 1
                    and self._pattern(readers[0]) == _INJECTIVE
                    and self._may_be_fused(readers[0])
                    and variable not in self._returned
                )
                written = [part in self._computed_by_heavy for part in parts]
                if all(written) or (any(written) and not moved_anyway):
                    yield call.args[0]
            elif kind is not None and any(map(self._is_heavy, readers)):
                yield call.args[0]

    def reshapes_of(self, concatenations: Collection[str]) -> list[Any]:
        """The kernels that reshape the results of the named concatenations."""
        return [
            kernel
            for kernel, argument in self._reshapes
            if (call := self._calls.get(self._root(argument))) is not None
            and view_kind(self._module[call.args[0]]) == CONCAT
            and call.args[0].name_hint in concatenations
        ]

    def _worth_gathering(self) -> Iterator[str]:
        """Yield the names of shuffles that cost more loads and stores than gathers cost lookups."""
        shuffles = {
            variable: call
            for variable, call in self._calls.items()
            if view_kind(self._module[call.args[0]]) == SHUFFLE
        }
        while shuffles:
            group = [next(iter(shuffles))]
            gain = 0
            for variable in group:
                size = math.prod(int(extent) for extent in shuffles[variable].ty_args[0].shape)
                gathers, following = self._count_gathers(variable, shuffles[variable])
                if gathers is not None:
                    gain += 2 * size - gathers
                group += [user for user in following if user in shuffles and user not in group]
            calls = [shuffles.pop(variable) for variable in group]
            if gain > 0:
                yield from (str(call.args[0].name_hint) for call in calls)

    def _count_gathers(self, shuffled: Any, call: Any) -> tuple[int | None, list[Any]]:
        """How many indices a shuffle's readers gather, or None, and its readers that shuffle."""
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
                kind = view_kind(function)
                if kind is None:
                    there = gather_axis(function, position, shape, axis)
                    counts.append(
                        None if there is None else count_gathered_indices(function, position, there)
                    )
                elif kind == SHUFFLE:
                    following.append(result)
                elif result not in values:
                    values.append(result)
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None, following

    def _may_be_fused(self, kernel: Any) -> bool:
        kind = view_kind(self._module[kernel])
        return kind is None or (kind == SHUFFLE and kernel.name_hint not in self._gathered_shuffles)

    def _visit(self, binding: Any) -> None:
        value = binding.value
        if isinstance(value, relax.TupleGetItem):
            self._aliases[binding.var] = value.tuple_value
        if not isinstance(value, relax.Call) or value.op != tvm.ir.Op.get("relax.call_tir"):
            return
        kernel, arguments = value.args[0], value.args[1].fields
        only_moves = self._pattern(kernel) == _INJECTIVE and len(arguments) == 1
        if only_moves and relax.analysis.has_reshape_pattern(self._module[kernel]):
            self._aliases[binding.var] = arguments[0]
            self._reshapes.append((kernel, arguments[0]))
            return
        self._calls[binding.var] = value
        for position, argument in enumerate(arguments):
            self._read[self._root(argument)].append((kernel, position, binding.var))

    def _root(self, value: Any) -> Any:
        while value in self._aliases:
            value = self._aliases[value]
        return value

    def _pattern(self, kernel: Any) -> int:
        return int((self._module[kernel].attrs or {}).get(_PATTERN, _OPAQUE))

    def _is_computed_by_heavy(self, call: Any) -> bool:
        """Whether a kernel with much work computes the result of a call."""
        pattern = self._pattern(call.args[0])
        if pattern > _INJECTIVE:
            return True
        sources = [self._root(argument) for argument in call.args[1].fields]
        if view_kind(self._module[call.args[0]]) == CONCAT:
            return self._computed_by_heavy.issuperset(sources)
        return pattern < _INJECTIVE and any(
            self._fusible(source) and len(self._read[source]) == 1 for source in sources
        )

    def _fusible(self, value: Any) -> bool:
        """Whether element-wise operators after a value are fused into its producer."""
        call = self._calls.get(value)
        if call is None:
            return False
        pattern = self._pattern(call.args[0])
        return pattern == _FUSIBLE or (pattern < _INJECTIVE and value in self._computed_by_heavy)

    def _is_heavy(self, kernel: Any) -> bool:
        """Whether TVM fuses no data movement into a kernel, such as a product or a reduction."""
        return self._pattern(kernel) > _INJECTIVE or kernel.name_hint in self._gathered_shuffles


@attrs.frozen(kw_only=True, eq=False)
class ChannelShuffle:
    """A tensor with the elements of another one in another order along one axis.

    Attributes:
        source: The other tensor, an expression.
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


def match_shuffle(value: Any, values: Mapping[Any, Any]) -> ChannelShuffle | None:
    """The channel shuffle that a reshape or permutation computes, or None."""
    if operator_name(value) not in {"relax.reshape", "relax.permute_dims"}:
        return None
    parent, derive = cast(Rearrangement, rearrangement_of(value, values))
    try:
        views = [derive(view) for view in views_of(parent, values)]
    except ConfigError:
        return None  # a shape is known only while the network runs
    shuffles = (_shuffle_of_view(view) for view in views if view is not None)
    return next((shuffle for shuffle in shuffles if shuffle is not None), None)


def _shuffle_of_view(view: StridedView) -> ChannelShuffle | None:
    """The shuffle that a view represents, or None if it changes more than one axis's order."""
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
    shuffle = ChannelShuffle(source=view.source, axis=axis, parts=parts)
    return shuffle if sorted(shuffle.table) == list(range(shape[axis])) else None


CONCAT, SPLIT, SLICE = "chameleon.concat", "chameleon.split", "chameleon.slice"
"""Attributes of functions: the axis of a concatenation or a split, or the first indices of a slice.
"""
SHUFFLE = "chameleon.shuffle"
"""An attribute of functions that shuffle: the axis, then the source index of each index."""

_VIEW_KINDS = (CONCAT, SPLIT, SLICE, SHUFFLE)


def mark_view_candidates(module: Any) -> Any:
    """Replace concatenations, splits, slices and shuffles by functions with a mark."""
    return mutate(module, _ViewMarker(module))


def view_kind(function: Any) -> str | None:
    """The attribute that marks a function as concatenation, split, slice or shuffle, or None."""
    return next((kind for kind in _VIEW_KINDS if kind in (function.attrs or {})), None)


@relax.expr_functor.mutator
class _ViewMarker(relax.PyExprMutator):
    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self._values = values_of(module["main"])

    def visit_call_(self, call: Any) -> Any:
        shuffle = match_shuffle(call, self._values)
        if shuffle is not None:
            return self._shuffled(shuffle)
        call = self.visit_expr_post_order(call)
        name = operator_name(call)
        value: int | list[int] | None
        if name == "relax.concat" and isinstance(call.args[0], relax.Tuple):
            arrays, kind, value = list(call.args[0].fields), CONCAT, _axis(call.attrs.axis, call)
        elif name == "relax.split":
            arrays, kind, value = [call.args[0]], SPLIT, _axis(call.attrs.axis, call.args[0])
        elif name == "relax.strided_slice":
            arrays, kind, value = [call.args[0]], SLICE, _first_indices(call)
        else:
            return call
        types = list(call.ty.fields) if kind == SPLIT else [call.ty]
        every = (*types, *(array.ty for array in arrays))
        shapes: list[Any] = [static_shape(kind) for kind in every]
        if value is None or None in shapes:
            return call
        copy = partial(_copy_data, kind, value, shapes[: len(types)])
        return self._call_marked(kind, value, copy, *arrays)

    def _call_marked(self, kind: str, value: Any, copy: Callable[..., Any], *arrays: Any) -> Any:
        """Call a new function with a mark, which computes what ``copy`` returns."""
        name = kind.removeprefix("chameleon.")
        attributes = {kind: value}
        return self.builder_.call_te(
            copy, *arrays, primfunc_name_hint=name, primfunc_attrs=attributes
        )

    def _shuffled(self, shuffle: ChannelShuffle) -> Any:
        axis = shuffle.axis

        def shuffled(array: Any) -> Any:
            def element(*indices: Any) -> Any:
                (_, far), *inner = shuffle.parts
                offset, rest = 0, indices[axis]
                for extent, step in reversed(inner):
                    offset, rest = offset + rest % extent * step, rest // extent
                return array(*indices[:axis], offset + rest * far, *indices[axis + 1 :])

            return te.compute(array.shape, element, "shuffle")

        source = self.visit_expr(shuffle.source)
        return self._call_marked(SHUFFLE, [axis, *shuffle.table], shuffled, source)


def _copy_data(kind: str, value: Any, shapes: Sequence[Sequence[int]], *inputs: Any) -> Any:
    """The data, copied by TVM's operators, in case no view replaces the function."""
    if kind == CONCAT:
        return tvm.topi.concatenate(inputs, value)
    if kind == SLICE:
        ends = [first + extent for first, extent in zip(value, shapes[0], strict=True)]
        return tvm.topi.strided_slice(*inputs, value, ends)
    # TVM's ``split`` refuses parts without elements.
    extents = [shape[value] for shape in shapes]
    return [
        tvm.topi.strided_slice(*inputs, [end - extent], [end], [1], [value])
        for extent, end in zip(extents, itertools.accumulate(extents), strict=True)
    ]


def _axis(axis: Any, value: Any) -> int:
    return int(axis if axis is not None else 0) % len(value.ty.shape)


def _first_indices(call: Any) -> list[int] | None:
    """The first index of a slice on each axis, or None if it is strided or dynamic."""
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
