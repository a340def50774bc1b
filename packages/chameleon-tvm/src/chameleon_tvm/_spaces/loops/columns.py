"""Vectorizes sums that are neighbours in memory: each lane of a vector computes one sum."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import attrs

from chameleon_tvm._emit import sequence
from chameleon_tvm._quick_tvm import tirx, tvm
from chameleon_tvm._spaces.loops.partial_sums import narrow_term, pairwise_sum, terms_together
from chameleon_tvm._spaces.loops.trees import (
    find_nodes,
    is_element,
    structural_equal,
    structural_map,
    substitute,
    uses,
)
from chameleon_tvm._spaces.loops.vectors import (
    COMPARISONS,
    MAX_SPLITS,
    GuardedBody,
    analyzer_of,
    counted_loop,
    fold_condition,
    is_vectorizable,
    lane_loop,
    step_of,
    stride_of,
    vector_width,
)
from chameleon_tvm._spaces.sketch.tiles import counts_from_zero, nested_loops

MOST_COLUMNS = 8
"""Largest number of vectors of sums that are kept in registers."""


def vectorize_columns(statements: Sequence[Any], lanes: int) -> Iterator[Any]:
    """Vectorize sums that are neighbours in memory: each lane of a vector computes one sum.

    The statement that initializes sums and the loop that adds to them are combined.
    """
    remaining = list(statements)
    while remaining:
        initial = remaining.pop(0)
        columns = _vector_columns(initial, remaining[0], lanes) if remaining else None
        if columns is not None:
            remaining.pop(0)
        yield initial if columns is None else columns


def _vector_columns(initial: Any, update: Any, lanes: int) -> Any | None:
    """The loop that initializes sums and the loops that add to them as one statement; else None."""
    loops, _ = nested_loops(update)
    term_loops = loops[:-1]
    if not term_loops or not isinstance(initial, tirx.For) or not counts_from_zero(initial):
        return None
    column = loops[-1]
    width = int(column.extent)
    if int(initial.extent) != width or width > MOST_COLUMNS * lanes:
        return None
    guards = [GuardedBody.of(loop) for loop in (initial, column)]
    store_initial, body = (
        loop.body if guard is None else guard.body
        for loop, guard in zip((initial, column), guards, strict=True)
    )
    store_initial = substitute(store_initial, initial.loop_var, column.loop_var)
    edges = _edges(body, column.loop_var)
    columns = _ColumnSums(
        term_loops=term_loops,
        column=column.loop_var,
        initial=store_initial,
        body=body,
        initial_stores=list(getattr(store_initial, "seq", [store_initial])),
        statements=list(getattr(interior := _without(body, edges), "seq", [interior])),
        edges=edges,
    )
    if not columns.is_vectorizable_sum():
        return None
    guard = guards[-1]
    if guard is None:
        return columns.emit(width, lanes)
    return guard.split(width, lambda count: columns.emit(count, lanes))


def _edges(body: Any, variable: Any) -> list[Any]:
    """The comparisons along a variable that leave out a window's terms beyond the border."""
    branches = [call for call in find_nodes(body, tvm.ir.Call) if "if_then_else" in str(call.op)]
    edges = [edge for call in branches for edge in find_nodes(call.args[0], COMPARISONS)]
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
    return structural_map(body, [(tvm.ir.Call, fold_condition)])


