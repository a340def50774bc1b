"""Transpositions in registers: squares of elements are read in rows and written in columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import attrs

from chameleon_tvm._emit import sequence, transposed
from chameleon_tvm._quick_tvm import tirx, tvm
from chameleon_tvm._spaces.loops.trees import (
    find_nodes,
    structural_equal,
    structural_map,
    substitute,
)
from chameleon_tvm._spaces.loops.vectors import (
    MAX_STRIDE,
    GuardedBody,
    counted_loop,
    is_vectorizable,
    lane_loop,
    reads_buffer,
    stride_of,
    vector_width,
)
from chameleon_tvm._spaces.sketch.tiles import counts_from_zero

_BAND = 64
"""Number of neighbours in the output that are written before those of the next row."""

_MAX_ROWS = 8
"""Largest number of rows of a square. TVM keeps only arrays of less than 1024 bytes on the stack,
where LLVM finds them."""


def with_transposes(statement: Any, lanes: int) -> Any:
    """Transpose squares in registers if two loops read along one axis and write along the other."""

    def mapped(loop: Any) -> Any:
        return _transpose_nest(loop, lanes) or loop

    return structural_map(statement, [(tirx.For, mapped)])


def _transpose_nest(loop: Any, lanes: int) -> Any | None:
    """The loops over squares that replace a loop along the output and one along the input."""
    inner = loop.body
    if not all(isinstance(each, tirx.For) and counts_from_zero(each) for each in (loop, inner)):
        return None
    guard = GuardedBody.of(inner)
    store = inner.body if guard is None else guard.body
    width = vector_width(min(int(inner.extent), int(loop.extent)), min(lanes, _MAX_ROWS))
    if not width or not isinstance(store, tirx.BufferStore):
        return None
    # The last part of an axis overlaps the part before it, so that all parts are of whole squares.
    dtype = str(inner.loop_var.ty)
    row_offset = (
        0 if guard is None else tirx.min(guard.is_full.b - guard.is_full.a, tirx.IntImm(dtype, 0))
    )
    squares = _Transpose(
        store=store, row=inner.loop_var, column=loop.loop_var, width=width, row_offset=row_offset
    )
    return (
        squares.loops(int(inner.extent), int(loop.extent))
        if squares.is_vectorizable_transpose()
        else None
    )


@attrs.frozen(kw_only=True, eq=False)
class _Transpose:
    """A store whose element is contiguous along one variable and reads arrays along another.

    Attributes:
        row: The variable along which arrays are read.
        column: The variable along which the output is contiguous.
        width: Number of elements of a vector, and of vectors of a square.
        row_offset: The number that is added to ``row``.
        arrays: The elements that are read along ``row``, and an array of a square of each.
    """

    store: Any
    row: Any
    column: Any
    width: int
    row_offset: Any
    arrays: Sequence[tuple[Any, Any]] = attrs.field(init=False)

    @arrays.default
    def _(self) -> Sequence[tuple[Any, Any]]:
        loads = find_nodes(self.store.value, tvm.ir.TensorLoad)
        strided = [load for load in loads if _step(load, self.column) not in range(MAX_STRIDE + 1)]
        return [
            (load, tirx.decl_buffer([self.width**2], str(load.ty), "square")) for load in strided
        ]

    def is_vectorizable_transpose(self) -> bool:
        """Whether vectors can compute the store."""
        store = self.store
        calls = find_nodes(store.value, tvm.ir.Call)
        return (
            bool(self.arrays)
            and all(_step(load, self.row) == 1 for load, _ in self.arrays)
            and all(str(load.ty) != "bool" for load, _ in self.arrays)
            and stride_of(store.buffer, store.indices, self.column) == 1
            and not reads_buffer(store.value, store.buffer)
            and not any("if_then_else" in str(call.op) for call in calls)
            and is_vectorizable(self._read_squares(tirx.IntImm("int64", 0)).value, self.column)
        )

    def loops(self, rows: int, columns: int) -> Any:
        """The loops over all squares."""
        # The squares of a band are neighbours, so that they complete the output's cache lines one
        # after another.
        side = min(_BAND, columns // self.width * self.width)
        rest = -(-(columns % side) // self.width) * self.width
        place = tirx.Var("square", str(self.column.ty))

        def band(size: int, start: Any) -> Any:
            def squares(first: Any) -> Any:
                body = sequence(list(self._square(first, start + place * self.width)))
                return counted_loop(place, size // self.width, body)

            return _steps(self.row, rows, self.width, squares)

        bands = [_steps(self.column, columns // side * side, side, partial(band, side))]
        if rest:
            bands.append(band(rest, tirx.IntImm(str(self.column.ty), columns - rest)))
        return sequence(bands)

    def _read_squares(self, place: Any) -> Any:
        """The store, which reads elements of the squares instead of the arrays."""

        def mapped(load: Any) -> Any:
            squares = (square for other, square in self.arrays if structural_equal(load, other))
            square = next(squares, None)
            return load if square is None else tirx.BufferLoad(square, [place])

        return structural_map(self.store, [(tvm.ir.TensorLoad, mapped)])

    def _at(self, tree: Any, row: Any, column: Any) -> Any:
        return substitute(substitute(tree, self.row, row + self.row_offset), self.column, column)

    def _square(self, first: Any, start: Any) -> Iterator[Any]:
        """The statements that compute a square of outputs from a row and a column on."""
        dtype, width = str(self.row.ty), self.width

        def read(load: Any, square: Any, line: int, lane: Any) -> Any:
            value = self._at(load, lane + first, start + line)
            return tirx.BufferStore(square, value, [lane + line * width])

        def write(line: int, lane: Any) -> Any:
            return self._at(self._read_squares(lane + line * width), first + line, lane + start)

        for load, square in self.arrays:
            yield tirx.AllocBuffer(square)
            for line in range(width):
                yield lane_loop(dtype, width, partial(read, load, square, line))
            yield from _transpose_square(square, width)
        for line in range(width):
            yield lane_loop(dtype, width, partial(write, line))


def _steps(variable: Any, extent: int, width: int, body: Callable[[Any], Any]) -> Any:
    """A loop over parts of an axis. The last part overlaps the part before it, if it is shorter."""
    step = tirx.Var(f"{variable.name}_square", str(variable.ty))
    parts = [counted_loop(step, extent // width, body(step * width))]
    if extent % width:
        parts.append(body(tirx.IntImm(str(variable.ty), extent - width)))
    return sequence(parts)


def _step(load: Any, variable: Any) -> int | None:
    return stride_of(load.source, load.indices, variable)


def _transpose_square(square: Any, width: int) -> Iterator[Any]:
    """The statements that transpose a square of vectors in memory."""
    places = [tirx.Ramp(line * width, 1, width) for line in range(width)]
    statements, lines = transposed([tirx.BufferLoad(square, [place]) for place in places])
    yield from statements
    for place, line in zip(places, lines, strict=True):
        yield tirx.BufferStore(square, line, [place])
