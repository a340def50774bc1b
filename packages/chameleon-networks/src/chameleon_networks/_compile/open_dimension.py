"""Finds out whether the kernels of a network may end at the size of a call.

A call whose inputs are smaller than those of a network computes its first rows alone. The loops of
kernels end after them, and no kernel may read a later row. Two networks that differ in one size
show which axes of their arrays have this size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import attrs
import numpy as np
from chameleon_tvm.api import (
    AttentionSpec,
    ConvolutionSpec,
    DenseSpec,
    open_axes,
    structural_map,
    tirx,
)
from tvm_ffi import structural_equal
from tvm_ffi.structural import structural_walk

from chameleon_networks._compile.sequence.calls import Call, CallSequence, Tensor
from chameleon_networks._graph.fusion_groups import FusionGroup
from chameleon_networks._graph.relax_utils import shape_of, tvm

Function = Any
Axes = tuple[int, ...]
Shapes = Sequence[tuple[int, ...]]


_SPATIAL = 0
"""The kind of TVM's block variables that no reduction is over."""


class NotOpenError(Exception):
    """Kernels of a network cannot end at the size of a call, for the reason given."""


@attrs.frozen(kw_only=True, eq=False)
class OpenFunction:
    """A function that is no tuned kernel, and computes a part of its open axes if a call says so.

    Attributes:
        function: The function. Sums over an open axis add nothing after the part.
        axes: The open axes of each parameter.
    """

    function: Function
    axes: Sequence[Axes]


@attrs.frozen(kw_only=True, eq=False)
class OpenDimension:
    """A size of a network's inputs that a call may make smaller.

    Attributes:
        extent: The size for which the network is compiled.
        other: The size of the other network.
        operators: The open axes of each fusion group's operator, by the group's last variable.
        shapes: For each call of a function that is no tuned kernel, in order, the shapes of its
            arguments in the other network.
    """

    extent: int
    other: int
    operators: Mapping[Any, open_axes.OpenAxes]
    shapes: Sequence[Shapes]

    def axes_of(self, fusion: FusionGroup) -> open_axes.OpenAxes:
        """The open axes of a fusion group's operator."""
        return self.operators[fusion.last]

    def functions(
        self, sequence: CallSequence, functions: Mapping[str, Function], tuned: frozenset[str]
    ) -> dict[str, OpenFunction]:
        """The functions with open axes that are no tuned kernels, by name.

        Raises:
            NotOpenError: A function mixes the elements of an open axis.
        """
        calls = [call for call in sequence.calls if call.kernel not in tuned]
        if len(calls) != len(self.shapes):
            raise NotOpenError("it has other kernels for another size")
        axes: dict[str, list[Axes]] = {}
        found: dict[str, OpenFunction] = {}
        for call, shapes in zip(calls, self.shapes, strict=True):
            name, function = call.kernel, functions[call.kernel]
            pairs = zip(call.arguments, shapes, strict=True)
            own = [self._open_axes(tensor, other) for tensor, other in pairs]
            if axes.setdefault(name, own) != own:
                raise NotOpenError(f"{name} is called with open axes and without")
            if any(own):
                by_buffer = dict(zip(function.params, own, strict=True))
                rows = _Rows(function, call, by_buffer)
                found[name] = OpenFunction(function=rows.checked(), axes=own)
        return found

    def _open_axes(self, tensor: Tensor, other: tuple[int, ...]) -> Axes:
        """The axes of a tensor that have the size of the call."""
        own = tensor.shape
        if len(own) != len(other):
            raise NotOpenError("a tensor has another rank for another size")
        pairs = enumerate(zip(own, other, strict=True))
        differ = {axis: pair for axis, pair in pairs if len({*pair}) > 1}
        if not {*differ.values()} <= {(self.extent, self.other)}:
            raise NotOpenError(f"a tensor of the shape {list(own)} has a multiple of the size")
        return tuple(differ)


def open_operators(
    groups: Sequence[FusionGroup], others: Sequence[FusionGroup], extent: int, other: int
) -> dict[Any, open_axes.OpenAxes]:
    """The open axes of the operators of a network, by the last variables of its fusion groups.

    Args:
        groups: The fusion groups of the network with the size ``extent``.
        others: Those of the network with the size ``other``.

    Raises:
        NotOpenError: An operator sums over an open axis, or moves elements along it.
    """
    if len(groups) != len(others):
        raise NotOpenError("it has other operators for another size")
    operators = {}
    for group, smaller in zip(groups, others, strict=True):
        extents = _open_extents(group, smaller, (extent, other))
        operators[group.last] = open_axes.OpenAxes(extent=extent, extents=extents)
    return operators


