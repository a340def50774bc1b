"""Vectorizes sums that are neighbours in memory: each lane of a vector computes one sum."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import attrs

from chameleon_tvm._emit import sequence
from chameleon_tvm._quick_tvm import tirx, tvm
from chameleon_tvm._spaces.loops.trees import (
    found,
    is_element,
    structural_equal,
    structural_map,
    substituted,
    uses,
)
from chameleon_tvm._spaces.loops.vectors import (
    COMPARISONS,
    MOST_CUTS,
    Guarded,
    analyzer_of,
    computes,
    counted_loop,
    decided,
    lane_loop,
    step_of,
    stride_of,
    width_of,
)
from chameleon_tvm._spaces.sketch.tiles import chain, counts_from_zero

MOST_COLUMNS = 8
"""Largest number of vectors of sums that are kept in registers."""


def with_columns(statements: Sequence[Any], lanes: int) -> Iterator[Any]:
    """Vectorize sums that are neighbours in memory: each lane of a vector computes one sum.

    The sums must fit in registers. The statement that sets their initial values and the loop that
    adds to them are combined. Other statements are yielded unchanged, in order.
    """
    left = list(statements)
    while left:
        first = left.pop(0)
        columns = _columns(first, left[0], lanes) if left else None
        if columns is not None:
            left.pop(0)
        yield first if columns is None else columns


def _columns(initial: Any, update: Any, lanes: int) -> Any | None:
    """A loop that starts sums and the loops that add to them as one statement; else None."""
    loops, _ = chain(update)
    around = loops[:-1]
    if not around or not isinstance(initial, tirx.For) or not counts_from_zero(initial):
        return None
    column = loops[-1]
    width = int(column.extent)
    if int(initial.extent) != width or width > MOST_COLUMNS * lanes:
        return None
    guards = [Guarded.of(loop) for loop in (initial, column)]
    first, body = (
        loop.body if guard is None else guard.body
        for loop, guard in zip((initial, column), guards, strict=True)
    )
    first = substituted(first, initial.loop_var, column.loop_var)
    edges = _edges(body, column.loop_var)
    columns = _Columns(
        around=around,
        column=column.loop_var,
        first=first,
        body=body,
        starts=list(getattr(first, "seq", [first])),
        statements=list(getattr(within := _without(body, edges), "seq", [within])),
        edges=edges,
    )
    if not columns.fit():
        return None
    guard = guards[-1]
    if guard is None:
        return columns.written(width, lanes)
    return guard.split(width, lambda count: columns.written(count, lanes))


def _edges(body: Any, variable: Any) -> list[Any]:
    """The comparisons along a variable that leave out a window's terms beyond the border."""
    branches = [call for call in found(body, tvm.ir.Call) if "if_then_else" in str(call.op)]
    edges = [edge for call in branches for edge in found(call.args[0], COMPARISONS)]
    sides = [(edge, step_of(edge.a, variable), step_of(edge.b, variable)) for edge in edges]
    return [edge for edge, *steps in sides if None not in steps and any(steps)]


def _without(body: Any, edges: Sequence[Any]) -> Any:
    """A loop's body without its conditions at the borders."""
    if not edges:
        return body

    def mapped(node: Any) -> Any:
        return tirx.IntImm("bool", 1) if any(map(node.same_as, edges)) else node

    simplify = tvm.sym.Analyzer().simplify
    body = structural_map(structural_map(body, [(COMPARISONS, mapped)]), [(tirx.And, simplify)])
    return structural_map(body, [(tvm.ir.Call, decided)])


