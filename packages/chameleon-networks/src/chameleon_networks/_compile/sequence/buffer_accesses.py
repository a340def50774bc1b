"""Analyses how kernels access a buffer, to use strided views or gather channels in place."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import attrs
from chameleon_tvm.api import tirx
from tvm_ffi.structural import WalkResult, structural_hash, structural_walk

from chameleon_networks._compile.sequence.buffer_specialization import (
    aliases,
    axis_by_buffer,
    buffer_shape,
)
from chameleon_networks._graph.relax_utils import PLAIN_LOOPS, tvm
from chameleon_networks._graph.strides import axis_in, is_dense, reshaped_strides

Function = Any
Buffer = Any


def supports_strides(function: Function, position: int, strides: Sequence[int]) -> bool:
    """Whether a kernel can access a parameter with these strides (in elements)."""
    # No vector may cross a gap, and the function must not pass the address on.
    parameter = function.params[position]
    if is_dense(buffer_shape(parameter), strides):
        return True
    views: dict[Buffer, Sequence[int]] = {}
    for buffer in (parameter, *aliases(function, parameter)):
        view = reshaped_strides(buffer_shape(parameter), strides, buffer_shape(buffer))
        if view is None:
            return False
        views[buffer] = view
    return _BufferAccesses(function, views).fits_strides(views)


def gather_axis(function: Function, position: int, shape: Sequence[int], axis: int) -> int | None:
    """The axis of a parameter that a kernel can read through an index table, or None."""
    # Only final loops are sure to access one index at a time; a schedule might vectorize other
    # loops.
    if PLAIN_LOOPS not in (function.attrs or {}):
        return None
    index = axis_in(shape, axis, buffer_shape(function.params[position]))
    if index is None:
        return None
    axes = axis_by_buffer(function, position, index)
    return (
        index
        if None not in axes.values() and _BufferAccesses(function, axes).has_single_indices(axes)
        else None
    )


def count_gathered_indices(function: Function, position: int, axis: int) -> int:
    """How often a kernel would look up an index, equal ones in a loop's body once."""
    axes = axis_by_buffer(function, position, axis)
    return _BufferAccesses(function, axes).count_indices(axes)


@attrs.frozen(kw_only=True, eq=False)
class _Access:
    """A load or a store of an element of a buffer.

    Attributes:
        indices: The indices of the element.
        loop: The number of the innermost loop around the access.
        trips: How often the body of that loop is executed, at most.
    """

    buffer: Buffer
    indices: Sequence[Any]
    loop: int
    trips: int


class _BufferAccesses:
    """How a function loads and stores elements of some buffers."""

    def __init__(self, function: Function, buffers: Collection[Buffer]) -> None:
        self._analyzer = tvm.sym.Analyzer()
        self._buffers = buffers
        self._accesses: list[_Access] = []
        self._aliases: list[Any] = []
        self._calls: list[Any] = []
        self._loops = self._loop = 0
        self._trips = 1
        self._walk(function)
        self._escapes = any(
            isinstance(argument, tvm.ir.Var) and argument in buffers
            for call in self._calls
            if not any(call.same_as(view.data) for view in self._aliases)
            for argument in call.args
        )

    def _walk(self, node: Any) -> None:
        structural_walk(
            node,
            [
                (tvm.ir.expr.TensorLoad, lambda load: self._access(load.source, load.indices)),
                (tirx.BufferStore, lambda store: self._access(store.buffer, store.indices)),
                (tirx.For, self._visit_loop),
                (tirx.DeclBuffer, self._aliases.append),
                (tvm.ir.Call, self._calls.append),
            ],
            order="pre",
        )

    def _access(self, buffer: Buffer, indices: Sequence[Any]) -> None:
        if buffer in self._buffers:
            access = _Access(buffer=buffer, indices=indices, loop=self._loop, trips=self._trips)
            self._accesses.append(access)

    def _visit_loop(self, loop: Any) -> WalkResult:
        extent = tvm.ir.Range.from_min_extent(loop.min, loop.extent)
        self._analyzer.bind(loop.loop_var, extent)
        outside = self._loop, self._trips
        self._loops += 1
        self._loop = self._loops
        self._trips *= int(self._analyzer.const_int_bound(loop.extent).max_value)
        self._walk(loop.body)
        self._loop, self._trips = outside
        return WalkResult.SKIP

    def fits_strides(self, strides: Mapping[Buffer, Sequence[int]]) -> bool:
        """Whether a kernel can use buffers with given strides: no vector may reach over a gap.

        Args:
            strides: The strides of each buffer's axes, in elements.
        """
        return not self._escapes and all(
            self._is_contiguous(access.buffer, access.indices, strides[access.buffer])
            for access in self._accesses
            if any(map(_is_vector, access.indices))
        )

    def has_single_indices(self, axes: Mapping[Buffer, Any]) -> bool:
        """Whether each access touches one index of an axis at a time, within bounds."""
        if self._escapes:
            return False
        for access in self._accesses:
            axis = axes[access.buffer]
            index = access.indices[axis]
            if _is_vector(index):
                return False
            bound = self._analyzer.const_int_bound(self._analyzer.simplify(index))
            if (
                int(bound.min_value) < 0
                or int(bound.max_value) >= buffer_shape(access.buffer)[axis]
            ):
                return False
        return True

    def count_indices(self, axes: Mapping[Buffer, Any]) -> int:
        """How many indices along an axis a run of the function computes, over all loops."""
        distinct = {
            (access.loop, int(structural_hash(access.indices[axes[access.buffer]]))): access.trips
            for access in self._accesses
        }
        return sum(distinct.values())

    def _is_contiguous(
        self, buffer: Buffer, indices: Sequence[Any], strides: Sequence[int]
    ) -> bool:
        """Whether a vector access reads only elements without a gap between them."""
        *outer, last = indices
        if any(map(_is_vector, outer)) or not isinstance(last, tirx.Ramp):
            return False
        shape = buffer_shape(buffer)
        step = getattr(last.stride, "value", 0)
        if step <= 0 or strides[-1] != 1:
            return False
        dense = 1
        end: Any = last.base + step * (int(last.lanes) - 1)
        for axis in range(len(shape) - 1, -1, -1):
            if shape[axis] == 1:
                continue
            if strides[axis] != dense:
                break
            if axis != len(shape) - 1:
                end = end + indices[axis] * dense
            dense *= shape[axis]
        bound = self._analyzer.const_int_bound(self._analyzer.simplify(end))
        return int(bound.max_value) < dense


def _is_vector(index: Any) -> bool:
    return isinstance(index, tirx.Ramp | tirx.Broadcast)
