"""The kernel that writes rows into a tensor, such as the cache of a decoder."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from chameleon_tvm.api import emit, tirx

from chameleon_networks._compile.default_schedules import LOOPS_ATTRIBUTE
from chameleon_networks._graph.relax_utils import tvm

UPDATE = "chameleon.update"
"""An attribute of functions that copy their first parameter to the last one, and then write rows."""

_PATTERN, _OPAQUE = "op_pattern", 8
"""TVM's attribute of functions, and its value for those that are never fused."""


def update(
    shape: Sequence[int], dtype: str, axes: Sequence[int], indices: Sequence[Any], first: int
) -> Any:
    """The kernel of ``x[..., i, j, ...] = values``, with index tensors of one shape.

    Its parameters are the tensor, the indices, the values, and the result. An index beyond the
    tensor writes nothing.

    Args:
        shape: The shape of the tensor.
        dtype: The dtype of the tensor.
        axes: The axes of the tensor with an index.
        indices: The index tensors.
        first: The first axis of the values that belongs to the indices.
    """
    places = [int(extent) for extent in indices[0].ty.shape]
    rest = [axis for axis in range(len(shape)) if axis not in axes]
    before, after = rest[:first], rest[first:]
    extents = [*(shape[axis] for axis in before), *places, *(shape[axis] for axis in after)]
    data, values, result = (
        emit.buffer(name, extent, dtype=dtype)
        for name, extent in (("x", shape), ("values", extents), ("y", shape))
    )
    tables = [
        emit.buffer(f"i{number}", places, dtype=str(index.ty.dtype))
        for number, index in enumerate(indices)
    ]

    def write(*at: Any) -> Any:
        outer, inner = at[: len(before)], at[len(before) :]
        loaded = [tirx.Cast("int32", emit.load(table, inner)) for table in tables]
        row = [
            tirx.Select(index < 0, index + shape[axis], index)
            for axis, index in zip(axes, loaded, strict=True)
        ]
        inside = [
            tirx.all(index >= 0, index < shape[axis]) for axis, index in zip(axes, row, strict=True)
        ]

        def store(*columns: Any) -> Any:
            place = dict(zip(rest, (*outer, *columns), strict=True)) | dict(
                zip(axes, row, strict=True)
            )
            number = emit.load(values, [*at, *columns])
            return emit.store(result, [place[axis] for axis in range(len(shape))], number)

        columns = {f"column{axis}": shape[axis] for axis in after}
        return emit.when(tirx.all(*inside), emit.loops(columns, store))

    names = {f"at{axis}": extent for axis, extent in enumerate(extents[: len(extents) - len(after)])}
    if before:
        head, *others = names.items()
        rows = emit.parallel(
            head[0], head[1], lambda at: emit.loops(dict(others), lambda *more: write(at, *more))
        )
    else:
        rows = emit.loops(names, write)
    outer_shape, inner = list(shape[:-1]), shape[-1] if shape else 1

    def copy(row: Any) -> Any:
        place = emit.split(row, outer_shape)

        def element(column: Any) -> Any:
            at = [*place, column][: len(shape)]
            return emit.store(result, at, emit.load(data, at))

        return emit.loop("column", inner, element)

    whole = emit.parallel("row", math.prod(outer_shape), copy)
    return _function([data, *tables, values, result], [whole, rows])


def in_place(function: Any) -> Any:
    """The kernel that writes the rows alone, into a tensor that is there already."""
    [_, *rows] = function.body.block.body.seq
    return _function(function.params[1:], rows)


def _function(parameters: Sequence[Any], statements: Sequence[Any]) -> Any:
    root = tvm.s_tir.SBlock([], [], [], "root", emit.sequence(statements))
    realized = tvm.s_tir.SBlockRealize([], tirx.const(True), root)
    function = emit.function(parameters, realized)
    marks = {"s_tir": True, LOOPS_ATTRIBUTE: True, UPDATE: True, _PATTERN: _OPAQUE}
    return function.with_attr(marks)
