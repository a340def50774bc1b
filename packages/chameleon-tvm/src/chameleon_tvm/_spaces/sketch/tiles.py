"""Describes the loops of a tiled reduction, and has functions that change bodies of loops."""

from __future__ import annotations

import math
from typing import Any

import attrs

from chameleon_tvm._quick_tvm import tirx
from chameleon_tvm._spaces.loops.trees import is_element
from chameleon_tvm._spaces.sketch.expressions import variables_of

Loops = tuple[Any, ...]


@attrs.frozen(kw_only=True, eq=False)
class Reduction:
    """A tile of sums: initial value, loops outermost first, store and added term."""

    initial: Any
    loops: Loops
    store: Any
    term: Any

    @property
    def spatial(self) -> frozenset[str]:
        """Names of the loop variables that decide which sum an iteration adds to."""
        return frozenset().union(*(variables_of(index) for index in self.store.indices))

    @property
    def first_tile_loop(self) -> int:
        """The position after the last reduction loop."""
        spatial = self.spatial
        summed = [p for p, loop in enumerate(self.loops) if name_of(loop) not in spatial]
        return 1 + max(summed, default=-1)

    @property
    def tile(self) -> Loops:
        """The loops inside of all reduction loops, which run over the sums kept in registers."""
        return self.loops[self.first_tile_loop :]


def reduction_of(initialization: Any, statement: Any) -> Reduction | None:
    """The reduction that two consecutive statements form, or None."""
    initial, first = nested_loops(initialization)
    loops, store = nested_loops(statement)
    if not (loops and isinstance(first, tirx.BufferStore) and isinstance(store, tirx.BufferStore)):
        return None
    same_buffer = first.buffer.same_as(store.buffer)
    constant = isinstance(first.value, tirx.FloatImm | tirx.IntImm)
    if not (same_buffer and constant and isinstance(store.value, tirx.Add)):
        return None
    reduction = Reduction(initial=first.value, loops=loops, store=store, term=store.value.b)
    if "?" in reduction.spatial or not is_element(store.value.a, store):
        return None
    sums = math.prod(int(loop.extent) for loop in loops if name_of(loop) in reduction.spatial)
    same_size = sums == math.prod(int(loop.extent) for loop in initial)
    return reduction if same_size else None


def replace_body(
    loop: Any, body: Any, *, start: int = 0, extent: int | None = None, unroll: bool = False
) -> Any:
    """A loop with another body, and optionally another range."""
    kind, dtype = tirx.ForKind(int(loop.kind)), str(loop.loop_var.ty)
    if unroll and kind == tirx.ForKind.SERIAL:
        kind = tirx.ForKind.UNROLLED
    return tirx.For(
        loop.loop_var,
        tirx.IntImm(dtype, start),
        tirx.IntImm(dtype, int(loop.extent) if extent is None else extent),
        kind,
        body,
        loop.thread_binding,
        dict(loop.annotations),
    )


def nested_loops(statement: Any) -> tuple[Loops, Any]:
    """The loops that are nested directly inside of each other, and the innermost body."""
    loops: list[Any] = []
    while isinstance(statement, tirx.For) and counts_from_zero(statement):
        loops.append(statement)
        statement = statement.body
    return tuple(loops), statement


def counts_from_zero(loop: Any) -> bool:
    """Whether a loop runs from 0 to a constant."""
    return (
        isinstance(loop.min, tirx.IntImm)
        and int(loop.min) == 0
        and isinstance(loop.extent, tirx.IntImm)
    )


def name_of(loop: Any) -> str:
    """The name of a loop's variable."""
    return str(loop.loop_var.name)


def is_vectorized(loop: Any) -> bool:
    """Whether a loop's iterations are the lanes of vectors."""
    return int(loop.kind) == int(tirx.ForKind.VECTORIZED)
