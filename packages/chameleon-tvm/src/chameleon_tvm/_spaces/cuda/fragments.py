"""Schedules of matrix products on tensor cores: TVM's WMMA intrinsics on 16x16x16 fragments.

The warps of a block copy tiles of both sides into shared memory, load fragments of these tiles, and
keep float32 sums in fragments. The sums go through shared memory to the epilogue.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from chameleon_tvm._instructions.fragments import FRAGMENTS, SIDE
from chameleon_tvm._quick_tvm import Schedule, tirx
from chameleon_tvm._spaces.cuda.schedule import unroll

BANKS, BANK_OFFSET = 32, 8
"""Each row of a tile begins ``BANK_OFFSET`` elements after a multiple of ``BANKS``, so that
neighbouring rows lie in different banks of shared memory."""
WARP = 32


@attrs.frozen(kw_only=True)
class Product:
    """The facts that a schedule needs about a function that multiplies matrices.

    Attributes:
        anchor: Name of the block that computes the sums.
        reductions: Names of the reduction axes, as in the knobs ``tile_<name>``. Fragments lie
            along the last one.
        transposed: Whether the right side is stored as (n, k).
        names: Names of the left and the right side, as in ``vector_<name>``.
        dtype: Dtype of both sides.
        producer: Name of the block that computes the left side's tiles; empty if tiles are copied.
    """

    anchor: str
    reductions: tuple[str, ...] = ("k",)
    transposed: bool = False
    names: tuple[str, str]
    dtype: str
    producer: str = ""

    @property
    def knobs(self) -> tuple[str, ...]:
        """Names of the knobs of the axes that are summed over."""
        return tuple(f"tile_{name}" for name in self.reductions)


def schedule_product(
    function: tirx.PrimFunc, product: Product, values: Mapping[str, Any]
) -> tirx.PrimFunc:
    """The function of a configuration, with its sums on tensor cores."""
    intrinsics = FRAGMENTS[product.dtype].intrinsics(transposed=product.transposed)
    schedule = Schedule(function)
    anchor, output = schedule.get_sblock(product.anchor), schedule.get_sblock("out")
    warps = int(values["tile_m"][1] * values["tile_n"][1])
    shared = [_shared_tile(schedule, anchor, side, product) for side in (0, 1)]
    fragments = [schedule.cache_read(anchor, side, f"wmma.matrix_{'ab'[side]}") for side in (0, 1)]
    schedule.set_scope(anchor, 0, "wmma.accumulator")
    shared_sums = schedule.cache_read(output, 0, "shared.dyn")

    loops = _tile(schedule, anchor, product, values)
    schedule.reverse_compute_at(shared_sums, loops.warp, preserve_unit_loops=True)
    schedule.reverse_compute_at(output, loops.grid, preserve_unit_loops=True)
    for block in fragments:
        schedule.compute_at(block, loops.depth[-1], preserve_unit_loops=True)
    for block, name in zip(shared, product.names, strict=True):
        schedule.compute_at(block, loops.steps[-1], preserve_unit_loops=True)
        schedule.storage_align(block, 0, axis=-2, factor=BANKS, offset=BANK_OFFSET)
        copy_loops = schedule.get_loops(block)[2 + len(loops.steps) :]
        _distribute(schedule, copy_loops, warps, int(values[f"vector_{name}"]))
    _distribute(schedule, schedule.get_loops(output)[1:], warps, 1)

    for block, intrinsic in zip(fragments, intrinsics.load, strict=True):
        _tensorize(schedule, block, intrinsic)
    _tensorize(schedule, shared_sums, intrinsics.store)
    initialization = schedule.decompose_reduction(anchor, loops.steps[0])
    schedule.tensorize(schedule.get_loops(initialization)[-2], intrinsics.fill)
    schedule.tensorize(loops.fragment, intrinsics.multiply)
    unroll(schedule, loops.grid, values)
    return schedule.mod["main"]


def _shared_tile(schedule: Schedule, anchor: Any, side: int, product: Product) -> Any:
    """The block that puts tiles of a side into shared memory."""
    if side == 0 and product.producer:
        block = schedule.get_sblock(product.producer)
        schedule.set_scope(block, 0, "shared")
        return block
    return schedule.cache_read(anchor, side, "shared")


@attrs.frozen(kw_only=True)
class _Loops:
    """The anchor's loops after tiling: ``steps`` copy a tile each, ``depth`` runs over a tile."""

    grid: Any
    warp: Any
    steps: list[Any]
    depth: list[Any]
    fragment: Any


def _tile(schedule: Schedule, anchor: Any, product: Product, values: Mapping[str, Any]) -> _Loops:
    """Split, order and bind the loops of the anchor block."""
    count = len(product.reductions)
    *copies, m, n = schedule.get_loops(anchor)[:-count]
    rows = schedule.split(m, [*values["tile_m"], SIDE])
    columns = schedule.split(n, [*values["tile_n"], SIDE])
    *taps, last = schedule.get_loops(anchor)[-count:]
    *tap_knobs, knob = product.knobs
    splits = [schedule.split(t, list(values[k])) for t, k in zip(taps, tap_knobs, strict=True)]
    *last_parts, inner = schedule.split(last, [*values[knob], SIDE])
    steps, depth = ([parts[at] for parts in (*splits, last_parts)] for at in (0, 1))
    pairs = [list(pair) for pair in zip(rows, columns, strict=True)]
    schedule.reorder(*copies, *pairs[0], *pairs[1], *steps, *depth, *pairs[2], *pairs[3], inner)
    grid = schedule.fuse(*copies, *pairs[0])
    warp = schedule.fuse(*pairs[1])
    schedule.bind(grid, "blockIdx.x")
    schedule.bind(warp, "threadIdx.y")
    return _Loops(grid=grid, warp=warp, steps=steps, depth=depth, fragment=pairs[3][0])


def _distribute(schedule: Schedule, loops: list[Any], warps: int, width: int) -> None:
    """Share a copy among all threads of a block; neighbouring threads copy neighbours."""
    # The vector is split off first, so that no condition depends on the place in it. Otherwise TVM
    # would split the vector into scalars.
    *others, last = loops
    last, vector = schedule.split(last, [None, width])
    fused = schedule.fuse(*others, last)
    _, warp, lane = schedule.split(fused, [None, warps, WARP])
    schedule.bind(warp, "threadIdx.y")
    schedule.bind(lane, "threadIdx.x")
    if width > 1:
        schedule.vectorize(vector)


def _tensorize(schedule: Schedule, block: Any, intrinsic: str) -> None:
    """Replace each fragment's part of a copying block by an intrinsic."""
    rows, columns = schedule.get_loops(block)[-2:]
    row, inner_row = schedule.split(rows, [None, SIDE])
    column, inner_column = schedule.split(columns, [None, SIDE])
    schedule.reorder(row, column, inner_row, inner_column)
    schedule.tensorize(inner_row, intrinsic)
