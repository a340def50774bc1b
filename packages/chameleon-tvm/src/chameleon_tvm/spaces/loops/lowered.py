"""Lowers a scheduled function of blocks to loops over arrays, in vectors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from chameleon_tvm.operators.elementary import FUNCTIONS
from chameleon_tvm.quick_tvm import tirx, tvm
from chameleon_tvm.spaces.loops.trees import (
    is_element,
    structural_map,
    substituted,
    uses,
    walk,
)
from chameleon_tvm.spaces.sketch.lowered import lowered
from chameleon_tvm.spaces.sketch.tiles import counts_from_zero

PARTIAL = 4
"""Vectors of partial sums: additions of one vector wait for each other, those of four do not."""

LEAST_LANES = 4
"""Narrower vectors are not worth their code."""

MOST_CUTS = 8
"""A loop with more conditions on its variable is left as it is."""

_COMPARISONS = (tirx.LT, tirx.LE, tirx.GT, tirx.GE)
_IDENTITIES = {tirx.Add: 0.0, tirx.Max: -math.inf, tirx.Min: math.inf, tirx.Mul: 1.0}


def with_vectors(statement: Any, lanes: int) -> Any:
    """The statement with its innermost serial loops in vectors if neighbours in memory allow.

    Args:
        statement: loops and stores without blocks, arrays of any rank.
        lanes: elements of a vector.
    """

    def mapped(loop: Any) -> Any:
        serial = int(loop.kind) == int(tirx.ForKind.SERIAL)
        if not serial or not isinstance(loop.body, tirx.BufferStore) or not counts_from_zero(loop):
            return loop
        loops = [_vector_loop(piece, lanes) or piece for piece in _pieces(loop)]
        return loops[0] if len(loops) == 1 else tirx.SeqStmt(loops)

    return structural_map(statement, [(tirx.For, mapped)])


def _pieces(loop: Any) -> list[Any]:
    """A loop cut where a condition on its variable changes, as where concatenated arrays meet."""
    variable, store = loop.loop_var, loop.body
    extent = int(loop.extent)
    cuts: set[int] = set()

    def visit(node: Any) -> None:
        if _step(node.a, variable) in {0, 1}:
            cuts.update(_boundaries(node, variable))

    walk(store.value, _COMPARISONS, visit)
    inside = sorted(cut for cut in cuts if 0 < cut < extent)
    if not inside or len(inside) > MOST_CUTS:
        return [loop]
    pieces = []
    for start, end in itertools.pairwise([0, *inside, extent]):
        counter = tirx.Var(str(variable.name), str(variable.ty))
        analyzer = tvm.sym.Analyzer()
        dtype = str(variable.ty)
        analyzer.bind(
            counter,
            tvm.ir.Range.from_min_extent(tirx.IntImm(dtype, 0), tirx.IntImm(dtype, end - start)),
        )
        body = substituted(store, variable, counter + start)
        value = structural_map(body.value, [(_COMPARISONS, analyzer.simplify)])
        value = structural_map(value, [(tvm.ir.Call, _decided), (tirx.Select, _decided)])
        body = tirx.BufferStore(body.buffer, value, list(body.indices))
        pieces.append(_loop(counter, end - start, body))
    return pieces


def _boundaries(comparison: Any, variable: Any) -> Iterator[int]:
    """Values of a variable at which ``variable + a < b`` and the like may change."""
    zero = tirx.IntImm(str(variable.ty), 0)
    gap = substituted(comparison.b, variable, zero) - substituted(comparison.a, variable, zero)
    step = (_step(comparison.a, variable) or 0) - (_step(comparison.b, variable) or 0)
    bound = tvm.sym.Analyzer().simplify(gap)
    if step in {1, -1} and isinstance(bound, tirx.IntImm):
        yield from (step * int(bound), step * int(bound) + 1)


def _decided(node: Any) -> Any:
    """The branch that is taken if a condition turned out to be constant."""
    if isinstance(node, tirx.Select):
        condition, yes, no = node.condition, node.true_value, node.false_value
    elif "if_then_else" in str(node.op):
        condition, yes, no = node.args
    else:
        return node
    known = tvm.sym.Analyzer().simplify(condition)
    if not isinstance(known, tirx.IntImm):
        return node
    return yes if int(known) else no


def _vector_loop(loop: Any, lanes: int) -> Any | None:
    """An innermost loop in vectors, or None if it has to stay as it is."""
    extent, store = int(loop.extent), loop.body
    if extent < min(lanes, LEAST_LANES) or not _computes(store.value, loop.loop_var):
        return None
    step = _stride(store.buffer, store.indices, loop.loop_var)
    if step == 1:
        return _mapped(loop, store, extent, lanes)
    return _reduced(loop, store, extent, lanes) if step == 0 else None


def _mapped(loop: Any, store: Any, extent: int, lanes: int) -> Any:
    """Element-wise: vectors, half ones, then what is left.

    Neighbouring sums are added up in one step as far as registers are expected to hold them.
    """
    widths = [lanes, lanes // 2] if lanes > LEAST_LANES else [lanes]
    if _reads_buffer(store.value, store.buffer) and extent >= lanes:
        widths.insert(0, lanes * min(PARTIAL, extent // lanes))
    loops, done = [], 0
    for width in widths:
        count = (extent - done) // width
        if count:
            loops.append(_vectors(loop, store, done, width, count))
            done += count * width
    loops.extend(_rest(loop, done))
    return loops[0] if len(loops) == 1 else tirx.SeqStmt(loops)


def _vectors(loop: Any, store: Any, start: int, width: int, count: int) -> Any:
    """Some iterations of a loop in vectors of one width."""
    counter = str(loop.loop_var.ty)
    step, lane = tirx.Var(f"{loop.loop_var.name}_step", counter), tirx.Var("lane", counter)
    vector = substituted(store, loop.loop_var, step * width + lane + start)
    return _loop(step, count, _loop(lane, width, vector, tirx.ForKind.VECTORIZED))


def _reduced(loop: Any, store: Any, extent: int, lanes: int) -> Any | None:
    """A sum, product or extremum along the loop: vectors of partial ones, then one of them all."""
    value = store.value
    kind = next((kind for kind in _IDENTITIES if isinstance(value, kind)), None)
    if kind is None or not str(store.buffer.dtype).startswith("float"):
        return None
    sides = [value.a, value.b]
    own = [is_element(side, store) for side in sides]
    if sum(own) != 1:
        return None
    added = sides[own.index(False)]
    if extent < lanes or _reads_buffer(added, store.buffer):
        return None
    width = lanes * min(PARTIAL, extent // lanes)
    dtype = str(store.buffer.dtype)
    partial = tirx.decl_buffer([width], dtype, f"{loop.loop_var.name}_partial", scope="local")
    counter = str(loop.loop_var.ty)

    def lane_loop(body: Any) -> Any:
        lane = tirx.Var("lane", counter)
        return _loop(lane, width, body(lane), tirx.ForKind.VECTORIZED)

    identity = tirx.FloatImm(dtype, _IDENTITIES[kind])
    clear = lane_loop(lambda lane: tirx.BufferStore(partial, identity, [lane]))

    def accumulate(index: Any, lane: Any) -> Any:
        term = substituted(added, loop.loop_var, index)
        return tirx.BufferStore(partial, kind(tirx.BufferLoad(partial, [lane]), term), [lane])

    step = tirx.Var(f"{loop.loop_var.name}_step", counter)
    whole = extent // width
    main = _loop(step, whole, lane_loop(lambda lane: accumulate(step * width + lane, lane)))
    statements = [tirx.AllocBuffer(partial), clear, main, *_rest(loop, whole * width)]
    size = width
    while size % 2 == 0:
        # Halves are added to halves: few steps in vectors instead of one addition after another.
        size //= 2
        lane = tirx.Var("lane", counter)
        both = (tirx.BufferLoad(partial, [start]) for start in (lane, lane + size))
        shape = tirx.ForKind.VECTORIZED if size > 1 else tirx.ForKind.SERIAL
        statements.append(_loop(lane, size, tirx.BufferStore(partial, kind(*both), [lane]), shape))
    last = tirx.Var("last", counter)
    indices = list(store.indices)
    total = kind(tirx.BufferLoad(store.buffer, indices), tirx.BufferLoad(partial, [last]))
    statements.append(_loop(last, size, tirx.BufferStore(store.buffer, total, indices)))
    return tirx.SeqStmt(statements)


def _rest(loop: Any, done: int) -> list[Any]:
    """The iterations of a loop from some number on, one by one, if there are any."""
    left = int(loop.extent) - done
    if not left:
        return []
    rest = tirx.Var(f"{loop.loop_var.name}_rest", str(loop.loop_var.ty))
    return [_loop(rest, left, substituted(loop.body, loop.loop_var, rest + done))]


def _computes(value: Any, variable: Any) -> bool:
    """Whether a value can be computed in vectors along a variable.

    Every element it reads has to be the same for all lanes or the neighbour of the last one. No
    condition may depend on the lane.
    """

    def fits(node: Any) -> bool:
        if isinstance(node, tvm.ir.TensorLoad):
            return _stride(node.source, node.indices, variable) in {0, 1}
        if isinstance(node, tirx.Select):
            return not uses(node.condition, variable)
        if "if_then_else" in str(node.op):
            return not uses(node.args[0], variable)
        return "call_packed" not in str(node.op)

    nodes: list[Any] = []
    walk(value, (tvm.ir.TensorLoad, tirx.Select, tvm.ir.Call), nodes.append)
    return all(map(fits, nodes))


def _stride(buffer: Any, indices: Sequence[Any], variable: Any) -> int | None:
    """How many elements an access moves by when a variable grows by one; None if that varies.

    Only the last index may move: vectors lie along the last axis.
    """
    steps = [_step(index, variable) for index in indices]
    if any(step != 0 for step in steps[:-1]) or not steps:
        return None if steps else 0
    last = steps[-1]
    strides = list(buffer.ty.strides)
    if last is None or not last or not strides:
        return last
    return last * int(strides[-1]) if isinstance(strides[-1], tirx.IntImm) else None


def _step(index: Any, variable: Any) -> int | None:
    """How much an index grows when a variable grows by one; None if that is no constant."""
    if not uses(index, variable):
        return 0
    unit = tirx.IntImm(str(variable.ty), 1)
    grown = substituted(index, variable, variable + unit) - index
    change = tvm.sym.Analyzer().simplify(grown)
    return int(change) if isinstance(change, tirx.IntImm) else None


def _reads_buffer(value: Any, buffer: Any) -> bool:
    loads: list[Any] = []
    walk(value, tvm.ir.TensorLoad, loads.append)
    return any(load.source.same_as(buffer) for load in loads)


def _loop(variable: Any, extent: int, body: Any, kind: Any = tirx.ForKind.SERIAL) -> Any:
    dtype = str(variable.ty)
    return tirx.For(variable, tirx.IntImm(dtype, 0), tirx.IntImm(dtype, extent), kind, body)


LANES = "chameleon.vector_lanes"
"""Attribute of functions that ``loops_of`` is for: float32 elements of a vector register."""

PASSES = (
    tirx.transform.ConvertSSA(),
    tirx.transform.FlattenBuffer(),
    tirx.transform.NarrowDataType(32),
    tirx.transform.VectorizeLoop(),
    tirx.transform.StorageRewrite(),
    tirx.transform.UnrollLoop(),
    tirx.transform.StmtSimplify(),
)


def loops_of(function: Any) -> Any:
    """A scheduled function as loops over arrays, which the short way of ``lowering`` compiles.

    Args:
        function: with the attribute ``LANES``.
    """
    named = "global_symbol" in function.attrs
    marked = function if named else function.with_attr("global_symbol", "main")
    lanes = int(function.attrs[LANES])
    result = lowered(marked, lambda body: with_vectors(without_library_calls(body), lanes), PASSES)
    return result if named else result.without_attr("global_symbol")


def without_library_calls(statement: Any) -> Any:
    """A statement whose elementary functions of float32 are arithmetic, which fits vectors."""

    def mapped(call: Any) -> Any:
        name = str(getattr(call.op, "name", "")).removeprefix("tirx.")
        if name not in FUNCTIONS or str(call.ty) != "float32":
            return call
        return FUNCTIONS[name](call.args[0])

    return structural_map(statement, [(tvm.ir.Call, mapped)])