@attrs.frozen(kw_only=True)
class _ColumnSums:
    """Sums that are neighbours in memory.

    Attributes:
        term_loops: The loops over the terms of the sums.
        column: The variable that counts the sums.
        initial: The statement that stores the initial values.
        body: The statement that adds a term to a sum.
        initial_stores: The statements of ``initial``, as a list.
        statements: The statements of ``body`` away from the borders, as a list.
        edges: The conditions by which ``body`` differs at the borders.
    """

    term_loops: Sequence[Any]
    column: Any
    initial: Any
    body: Any
    initial_stores: Sequence[Any]
    statements: Sequence[Any]
    edges: Sequence[Any]

    @property
    def _stores(self) -> list[Any]:
        return [node for node in self.statements if isinstance(node, tirx.BufferStore)]

    def is_vectorizable_sum(self) -> bool:
        """Whether these statements are sums that vectors can hold."""
        if not all(isinstance(node, tirx.BufferStore | tirx.Bind) for node in self.statements):
            return False
        stores = self._stores
        initial = self.initial_stores
        if len(initial) != len(stores) or not all(map(self._initializes, initial, stores)):
            return False
        values = [statement.value for statement in self.statements]
        loads = [load for value in values for load in find_nodes(value, tvm.ir.TensorLoad)]
        own = all(
            is_element(load, store)
            for load in loads
            for store in stores
            if load.source.same_as(store.buffer)
        )
        return own and all(is_vectorizable(value, self.column) for value in values)

    def _initializes(self, start: Any, store: Any) -> bool:
        """Whether ``start`` initializes the element to which ``store`` adds."""
        return (
            isinstance(start, tirx.BufferStore)
            and start.buffer.same_as(store.buffer)
            and all(map(structural_equal, start.indices, store.indices))
            and stride_of(store.buffer, store.indices, self.column) == 1
            and not any(uses(at, loop.loop_var) for at in store.indices for loop in self.term_loops)
        )

    def emit(self, count: int, lanes: int) -> Any:
        """Write the statement that computes neighbouring sums, in vectors except for the rest."""
        low, high = self._interior(count)
        width = vector_width(high - low, lanes)
        if not width:
            return self._scalar_loops(0, count)
        parts = [self._scalar_loops(0, low)] if low else []
        parts.append(self._vectors(low, high, width))
        if high < count:
            parts.append(self._scalar_loops(high, count))
        return sequence(parts)

    def _interior(self, count: int) -> tuple[int, int]:
        """The range of sums whose windows all lie within the borders."""
        analyzer = analyzer_of(*((loop.loop_var, int(loop.extent)) for loop in self.term_loops))

        def holds(at: int) -> bool:
            number = tirx.IntImm(str(self.column.ty), at)
            return all(
                analyzer.can_prove(substitute(edge, self.column, number)) for edge in self.edges
            )

        inside = [at for at in range(count) if MAX_SPLITS <= at < count - MAX_SPLITS or holds(at)]
        low, high = (inside[0], inside[-1] + 1) if inside else (0, 0)
        return (low, high) if len(inside) == high - low and holds(low) else (0, 0)

    def _scalar_loops(self, start: int, end: int) -> Any:
        """The statement that computes the sums of a range one at a time."""
        initial, body = (
            counted_loop(
                self.column, end - start, substitute(statement, self.column, self.column + start)
            )
            for statement in (self.initial, self.body)
        )
        return tirx.SeqStmt([initial, self._nested(body, self.term_loops)])

    def _nested(self, body: Any, loops: Sequence[Any]) -> Any:
        for loop in reversed(loops):
            body = counted_loop(loop.loop_var, int(loop.extent), body, tirx.ForKind(loop.kind))
        return body

    def _vectors(self, low: int, high: int, lanes: int) -> Any:
        """Sums in vectors. The last vector may overlap the vector before it."""
        offsets = [min(offset, high - lanes) for offset in range(low, high, lanes)]
        stores, width = self._stores, lanes * len(offsets)
        sums = [
            tirx.decl_buffer([width], str(store.buffer.dtype), f"{store.buffer.name}_sums")
            for store in stores
        ]

        def vectors(body: Callable[[Any, Any], list[Any]]) -> Any:
            """One vectorized loop per vector of sums; ``body`` takes a sum's index and column."""

            def vector(number: int, offset: int, lane: Any) -> Any:
                return sequence(body(lane + number * lanes, lane + offset))

            dtype = str(self.column.ty)
            return sequence(
                [lane_loop(dtype, lanes, partial(vector, *item)) for item in enumerate(offsets)]
            )

        def clear(slot: Any, _: Any) -> list[Any]:
            pairs = zip(sums, self.initial_stores, strict=True)
            return [tirx.BufferStore(total, start.value, [slot]) for total, start in pairs]

        def write(slot: Any, offset: Any) -> list[Any]:
            return [
                tirx.BufferStore(
                    store.buffer,
                    tirx.BufferLoad(total, [slot]),
                    [substitute(index, self.column, offset) for index in store.indices],
                )
                for store, total in zip(stores, sums, strict=True)
            ]

        allocations = [tirx.AllocBuffer(total) for total in sums]
        return tirx.SeqStmt(
            [*allocations, vectors(clear), self._added(sums, vectors), vectors(write)]
        )

    def _added(self, sums: Sequence[Any], vectors: Callable[..., Any]) -> Any:
        """The loops that add all terms to vectors of sums."""
        *around, inner = self.term_loops
        narrow = [narrow_term(store) for store in self._stores]
        if None in narrow or len(narrow) < len(self.statements):
            return self._nested(vectors(partial(self._add, sums)), self.term_loops)

        def add(count: int, start: Any, slot: Any, offset: Any) -> list[Any]:
            """Add several terms of float32 to each sum of float64."""

            def added(total: Any, term: Any) -> Any:
                own = substitute(term, self.column, offset)
                terms = [substitute(own, inner.loop_var, start + at) for at in range(count)]
                more = pairwise_sum(terms).astype(str(total.dtype))
                return tirx.BufferStore(total, tirx.BufferLoad(total, [slot]) + more, [slot])

            return list(map(added, sums, narrow))

        together = min(map(terms_together, narrow))
        steps, rest = divmod(int(inner.extent), together)
        parts = []
        if steps:
            body = vectors(partial(add, together, inner.loop_var * together))
            parts.append(counted_loop(inner.loop_var, steps, body, tirx.ForKind(inner.kind)))
        if rest:
            start = tirx.IntImm(str(inner.loop_var.ty), steps * together)
            parts.append(vectors(partial(add, rest, start)))
        return self._nested(sequence(parts), around)

    def _add(self, sums: Sequence[Any], slot: Any, offset: Any) -> list[Any]:
        """Add a term to each sum."""

        def total_of(buffer: Any) -> Any:
            pairs = zip(self._stores, sums, strict=True)
            return next((t for store, t in pairs if store.buffer.same_as(buffer)), None)

        def loaded(load: Any) -> Any:
            total = total_of(load.source)
            return load if total is None else tirx.BufferLoad(total, [slot])

        terms = []
        for statement in self.statements:
            term = structural_map(statement, [(tvm.ir.TensorLoad, loaded)])
            if isinstance(term, tirx.BufferStore):
                term = tirx.BufferStore(total_of(term.buffer), term.value, [slot])
            terms.append(substitute(term, self.column, offset))
        return terms