@attrs.frozen(kw_only=True)
class _Columns:
    """Sums that are neighbours in memory.

    Attributes:
        around: The loops over the terms of the sums.
        column: The variable that counts the sums.
        first: The statement that stores the initial values.
        body: The statement that adds a term to a sum.
        starts: The statements of ``first``, as a list.
        statements: The statements of ``body`` as they are away from the borders, as a list.
        edges: The conditions by which ``body`` differs at the borders.
    """

    around: Sequence[Any]
    column: Any
    first: Any
    body: Any
    starts: Sequence[Any]
    statements: Sequence[Any]
    edges: Sequence[Any]

    @property
    def _stores(self) -> list[Any]:
        return [each for each in self.statements if isinstance(each, tirx.BufferStore)]

    def fit(self) -> bool:
        """Whether these statements are sums that vectors can hold."""
        if not all(isinstance(each, tirx.BufferStore | tirx.Bind) for each in self.statements):
            return False
        stores = self._stores
        if len(self.starts) != len(stores) or not all(map(self._begins, self.starts, stores)):
            return False
        values = [each.value for each in self.statements]
        loads = [load for value in values for load in found(value, tvm.ir.TensorLoad)]
        own = all(
            is_element(load, store)
            for load in loads
            for store in stores
            if load.source.same_as(store.buffer)
        )
        return own and all(computes(value, self.column) for value in values)

    def _begins(self, start: Any, store: Any) -> bool:
        """Whether ``start`` initializes the element to which ``store`` adds."""
        return (
            isinstance(start, tirx.BufferStore)
            and start.buffer.same_as(store.buffer)
            and all(map(structural_equal, start.indices, store.indices))
            and stride_of(store.buffer, store.indices, self.column) == 1
            and not any(uses(at, loop.loop_var) for at in store.indices for loop in self.around)
        )

    def written(self, count: int, lanes: int) -> Any:
        """Write the statement that computes neighbouring sums, in vectors except for the rest."""
        low, high = self._within(count)
        width = width_of(high - low, lanes)
        if not width:
            return self._alone(0, count)
        parts = [self._alone(0, low)] if low else []
        parts.append(self._vectors(low, high, width))
        if high < count:
            parts.append(self._alone(high, count))
        return sequence(parts)

    def _within(self, count: int) -> tuple[int, int]:
        """The range of sums whose windows all lie within the borders."""
        analyzer = analyzer_of(*((loop.loop_var, int(loop.extent)) for loop in self.around))

        def holds(at: int) -> bool:
            number = tirx.IntImm(str(self.column.ty), at)
            return all(
                analyzer.can_prove(substituted(edge, self.column, number)) for edge in self.edges
            )

        inside = [at for at in range(count) if MOST_CUTS <= at < count - MOST_CUTS or holds(at)]
        low, high = (inside[0], inside[-1] + 1) if inside else (0, 0)
        return (low, high) if len(inside) == high - low and holds(low) else (0, 0)

    def _alone(self, start: int, end: int) -> Any:
        """The statement that computes the sums of a range one at a time."""
        first, body = (
            counted_loop(
                self.column, end - start, substituted(each, self.column, self.column + start)
            )
            for each in (self.first, self.body)
        )
        return tirx.SeqStmt([first, self._nested(body)])

    def _nested(self, body: Any) -> Any:
        for loop in reversed(self.around):
            body = counted_loop(loop.loop_var, int(loop.extent), body, tirx.ForKind(loop.kind))
        return body

    def _vectors(self, low: int, high: int, lanes: int) -> Any:
        """Sums in vectors. The last vector may overlap the vector before it."""
        places = [min(place, high - lanes) for place in range(low, high, lanes)]
        stores, width = self._stores, lanes * len(places)
        sums = [
            tirx.decl_buffer([width], str(store.buffer.dtype), f"{store.buffer.name}_sums")
            for store in stores
        ]

        def vectors(body: Callable[[Any, Any], list[Any]]) -> Any:
            """Write the statements for all sums, as one vectorized loop for each vector of sums.

            Args:
                body: A function that returns the statements for one sum, which is a lane of a
                    vector. Its first argument is the index of the sum in the local buffer ``sums``.
                    Its second argument is the value of the loop variable ``column`` for this sum,
                    from which the indices into the tensors in memory follow.
            """

            def vector(number: int, place: int, lane: Any) -> Any:
                return sequence(body(lane + number * lanes, lane + place))

            dtype = str(self.column.ty)
            return sequence(
                [lane_loop(dtype, lanes, partial(vector, *each)) for each in enumerate(places)]
            )

        def clear(slot: Any, _: Any) -> list[Any]:
            pairs = zip(sums, self.starts, strict=True)
            return [tirx.BufferStore(total, start.value, [slot]) for total, start in pairs]

        def add(slot: Any, place: Any) -> list[Any]:
            def total_of(buffer: Any) -> Any:
                pairs = zip(stores, sums, strict=True)
                return next((t for store, t in pairs if store.buffer.same_as(buffer)), None)

            def loaded(load: Any) -> Any:
                total = total_of(load.source)
                return load if total is None else tirx.BufferLoad(total, [slot])

            added = []
            for each in self.statements:
                term = structural_map(each, [(tvm.ir.TensorLoad, loaded)])
                if isinstance(term, tirx.BufferStore):
                    term = tirx.BufferStore(total_of(term.buffer), term.value, [slot])
                added.append(substituted(term, self.column, place))
            return added

        def write(slot: Any, place: Any) -> list[Any]:
            return [
                tirx.BufferStore(
                    store.buffer,
                    tirx.BufferLoad(total, [slot]),
                    [substituted(index, self.column, place) for index in store.indices],
                )
                for store, total in zip(stores, sums, strict=True)
            ]

        allocations = [tirx.AllocBuffer(total) for total in sums]
        return tirx.SeqStmt(
            [*allocations, vectors(clear), self._nested(vectors(add)), vectors(write)]
        )
