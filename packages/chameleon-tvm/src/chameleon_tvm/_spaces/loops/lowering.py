"""Lowers a scheduled function of blocks to vectorized loops over arrays."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from chameleon_tvm._building.lowering import separate_buffers
from chameleon_tvm._emit import sequence
from chameleon_tvm._operators.elementary import FUNCTIONS
from chameleon_tvm._quick_tvm import tirx, tvm
from chameleon_tvm._spaces.loops import vectors
from chameleon_tvm._spaces.loops.columns import vectorize_columns
from chameleon_tvm._spaces.loops.partial_sums import (
    keeping_nan,
    partial_vectors,
    vectorize_reduction,
)
from chameleon_tvm._spaces.loops.transposes import with_transposes
from chameleon_tvm._spaces.loops.trees import find_nodes, structural_map, substitute, uses
from chameleon_tvm._spaces.sketch.lowering import lower_blocks
from chameleon_tvm._spaces.sketch.tiles import counts_from_zero
from chameleon_tvm._types import UINT8


def vectorize(statement: Any, lanes: int) -> Any:
    """Vectorize the innermost serial loops that access neighbouring elements of memory."""
    local_buffers = [allocation.buffer for allocation in find_nodes(statement, tirx.AllocBuffer)]

    def mapped(loop: Any) -> Any:
        if not _is_plain_loop(loop):
            return loop
        guard = vectors.GuardedBody.of(loop)
        if guard is not None:
            return guard.split(
                int(loop.extent),
                lambda count: mapped(vectors.counted_loop(loop.loop_var, count, guard.body)),
            )
        stores = _stores(loop.body)
        if not stores:
            return loop
        period = _period(loop)
        if period is not None:
            block, inner = _split_by_period(loop, period)
            return vectors.counted_loop(block, int(loop.extent) // period, mapped(inner))
        if len(stores) > 1:
            return _vector_loop(loop, stores, lanes, local_buffers) or loop
        pieces = _split_at_conditions(loop)
        return sequence(
            [_vector_loop(piece, [piece.body], lanes, local_buffers) or piece for piece in pieces]
        )

    def merge_columns(statements: Any) -> Any:
        return sequence(list(vectorize_columns(statements.seq, lanes)))

    statement = structural_map(statement, [(tirx.SeqStmt, merge_columns)])
    statement = with_transposes(statement, lanes)
    nested = partial(_vector_sum_of_rows, lanes=lanes)
    statement = structural_map(statement, [(tirx.For, nested)])
    return structural_map(statement, [(tirx.For, mapped)])


def _vector_sum_of_rows(loop: Any, lanes: int) -> Any:
    """A sum over two loops in vectors, with one set of partial sums for both."""
    inner = loop.body
    if not (_is_plain_loop(loop) and isinstance(inner, tirx.For) and _is_plain_loop(inner)):
        return loop
    stores = _stores(inner.body)
    indices = [index for store in stores for index in store.indices]
    if not stores or any(uses(index, loop.loop_var) for index in indices):
        return loop
    return _vector_reduction([loop, inner], stores, lanes) or loop


def _is_plain_loop(loop: Any) -> bool:
    return int(loop.kind) == int(tirx.ForKind.SERIAL) and counts_from_zero(loop)


def _stores(body: Any) -> list[Any]:
    """The stores of a loop's body; an empty list if a store reads another store's array."""
    if isinstance(body, tirx.BufferStore):
        return [body]
    statements = list(body.seq) if isinstance(body, tirx.SeqStmt) else []
    stores = [each for each in statements if isinstance(each, tirx.BufferStore)]
    bound = [each for each in statements if isinstance(each, tirx.Bind)]
    if len(stores) + len(bound) < len(statements):
        return []
    for bind in reversed(bound):
        stores = [substitute(store, bind.var, bind.value) for store in stores]
    buffers = [store.buffer for store in stores]
    independent = not any(
        vectors.reads_buffer(store.value, buffer)
        for store in stores
        for buffer in buffers
        if not buffer.same_as(store.buffer)
    )
    return stores if independent else []


def _period(loop: Any) -> int | None:
    """The number of iterations after which remainders of the loop's variable repeat; None for none.

    LLVM must not vectorize such a loop (https://github.com/llvm/llvm-project/issues/156849).
    """
    extent, variable = int(loop.extent), loop.loop_var
    analyzer = vectors.analyzer_of((variable, extent))
    accesses = [
        *((store.buffer, store.indices) for store in find_nodes(loop.body, tirx.BufferStore)),
        *((load.source, load.indices) for load in find_nodes(loop.body, tvm.ir.TensorLoad)),
    ]
    # The simplified offsets no longer divide a loop's variable by the extents of an array.
    computed = [analyzer.simplify(vectors.offset_of(*access)) for access in accesses if access[1]]
    comparisons = find_nodes(loop.body, vectors.COMPARISONS)
    computed += [each for each in comparisons if not find_nodes(each, tvm.ir.TensorLoad)]
    periods = {
        int(remainder.b)
        for each in computed
        for remainder in find_nodes(each, tirx.FloorMod)
        if isinstance(remainder.b, tirx.IntImm) and uses(remainder.a, variable)
    }
    return min((p for p in periods if 1 < p < extent and extent % p == 0), default=None)


def _split_by_period(loop: Any, period: int) -> tuple[Any, Any]:
    """The variable of a loop over periods, and the loop over the iterations of one period."""
    dtype, name = str(loop.loop_var.ty), str(loop.loop_var.name)
    block, inside = tirx.Var(f"{name}_block", dtype), tirx.Var(name, dtype)
    analyzer = vectors.analyzer_of((block, int(loop.extent) // period), (inside, period))
    body = substitute(loop.body, loop.loop_var, block * period + inside)
    body = structural_map(body, [((tirx.FloorMod, tirx.FloorDiv), analyzer.simplify)])
    return block, vectors.counted_loop(inside, period, body)


def _split_at_conditions(loop: Any) -> list[Any]:
    """A loop, cut where a condition on its variable changes, as between concatenated arrays."""
    variable, store = loop.loop_var, loop.body
    extent = int(loop.extent)
    comparisons = find_nodes(store.value, vectors.COMPARISONS)
    known = [each for each in comparisons if vectors.step_of(each.a, variable) in {0, 1}]
    cuts = {
        split_evenly for comparison in known for split_evenly in _boundaries(comparison, variable)
    }
    inside = sorted(split_evenly for split_evenly in cuts if 0 < split_evenly < extent)
    if not inside or len(inside) > vectors.MAX_SPLITS:
        return [loop]
    pieces = []
    for start, end in itertools.pairwise([0, *inside, extent]):
        counter = tirx.Var(str(variable.name), str(variable.ty))
        body = substitute(store, variable, counter + start)
        simplify = vectors.analyzer_of((counter, end - start)).simplify
        value = structural_map(body.value, [(vectors.COMPARISONS, simplify)])
        value = structural_map(
            value, [(tvm.ir.Call, vectors.fold_condition), (tirx.Select, vectors.fold_condition)]
        )
        body = tirx.BufferStore(body.buffer, value, list(body.indices))
        pieces.append(vectors.counted_loop(counter, end - start, body))
    return pieces


def _boundaries(comparison: Any, variable: Any) -> Iterator[int]:
    """Values of a variable at which a comparison such as ``variable + a < b`` may change."""
    zero = tirx.IntImm(str(variable.ty), 0)
    gap = substitute(comparison.b, variable, zero) - substitute(comparison.a, variable, zero)
    step = (vectors.step_of(comparison.a, variable) or 0) - (
        vectors.step_of(comparison.b, variable) or 0
    )
    bound = tvm.sym.Analyzer().simplify(gap)
    if step in {1, -1} and isinstance(bound, tirx.IntImm):
        yield from (step * int(bound), step * int(bound) + 1)


def _vector_loop(
    loop: Any, stores: Sequence[Any], lanes: int, local_buffers: Sequence[Any]
) -> Any | None:
    """An innermost loop in vectors, or None if it cannot be vectorized."""
    width = vectors.vector_width(int(loop.extent), lanes)
    if not width or not all(
        vectors.is_vectorizable(store.value, loop.loop_var) for store in stores
    ):
        return None
    strides = {vectors.stride_of(store.buffer, store.indices, loop.loop_var) for store in stores}
    if strides == {1}:
        return sequence(
            [
                part
                for store in stores
                for part in _vectorize_elementwise(loop, store, width, local_buffers)
            ]
        )
    return _vector_reduction([loop], stores, lanes)


def _vector_reduction(loops: Sequence[Any], stores: Sequence[Any], lanes: int) -> Any | None:
    """Loops that reduce numbers to one element of each store in vectors, or None."""
    variable = loops[-1].loop_var
    width = vectors.vector_width(int(loops[-1].extent), lanes)
    strides = {vectors.stride_of(store.buffer, store.indices, variable) for store in stores}
    if not width or strides != {0}:
        return None
    if not all(vectors.is_vectorizable(store.value, variable) for store in stores):
        return None
    return vectorize_reduction(loops, stores, width)


def _vectorize_elementwise(
    loop: Any, store: Any, lanes: int, allocated: Sequence[Any]
) -> list[Any]:
    """An element-wise loop in vectors, the last of which may overlap the vector before it.

    If elements must be computed only once, narrower vectors and single elements follow instead.
    """
    extent = int(loop.extent)
    local_buffers = vectors.reads_buffer(store.value, store.buffer)
    once = local_buffers or _may_overwrite(store, loop.loop_var, allocated)
    widths = [lanes * partial_vectors(extent, lanes)] if local_buffers else []
    widths.append(lanes)
    if once:
        widths += [width for width in (lanes // 2, lanes // 4) if width >= vectors.MIN_LANES]
    loops, start = [], 0
    for width in dict.fromkeys(widths):
        count = (extent - start) // width
        if count:
            loops.append(_vectors(loop, store, start, width, count))
            start += count * width
    if start < extent and once:
        rest = tirx.Var(f"{loop.loop_var.name}_rest", str(loop.loop_var.ty))
        body = substitute(store, loop.loop_var, rest + start)
        loops.append(vectors.counted_loop(rest, extent - start, body))
    elif start < extent:
        loops.append(_vectors(loop, store, extent - lanes, lanes, 1))
    return loops


def _may_overwrite(store: Any, variable: Any, allocated: Sequence[Any]) -> bool:
    """Whether TVM may reuse the memory of an array that the store reads for the array it writes."""

    def is_allocated(buffer: Any) -> bool:
        return any(buffer.same_as(other) for other in allocated)

    loads = find_nodes(store.value, tvm.ir.TensorLoad)
    return is_allocated(store.buffer) and any(
        is_allocated(load.source) and any(uses(index, variable) for index in load.indices)
        for load in loads
    )


def _vectors(loop: Any, store: Any, start: int, width: int, count: int) -> Any:
    """The loop over ``count`` vectors of ``width`` iterations, from iteration ``start``."""
    step = tirx.Var(f"{loop.loop_var.name}step", str(loop.loop_var.ty))

    def vector(lane: Any) -> Any:
        return substitute(store, loop.loop_var, step * width + lane + start)

    return vectors.counted_loop(step, count, vectors.lane_loop(str(step.ty), width, vector))


def _replace_strided_loads(function: Any) -> Any:
    """Replace loads of every second to fourth element by loads of whole vectors and shuffles."""

    def mapped(load: Any) -> Any:
        place = load.indices[0] if len(load.indices) == 1 else None
        if not isinstance(place, tirx.Ramp) or not isinstance(place.stride, tirx.IntImm):
            return load
        step, lanes = int(place.stride), int(place.lanes)
        if not 1 < step <= vectors.MAX_STRIDE:
            return load
        # Nothing is read behind the last element: there, memory may end.
        starts = [min(n * lanes, step * (lanes - 1) + 1 - lanes) for n in range(step)]
        parts = [
            tirx.BufferLoad(load.source, [tirx.Ramp(place.base + start, 1, lanes)])
            for start in starts
        ]
        elements = range(0, step * lanes, step)
        numbers = [min(at // lanes, step - 1) for at in elements]
        return tirx.Shuffle(
            parts, [n * lanes + at - starts[n] for n, at in zip(numbers, elements, strict=True)]
        )

    return function.with_body(structural_map(function.body, [(tvm.ir.TensorLoad, mapped)]))


LANES = "chameleon.vector_lanes"
"""Attribute of functions for ``loops_of``: the number of float32 elements of a vector register."""

PASSES = (
    tirx.transform.ConvertSSA(),
    tirx.transform.FlattenBuffer(),
    tirx.transform.BF16ComputeLegalize(),
    tirx.transform.NarrowDataType(32),
    tirx.transform.VectorizeLoop(),
    tirx.transform.prim_func_pass(
        lambda function, *_: _replace_strided_loads(function), opt_level=0
    ),
    separate_buffers(),
    tirx.transform.UnrollLoop(),
    tirx.transform.StmtSimplify(),
)


def loops_of(function: Any) -> Any:
    """Lower a scheduled function to loops over arrays, which compile fast.

    Args:
        function: The scheduled function. Its attribute ``LANES`` has the number of elements of a
            vector. Without this attribute, the function consists of a block with such loops, in
            which only calls of functions such as ``exp`` are replaced.
    """
    if LANES not in (function.attrs or {}):
        return function.with_body(inline_elementary_functions(function.body.block.body))
    has_symbol = "global_symbol" in function.attrs
    main = function if has_symbol else function.with_attr("global_symbol", "main")
    lanes = int(function.attrs[LANES])

    def change(body: Any) -> Any:
        return keeping_nan(vectorize(replace_bool_arrays(inline_elementary_functions(body)), lanes))

    result = lower_blocks(main, change, PASSES)
    return result if has_symbol else result.without_attr("global_symbol")


def replace_bool_arrays(statement: Any) -> Any:
    """Replace bool by bytes in arrays that a statement allocates.

    ``StorageRewrite`` of TVM 0.27 turns arrays of bool vectors into int8 arrays, but not the dtype
    of values that are read from them.
    """
    buffers = [allocation.buffer for allocation in find_nodes(statement, tirx.AllocBuffer)]
    pairs = [
        (old, tirx.decl_buffer(old.shape, UINT8, str(old.name), scope=old.scope()))
        for old in buffers
        if str(old.dtype) == "bool"
    ]

    def bytes_of(buffer: Any) -> Any | None:
        return next((new for old, new in pairs if old.same_as(buffer)), None)

    def allocated(allocation: Any) -> Any:
        buffer = bytes_of(allocation.buffer)
        return allocation if buffer is None else tirx.AllocBuffer(buffer)

    def stored(store: Any) -> Any:
        buffer = bytes_of(store.buffer)
        if buffer is None:
            return store
        return tirx.BufferStore(buffer, tirx.Cast(UINT8, store.value), list(store.indices))

    def loaded(load: Any) -> Any:
        buffer = bytes_of(load.source)
        return load if buffer is None else tirx.Cast("bool", buffer[tuple(load.indices)])

    if not pairs:
        return statement
    changes = [(tvm.ir.TensorLoad, loaded), (tirx.BufferStore, stored)]
    return structural_map(statement, [*changes, (tirx.AllocBuffer, allocated)])


def inline_elementary_functions(statement: Any) -> Any:
    """Replace calls of functions such as ``exp`` by float32 arithmetic, which can be vectorized."""

    def mapped(call: Any) -> Any:
        name = str(getattr(call.op, "name", "")).removeprefix("tirx.")
        if name not in FUNCTIONS or str(call.ty).partition("x")[0] != "float32":
            return call
        return FUNCTIONS[name](call.args[0])

    return structural_map(statement, [(tvm.ir.Call, mapped)])
