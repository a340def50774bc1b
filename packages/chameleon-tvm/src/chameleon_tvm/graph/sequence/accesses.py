"""Whether a kernel can work on a tensor with other strides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm_ffi.structural import structural_walk

from chameleon_tvm.graph.relaxed import tvm
from chameleon_tvm.graph.sequence.strides import reshaped_strides
from chameleon_tvm.graph.sequence.variants import aliases, extents
from chameleon_tvm.quick_tvm import tirx

Function = Any
Buffer = Any


def takes_strides(function: Function, position: int, strides: Sequence[int]) -> bool:
    """Whether a parameter of a function may have strides that leave gaps.

    Not so where it is read in a shape that cannot have them, where vectors reach over a gap, and
    where another function is passed its address.

    Args:
        function: its parameters are buffers without gaps.
        position: the parameter's.
        strides: of the parameter's axes, in elements.
    """
    parameter = function.params[position]
    known: dict[Buffer, Sequence[int]] = {}
    for buffer in (parameter, *aliases(function, parameter)):
        found = reshaped_strides(extents(parameter), strides, extents(buffer))
        if found is None:
            return False
        known[buffer] = found
    return _Accesses(function, known).fit()


class _Accesses:
    def __init__(self, function: Function, known: dict[Buffer, Sequence[int]]) -> None:
        self._known = known
        self._analyzer = tvm.sym.Analyzer()
        self._vectors: list[tuple[Buffer, Sequence[Any]]] = []
        declarations: list[Any] = []
        calls: list[Any] = []
        structural_walk(
            function,
            [
                (tvm.ir.expr.TensorLoad, lambda load: self._access(load.source, load.indices)),
                (tirx.BufferStore, lambda store: self._access(store.buffer, store.indices)),
                (tirx.For, self._loop),
                (tirx.DeclBuffer, declarations.append),
                (tvm.ir.Call, calls.append),
            ],
            order="pre",
        )
        declared = [one.data for one in declarations]
        self._escapes = any(
            isinstance(argument, tvm.ir.Var) and argument in known
            for call in calls
            if not any(call.same_as(data) for data in declared)
            for argument in call.args
        )

    def fit(self) -> bool:
        """Whether all is well."""
        return not self._escapes and all(self._inside(*one) for one in self._vectors)

    def _access(self, buffer: Buffer, indices: Sequence[Any]) -> None:
        if buffer in self._known and any(map(_is_vector, indices)):
            self._vectors.append((buffer, indices))

    def _loop(self, loop: Any) -> None:
        extent = tvm.ir.Range.from_min_extent(loop.min, loop.extent)
        self._analyzer.bind(loop.loop_var, extent)

    def _inside(self, buffer: Buffer, indices: Sequence[Any]) -> bool:
        """Whether a vector stays where its buffer has no gaps."""
        *outer, last = indices
        if any(map(_is_vector, outer)) or not isinstance(last, tirx.Ramp):
            return False
        shape, strides = extents(buffer), self._known[buffer]
        step = getattr(last.stride, "value", 0)
        if step <= 0 or strides[-1] != 1:
            return False
        dense = 1
        place: Any = last.base + step * (int(last.lanes) - 1)
        for axis in range(len(shape) - 1, -1, -1):
            if shape[axis] == 1:
                continue
            if strides[axis] != dense:
                break
            if axis != len(shape) - 1:
                place = place + indices[axis] * dense
            dense *= shape[axis]
        bound = self._analyzer.const_int_bound(self._analyzer.simplify(place))
        return int(bound.max_value) < dense


def _is_vector(index: Any) -> bool:
    return isinstance(index, tirx.Ramp | tirx.Broadcast)
