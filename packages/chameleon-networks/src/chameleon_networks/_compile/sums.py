"""Adds up long sums of float32 in float64, so that their errors do not grow with their terms.

Torch adds up by blocks of blocks instead. Sums in float64 are at least as accurate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from chameleon_tvm.api import emit, find_nodes, reduces_contiguous, structural_map, tirx

from chameleon_networks._compile.default_schedules import is_scheduled
from chameleon_networks._compile.normalizations import DISTANCES
from chameleon_networks._graph.relax_utils import tvm

_MAX_TERMS = 16
"""Most terms that are added up in float32."""

_MAX_ROW_TERMS = 1024
"""Most distances in a row of memory that are added up in float32."""

_NARROW, _WIDE = "float32", "float64"


def widen_accumulators(module: Any) -> Any:
    """Let functions add up long sums of float32 in float64."""
    functions = {
        variable: _widened(function)
        if isinstance(function, tirx.PrimFunc) and not is_scheduled(function)
        else function
        for variable, function in module.functions_items()
    }
    return tvm.IRModule(functions, attrs=module.attrs)


def _widened(function: Any) -> Any:
    """A function whose long sums are in float64, and rounded where they are read."""
    sums = [*map(_long_sum, find_nodes(function.body, tvm.s_tir.SBlock))]
    wide = {
        total: tirx.decl_buffer(total.shape, _WIDE, f"{total.name}_wide")
        for total in sums
        if total is not None
    }
    if not wide:
        return function

    def loaded(load: Any) -> Any:
        total = wide.get(load.source)
        return load if total is None else total[tuple(load.indices)].astype(_NARROW)

    def stored(store: Any) -> Any:
        total = wide.get(store.buffer)
        return store if total is None else _wide_store(store, total)

    def accessed(region: Any) -> Any:
        total = wide.get(region.source)
        return region if total is None else tirx.BufferRegion(total, region.region)

    def declared(block: Any) -> Any:
        reads, writes = ([*map(accessed, regions)] for regions in (block.reads, block.writes))
        head = block.iter_vars, reads, writes, block.name_hint, block.body, block.init
        buffers = [wide.get(buffer, buffer) for buffer in block.alloc_buffers]
        return tvm.s_tir.SBlock(*head, buffers, block.match_buffers, block.annotations)

    def divided(quotient: Any) -> Any:
        total = _sum_read(quotient.a, wide.values())
        if total is None or not isinstance(quotient.b, tirx.FloatImm):
            return quotient
        # The mean of equal numbers is then this number.
        return (total / tirx.FloatImm(_WIDE, quotient.b.value)).astype(_NARROW)

    def cast(value: Any) -> Any:
        total = _sum_read(value.value, wide.values())
        return value if total is None or str(value.ty) != _WIDE else total  # no rounding between

    changes = [
        (tvm.ir.TensorLoad, loaded),
        (tirx.Cast, cast),
        (tirx.Div, divided),
        (tirx.BufferStore, stored),
        (tvm.s_tir.SBlock, declared),
    ]
    root = structural_map(function.body, changes).block
    outputs = {total: wide[total] for total in function.params if total in wide}
    body = emit.sequence([root.body, *(_rounded(*pair) for pair in outputs.items())])
    buffers = [*root.alloc_buffers, *outputs.values()]
    head = root.iter_vars, root.reads, root.writes, root.name_hint, body, root.init
    block = tvm.s_tir.SBlock(*head, buffers, root.match_buffers, root.annotations)
    return function.with_body(tvm.s_tir.SBlockRealize([], tirx.const(True), block))


def _wide_store(store: Any, total: Any) -> Any:
    """A statement that sets an element of a sum, or adds a term to it, in float64."""
    value, indices = store.value, [*store.indices]
    if not isinstance(value, tirx.Add):
        return tirx.BufferStore(total, value.astype(_WIDE), indices)
    sides = (value.a, value.b)
    own = [_sum_read(side, [total]) for side in sides]
    a, b = (
        side.astype(_WIDE) if read is None else read for side, read in zip(sides, own, strict=True)
    )
    return tirx.BufferStore(total, a + b, indices)


def _sum_read(value: Any, sums: Iterable[Any]) -> Any | None:
    """The element of a sum that an expression rounds, or None."""
    load = value.value if isinstance(value, tirx.Cast) else None
    is_sum = isinstance(load, tvm.ir.TensorLoad) and any(map(load.source.same_as, sums))
    return load if is_sum else None


def _rounded(output: Any, total: Any) -> Any:
    """The loops that round sums."""
    dtype = str(output.shape[0].ty) if len(output.shape) else "int64"
    loops = [tirx.Var(f"i{axis}", dtype) for axis in range(len(output.shape))]
    iterators = [
        tirx.IterVar((tirx.IntImm(dtype, 0), extent), f"v{axis}", tirx.IterVar.DataPar)
        for axis, extent in enumerate(output.shape)
    ]
    places = [iterator.var for iterator in iterators]
    region = [tvm.ir.Range.from_min_extent(place, tirx.IntImm(dtype, 1)) for place in places]
    body = tirx.BufferStore(output, total[tuple(places)].astype(_NARROW), places)
    reads, writes = (tirx.BufferRegion(buffer, region) for buffer in (total, output))
    block = tvm.s_tir.SBlock(iterators, [reads], [writes], f"{output.name}_rounded", body)
    nest = tvm.s_tir.SBlockRealize(loops, tirx.const(True), block)
    for variable, extent in reversed([*zip(loops, output.shape, strict=True)]):
        zero = tirx.IntImm(dtype, 0)
        nest = tirx.For(variable, zero, extent, tirx.ForKind.SERIAL, nest)
    return nest


def _long_sum(block: Any) -> Any | None:
    """The buffer in which a block adds up many numbers of float32, or None."""
    store = block.body
    if block.init is None or not isinstance(store, tirx.BufferStore):
        return None
    if str(store.buffer.dtype) != _NARROW or not isinstance(store.value, tirx.Add):
        return None
    axes = enumerate(block.iter_vars)
    reduced = [number for number, axis in axes if axis.iter_type == tirx.IterVar.CommReduce]
    extents = [block.iter_vars[number].dom.extent for number in reduced]
    known = (int(e) if isinstance(e, tirx.IntImm) else math.inf for e in extents)
    terms = math.prod(known)
    if terms <= _MAX_TERMS or any(map(_is_product_of_two, (store.value.a, store.value.b))):
        return None
    # A row is added up in vectors of partial sums, each of which has few terms then.
    is_row = len(reduced) == 1 and reduces_contiguous(block, reduced)
    is_short = DISTANCES in block.annotations and is_row and terms <= _MAX_ROW_TERMS
    return None if is_short else store.buffer


def _is_product_of_two(term: Any) -> bool:
    """Whether a term is a product of two tensors' numbers, as in matrix products."""
    factors = (term.a, term.b) if isinstance(term, tirx.Mul) else ()
    sources = [factor.source for factor in factors if isinstance(factor, tvm.ir.TensorLoad)]
    return len(sources) > 1 and not sources[0].same_as(sources[1])