def _open_extents(
    group: FusionGroup, other: FusionGroup, sizes: tuple[int, int]
) -> Mapping[str, int]:
    mine, theirs = group.spec.arguments(), other.spec.arguments()
    names = {name for name in mine | theirs if mine.get(name) != theirs.get(name)}
    if not names:
        return {}
    spec = group.spec
    if isinstance(spec, AttentionSpec) and names <= {"query", "key", "value", "mask"}:
        return _open_attention(mine, theirs, sizes)
    if not isinstance(spec, DenseSpec | ConvolutionSpec) or names != {"input"}:
        raise NotOpenError(f"{spec.kind} {spec.sizes} differs in {', '.join(sorted(names))}")
    shape = theirs["input"]
    extents = spec.input[0], shape[0]
    if spec.input[1:] != tuple(shape[1:]):
        raise NotOpenError(f"{spec.kind} {spec.sizes} moves numbers along an open axis")
    # Rows of earlier axes would lie behind those of a smaller call.
    if not _is_outermost(group.inputs[0], other.inputs[0], sizes):
        return {}
    scaled = [number % size for number, size in zip(extents, sizes, strict=True)]
    if any(scaled) or extents[0] * sizes[1] != extents[1] * sizes[0]:
        raise NotOpenError(f"{spec.kind} {spec.sizes} has a number of rows that is no multiple")
    axis = open_axes.ROWS if isinstance(spec, DenseSpec) else open_axes.BATCH
    return {axis: extents[0]}


def _is_outermost(tensor: Any, other: Any, sizes: tuple[int, int]) -> bool:
    """Whether the first axis of a tensor with several elements is the open one."""
    pairs = zip(shape_of(tensor), shape_of(other), strict=True)
    return next((pair for pair in pairs if pair != (1, 1)), None) == sizes


def _open_attention(
    mine: Mapping[str, Any], theirs: Mapping[str, Any], sizes: tuple[int, int]
) -> Mapping[str, int]:
    axes = {
        open_axes.BATCH: ("query", 0),
        open_axes.QUERIES: ("query", 2),
        open_axes.KEYS: ("key", 2),
    }
    extents: dict[str, int] = {}
    for name, (field, axis) in axes.items():
        pair = mine[field][axis], theirs[field][axis]
        if pair[0] == pair[1]:
            continue
        if pair != sizes:
            raise NotOpenError("attention has other elements along an open axis")
        extents[name] = pair[0]
    return extents


@attrs.define(eq=False)
class _Rows:
    """Checks that a function computes each element of an open axis from the same one alone.

    Attributes:
        call: A call of the function.
        axes: The open axes of each buffer.
    """

    function: Function
    call: Call
    axes: dict[Any, Axes]
    _summed: set[Any] = attrs.field(factory=set)

    def checked(self) -> Function:
        """The function, whose reductions end with the call, or an error."""
        leaves = [
            block
            for block in _nodes(self.function.body, tvm.s_tir.SBlock)
            if not _nodes(block.body, tvm.s_tir.SBlockRealize)
        ]
        for block in leaves:
            self._check(block)
        if sum(map(self._loads, leaves)) < self._loads(self.function.body):
            self._refuse()
        if not self._summed:
            return self.function
        body = structural_map(self.function.body, (tvm.s_tir.SBlock, self._ended))
        return self.function.with_body(body)

    def _ended(self, block: Any) -> Any:
        """A block whose reduction over an open axis ends with the call."""
        variable = next((v.var for v in block.iter_vars if v.var in self._summed), None)
        if variable is None:
            return block
        part = variable < tirx.Cast(str(variable.ty), open_axes.called_extent())

        def ended(store: Any) -> Any:
            value = store.value
            known = isinstance(value, tirx.Add | tirx.Max | tirx.Min) and block.init is not None
            if not known or not _is_element(value.a, store):
                self._refuse()
            # A reduction begins with the number that changes nothing.
            number = tirx.Select(part, value.b, block.init.value)
            return tirx.BufferStore(store.buffer, type(value)(value.a, number), store.indices)

        body = structural_map(block.body, (tirx.BufferStore, ended))
        fields = block.iter_vars, block.reads, block.writes, block.name_hint, body, block.init
        more = block.alloc_buffers, block.match_buffers, block.annotations
        return tvm.s_tir.SBlock(*fields, *more)

    def _loads(self, tree: Any) -> int:
        loads = _nodes(tree, tvm.ir.expr.TensorLoad)
        return sum(bool(self.axes.get(load.source)) for load in loads)

    def _check(self, block: Any) -> None:
        """Check a block without others in it, and find the open axis of what it stores."""
        analyzer = tvm.sym.Analyzer()
        for variable in block.iter_vars:
            analyzer.bind(variable.var, variable.dom)
        spatial = {each.var for each in block.iter_vars if int(each.iter_type) == _SPATIAL}
        opened = self._read(block, analyzer)
        if not opened <= {each.var for each in block.iter_vars}:
            self._refuse()
        self._summed |= opened - spatial
        opened &= spatial
        for store in _nodes(block, tirx.BufferStore):
            indices = [analyzer.simplify(index) for index in store.indices]
            if opened and store.buffer not in self.axes:
                is_open = [{index} <= opened for index in indices]
                self.axes[store.buffer] = tuple(np.flatnonzero(is_open).tolist())
            stored = [indices[axis] for axis in self.axes.get(store.buffer, ())]
            if not opened <= {*stored} <= spatial or len({*stored}) < len(stored):
                self._refuse()

    def _read(self, block: Any, analyzer: Any) -> set[Any]:
        """The indices along open axes that a block reads, without that of the first element."""
        indices = (
            analyzer.simplify(load.indices[axis])
            for load in _nodes(block, tvm.ir.expr.TensorLoad)
            for axis in self.axes.get(load.source, ())
        )
        return {index for index in indices if not self._is_first(index, analyzer)}

    def _refuse(self) -> None:
        raise NotOpenError(f"{self.call.kernel} computes elements from others of an open axis")

    def _is_first(self, index: Any, analyzer: Any) -> bool:
        """Whether an index, which may be in a constant, is that of the first element."""
        arguments = dict(zip(self.function.params, self.call.arguments, strict=True))

        def extreme(load: Any, reduce: Any) -> Any:
            constant = arguments[load.source].storage.constant if load.source in arguments else None
            known = constant is not None and constant.size
            return tirx.IntImm(str(load.ty), int(reduce(constant))) if known else load

        numbers = [
            analyzer.simplify(
                structural_map(index, (tvm.ir.expr.TensorLoad, partial(extreme, reduce=reduce)))
            )
            for reduce in (np.min, np.max)
        ]
        return all(_is_number(number, 0) for number in numbers)


