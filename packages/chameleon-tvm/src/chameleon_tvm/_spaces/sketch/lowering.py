"""Lowers a scheduled function of blocks to loops over arrays, with few passes.

Between the passes, reductions are rewritten.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from chameleon_tvm._quick_tvm import tirx, tvm
from chameleon_tvm._spaces.loops.trees import structural_map
from chameleon_tvm._spaces.sketch.borders import MAX_PIECES, Border, Guards, guards_of
from chameleon_tvm._spaces.sketch.expressions import variables_of
from chameleon_tvm._spaces.sketch.nest import MAX_UNROLLED
from chameleon_tvm._spaces.sketch.tiles import (
    Loops,
    Reduction,
    counts_from_zero,
    is_vectorized,
    name_of,
    reduction_of,
    replace_body,
)


def rewrite_reductions(statement: Any, ranges_around: Mapping[str, int] | None = None) -> Any:
    """Rewrite every tiled reduction in a lowered statement, so that its sums stay in registers."""
    ranges = dict(ranges_around or {})
    if isinstance(statement, tirx.For):
        if not counts_from_zero(statement) or name_of(statement) in ranges:
            return statement
        body = rewrite_reductions(
            statement.body, {**ranges, name_of(statement): int(statement.extent)}
        )
        return statement if body is statement.body else replace_body(statement, body)
    if isinstance(statement, tirx.AttrStmt):
        body = rewrite_reductions(statement.body, ranges)
        return tirx.AttrStmt(statement.node, statement.attr_key, statement.value, body)
    if isinstance(statement, tirx.SeqStmt):
        return _sequence(list(statement.seq), ranges)
    return statement


def _sequence(statements: list[Any], ranges: dict[str, int]) -> Any:
    result: list[Any] = []
    for statement in statements:
        reduction = reduction_of(result[-1], statement) if result else None
        new = _register_tile(reduction, ranges) if reduction is not None else None
        if new is not None:
            result[-1:] = new
        else:
            result.append(rewrite_reductions(statement, ranges))
    return tirx.SeqStmt(result)


def _register_tile(reduction: Reduction, ranges: dict[str, int]) -> list[Any] | None:
    """The statements of a rewritten reduction; None if the reduction does not have this form."""
    loops, tile = reduction.loops, reduction.tile
    names = [name_of(loop) for loop in loops]
    reduction_names = [name for name in names if name not in reduction.spatial]
    copies = math.prod(int(loop.extent) for loop in tile if not is_vectorized(loop))
    if not reduction_names or not tile or copies > MAX_UNROLLED or len(set(names)) < len(names):
        return None
    if set(names) & ranges.keys():
        return None
    guards, product = _guards(reduction, ranges, reduction_names)
    outermost = all(
        name_of(loop) not in reduction.spatial for loop in loops[: len(loops) - len(tile)]
    )
    if not outermost:
        update = _UpdateWriter(
            reduction=reduction, guards=guards, sums=None, product=product
        ).update()
        return None if update is None else [_initial(reduction), update]
    sums = tirx.decl_buffer(
        [int(loop.extent) for loop in tile],
        str(reduction.store.buffer.dtype),
        "sums",
        scope="local",
    )
    index = [loop.loop_var for loop in tile]
    update = _UpdateWriter(reduction=reduction, guards=guards, sums=sums, product=product).update()
    clear = _nest(tile, tirx.BufferStore(sums, reduction.initial, index))
    store = reduction.store
    write = _nest(
        tile, tirx.BufferStore(store.buffer, tirx.BufferLoad(sums, index), list(store.indices))
    )
    return [tirx.SeqStmt([tirx.AllocBuffer(sums), clear, update, write])]


def _initial(reduction: Reduction) -> Any:
    spatial = [loop for loop in reduction.loops if name_of(loop) in reduction.spatial]
    store = reduction.store
    statement = tirx.BufferStore(store.buffer, reduction.initial, list(store.indices))
    for loop in reversed(spatial):
        statement = replace_body(loop, statement)
    return statement


def _guards(
    reduction: Reduction, ranges: dict[str, int], reduction_names: Sequence[str]
) -> tuple[Guards, Any]:
    """The conditions of the product that is added, and the product without them."""
    no_guards = Guards(hoisted=(), borders=(), remaining=())
    branch = _conditional(reduction.term)
    if branch is None:
        return no_guards, reduction.term
    conjuncts, value, rebuild = branch
    ranges_around, available = dict(ranges), {}
    for loop in reduction.loops:
        available[name_of(loop)] = frozenset(ranges_around)
        ranges_around[name_of(loop)] = int(loop.extent)
    guards = guards_of(
        conjuncts,
        ranges_around,
        reductions=reduction_names,
        tile=[name_of(loop) for loop in reduction.tile],
        available={name: available[name] for name in reduction_names},
    )
    pieces = math.prod(
        sum(len(version.runs) for version in border.versions) for border in guards.borders
    )
    if pieces > MAX_PIECES or any(_in_vector(b.tile, reduction) for b in guards.borders):
        members = tuple(c for border in guards.borders for c in border.conjuncts)
        guards = attrs.evolve(guards, borders=(), remaining=(*guards.remaining, *members))
    return guards, rebuild(value, guards.remaining)


def _conditional(term: Any) -> Any:
    """Conditions, value and a function that rebuilds the product; None without a condition."""
    operands = (term.a, term.b) if isinstance(term, tirx.Mul) else (term,)
    for position, operand in enumerate(operands):
        if not isinstance(operand, tvm.ir.Call) or str(operand.op.name) != "prim.if_then_else":
            continue
        condition, value, other = operand.args
        if not isinstance(other, tirx.FloatImm | tirx.IntImm) or float(other.value) != 0.0:
            continue

        def rebuild(value: Any, rest: Sequence[Any], at: int = position, zero: Any = other) -> Any:
            term = tirx.if_then_else(tirx.all(*rest), value, zero) if rest else value
            new = [term if p == at else old for p, old in enumerate(operands)]
            return new[0] if len(new) == 1 else tirx.Mul(*new)

        return _conjuncts(condition), value, rebuild
    return None


def _conjuncts(condition: Any) -> list[Any]:
    if isinstance(condition, tirx.And):
        return _conjuncts(condition.a) + _conjuncts(condition.b)
    return [condition]


@attrs.frozen(kw_only=True, eq=False)
class _UpdateWriter:
    """Writes the loops and guards of an addition, in place if ``sums`` is None."""

    reduction: Reduction
    guards: Guards
    sums: Any
    product: Any

    def update(self) -> Any:
        """The complete loop nest of the addition."""
        return self._guarded(0, {}, None)

    def _guarded(self, depth: int, narrowed: dict[str, tuple[int, int]], last: str | None) -> Any:
        """The loops from ``depth`` inwards, inside the guards whose last variable is ``last``."""
        inner = {name_of(loop) for loop in self.reduction.loops[depth:]}
        conditions = [
            c
            for c in self.guards.hoisted
            if not variables_of(c) & inner and (last is None or last in variables_of(c))
        ]
        body = self._loop(depth, narrowed)
        return tirx.IfThenElse(tirx.all(*conditions), body, None) if conditions else body

    def _loop(self, depth: int, narrowed: dict[str, tuple[int, int]]) -> Any:
        if depth == len(self.reduction.loops):
            return self._addition()
        loop = self.reduction.loops[depth]
        name = name_of(loop)
        borders = [b for b in self.guards.borders if b.reduction == name]
        if borders:
            return self._split(depth, narrowed, borders[0])
        start, extent = narrowed.get(name, (0, int(loop.extent)))
        body = self._guarded(depth + 1, narrowed, name)
        unroll = depth >= self.reduction.first_tile_loop
        return replace_body(loop, body, start=start, extent=extent, unroll=unroll)

    def _split(self, depth: int, narrowed: dict[str, tuple[int, int]], border: Border) -> Any:
        loop = self.reduction.loops[depth]
        result: Any = None
        for version in reversed(border.versions):
            pieces = [
                replace_body(
                    loop,
                    self._guarded(
                        depth + 1, {**narrowed, border.tile: (first, count)}, name_of(loop)
                    ),
                    start=start,
                    extent=extent,
                )
                for start, extent, first, count in version.runs
            ]
            statement = pieces[0] if len(pieces) == 1 else tirx.SeqStmt(pieces)
            if version.condition is None:
                result = statement
            else:
                result = tirx.IfThenElse(version.condition, statement, result)
        return result

    def _addition(self) -> Any:
        store = self.reduction.store
        if self.sums is None:
            total = tirx.BufferLoad(store.buffer, list(store.indices))
            return tirx.BufferStore(store.buffer, total + self.product, list(store.indices))
        index = [loop.loop_var for loop in self.reduction.tile]
        total = tirx.BufferLoad(self.sums, index)
        return tirx.BufferStore(self.sums, total + self.product, index)


def _nest(loops: Loops, statement: Any) -> Any:
    for loop in reversed(loops):
        statement = replace_body(loop, statement, unroll=True)
    return statement


def _in_vector(name: str, reduction: Reduction) -> bool:
    return any(is_vectorized(loop) and name_of(loop) == name for loop in reduction.loops)


PLAIN_DTYPES = frozenset({"float32", "float64", "int32", "int64"})
"""Dtypes with which LLVM computes directly. Other dtypes need additional passes."""

_BLOCKS = (
    tvm.s_tir.transform.LowerInitBlock(),
    tvm.s_tir.transform.PlanAndUpdateBufferAllocationLocation(),
    tvm.s_tir.transform.ConvertBlocksToOpaque(),
    tvm.s_tir.transform.CompactBufferAllocation(),
    tvm.s_tir.transform.StmtSimplify(),
    tvm.s_tir.transform.LowerOpaqueBlock(),
    tirx.transform.RemoveNoOp(),
)
"""These passes turn blocks into loops; arrays keep their rank."""

_LOOPS = (
    tirx.transform.ConvertSSA(),
    tirx.transform.FlattenBuffer(),
    tirx.transform.VectorizeLoop(),
    tirx.transform.StorageRewrite(),
    tirx.transform.UnrollLoop(),
    tirx.transform.StmtSimplify(),
)


def lower_sketch(function: tirx.PrimFunc) -> tirx.PrimFunc:
    """A scheduled function as loops over arrays, with its reductions rewritten."""
    return lower_blocks(function.with_attr("global_symbol", "main"), rewrite_reductions, _LOOPS)


def lower_blocks(
    function: tirx.PrimFunc, change: Callable[[Any], Any], loops: Sequence[Callable[[Any], Any]]
) -> tirx.PrimFunc:
    """Lower a scheduled function to loops; the passes ``loops`` run after ``change``."""
    module = tvm.IRModule({"main": function})
    for step in _BLOCKS:
        module = step(module)
    main = module["main"]
    body = structural_map(change(main.body), [((tirx.FloorMod, tirx.FloorDiv), _rewrite_division)])
    module = tvm.IRModule({"main": main.with_body(body)})
    for step in loops:
        module = step(module)
    return module["main"]


def _rewrite_division(division: Any) -> Any:
    """Rewrite a quotient or remainder of ``c - y`` so that its dividend is a sum.

    ``FlattenBuffer`` of TVM 0.27 loses the constant: ``(2 - i) % 8`` becomes ``-i % 8``.
    """
    dividend, divisor = division.a, division.b
    if not isinstance(divisor, tirx.IntImm) or not isinstance(dividend, tirx.Sub):
        return division
    size, remainder = int(divisor), isinstance(division, tirx.FloorMod)
    constant, falling = dividend.a, dividend.b
    if size < 1 or isinstance(falling, tirx.IntImm):
        return division
    if isinstance(constant, tirx.IntImm):
        blocks = -(-int(constant) // size)
        rising = falling + (blocks * size - int(constant) + size - 1)
        if remainder:
            return size - 1 - tirx.FloorMod(rising, divisor)
        return blocks - tirx.FloorDiv(rising, divisor)
    return tirx.FloorMod(constant + (size - 1) * falling, divisor) if remainder else division