def _is_element(value: Any, store: Any) -> bool:
    """Whether a value is the element that a store writes."""
    return (
        isinstance(value, tvm.ir.expr.TensorLoad)
        and value.source.same_as(store.buffer)
        and all(map(structural_equal, value.indices, store.indices))
    )


def _is_number(value: Any, number: int) -> bool:
    return isinstance(value, tirx.IntImm) and int(value) == number


def end_loops(function: Function, axes: Sequence[Axes], extent: int) -> Function:
    """End the loops of a scheduled function at the extent of the call.

    A loop ends there if all that it stores is in an element of the open axis for each iteration.
    Other loops run to their ends, and compute rows that nobody reads.
    """
    by_buffer = dict(zip(function.params, axes, strict=False))
    ended: list[Any] = []

    def visit(loop: Any) -> None:
        if _is_number(loop.extent, extent) and _stores_elements(loop, by_buffer):
            ended.append(loop.loop_var)

    structural_walk(function.body, (tirx.For, visit), order="pre")

    def shortened(loop: Any) -> Any:
        if not any(loop.loop_var.same_as(variable) for variable in ended):
            return loop
        end = tirx.Cast(str(loop.loop_var.ty), open_axes.called_extent())
        fields = loop.kind, loop.body, loop.thread_binding, loop.annotations
        return tirx.For(loop.loop_var, loop.min, end, *fields)

    if not ended:
        return function
    return function.with_body(structural_map(function.body, (tirx.For, shortened)))


def _stores_elements(loop: Any, axes_of: Mapping[Any, Axes]) -> bool:
    """Whether an iteration of a loop stores the element of its number along open axes."""
    analyzer = tvm.sym.Analyzer()
    for each in _nodes(loop.body, tirx.For):
        analyzer.bind(each.loop_var, tvm.ir.Range.from_min_extent(each.min, each.extent))
    stores: list[list[Any]] = []
    for realize in _nodes(loop.body, tvm.s_tir.SBlockRealize):
        variables = (each.var for each in realize.block.iter_vars)
        values = dict(zip(variables, realize.iter_values, strict=True))
        for store in _nodes(realize.block.body, tirx.BufferStore):
            if store.buffer in axes_of:
                indices = (store.indices[axis] for axis in axes_of[store.buffer])
                chosen = (tirx.Var, _value_in(values))
                stores.append([structural_map(index, chosen) for index in indices])
    return bool(stores) and all(
        any(_is_number(analyzer.simplify(index - loop.loop_var), 0) for index in indices)
        for indices in stores
    )


def _value_in(values: Mapping[Any, Any]) -> Callable[[Any], Any]:
    return lambda variable: values.get(variable, variable)


def _nodes(tree: Any, kind: Any) -> list[Any]:
    nodes: list[Any] = []
    structural_walk(tree, (kind, nodes.append))
    return nodes
