"""Schedules of matrix products on tensor cores: TVM's WMMA intrinsics on 16x16x16 fragments.

The warps of a block copy tiles of both sides into shared memory, load fragments of them, and keep
float32 sums in fragments; these go through shared memory to the epilogue, which all threads share.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from chameleon_tvm.quick_tvm import Schedule, tirx
from chameleon_tvm.spaces.sketch.intrinsics import load_tensor_intrinsics

SIDE = 16
"""Rows, columns and depth of a fragment."""
BANKS, APART = 32, 8
"""A row of a tile begins this many elements past a multiple of so many: rows in other banks."""
WARP = 32


@attrs.frozen(kw_only=True)
class Product:
    """What a schedule has to know of a function that multiplies matrices.

    Attributes:
        anchor: the block that sums.
        batched: whether the outermost loop is one over independent products.
        transposed: whether the right side is stored as (n, k).
        names: of both sides, as in ``vector_<name>``.
    """

    anchor: str
    batched: bool
    transposed: bool
    names: tuple[str, str]


def scheduled(
    function: tirx.PrimFunc, product: Product, values: Mapping[str, Any]
) -> tirx.PrimFunc:
    """The function of one configuration, its sums on tensor cores.

    Args:
        function: unscheduled; blocks ``product.anchor`` and ``out``.
        product: the function.
        values: a decoded configuration.
    """
    load_tensor_intrinsics()
    schedule = Schedule(function)
    anchor, output = schedule.get_sblock(product.anchor), schedule.get_sblock("out")
    warps = int(values["tile_m"][1] * values["tile_n"][1])
    shared = [schedule.cache_read(anchor, side, "shared") for side in (0, 1)]
    loaded = [schedule.cache_read(anchor, side, f"wmma.matrix_{'ab'[side]}") for side in (0, 1)]
    schedule.set_scope(anchor, 0, "wmma.accumulator")
    stored = schedule.cache_read(output, 0, "shared.dyn")

    grid, warp, steps, depth, fragment = _tile(schedule, anchor, values)
    schedule.reverse_compute_at(stored, warp, preserve_unit_loops=True)
    schedule.reverse_compute_at(output, grid, preserve_unit_loops=True)
    for block in loaded:
        schedule.compute_at(block, depth, preserve_unit_loops=True)
    for block, name in zip(shared, product.names, strict=True):
        schedule.compute_at(block, steps, preserve_unit_loops=True)
        schedule.storage_align(block, 0, axis=-2, factor=BANKS, offset=APART)
        own = schedule.get_loops(block)[-(3 if product.batched else 2) :]
        _share(schedule, own, warps, int(values[f"vector_{name}"]))
    _share(schedule, schedule.get_loops(output)[1:], warps, 1)

    right = "b_trans_shared" if product.transposed else "b_shared"
    for block, intrinsic in zip(loaded, ("a_shared", right), strict=True):
        _tensorize(schedule, block, f"wmma_load_16x16x16_f16_{intrinsic}")
    _tensorize(schedule, stored, "wmma_store_16x16x16_f32_shared_dyn")
    beginning = schedule.decompose_reduction(anchor, steps)
    schedule.tensorize(schedule.get_loops(beginning)[-2], "wmma_fill_16x16x16_f32")
    turned = "_trans" if product.transposed else ""
    schedule.tensorize(fragment, f"wmma_sync_16x16x16_f16f16f32{turned}")
    if values["auto_unroll_max_step"]:
        schedule.annotate(grid, "pragma_auto_unroll_max_step", values["auto_unroll_max_step"])
        schedule.annotate(grid, "pragma_unroll_explicit", values["unroll_explicit"])
    return schedule.mod["main"]


def _tile(
    schedule: Schedule, anchor: Any, values: Mapping[str, Any]
) -> tuple[Any, Any, Any, Any, Any]:
    """Split and bind the loops: of the grid, the warps, the steps, a step's depth, a fragment."""
    *copies, m, n, k = schedule.get_loops(anchor)
    rows = schedule.split(m, [*values["tile_m"], SIDE])
    columns = schedule.split(n, [*values["tile_n"], SIDE])
    steps, depth, inner = schedule.split(k, [*values["tile_k"], SIDE])
    pairs = [list(pair) for pair in zip(rows, columns, strict=True)]
    schedule.reorder(*copies, *pairs[0], *pairs[1], steps, depth, *pairs[2], *pairs[3], inner)
    grid = schedule.fuse(*copies, *pairs[0])
    warp = schedule.fuse(*pairs[1])
    schedule.bind(grid, "blockIdx.x")
    schedule.bind(warp, "threadIdx.y")
    return grid, warp, steps, depth, pairs[3][0]


def _share(schedule: Schedule, loops: list[Any], warps: int, width: int) -> None:
    """Share a copy among all threads of a block, neighbours among neighbours."""
    together = schedule.fuse(*loops)
    _, warp, lane, vector = schedule.split(together, [None, warps, WARP, width])
    schedule.bind(warp, "threadIdx.y")
    schedule.bind(lane, "threadIdx.x")
    if width > 1:
        schedule.vectorize(vector)


def _tensorize(schedule: Schedule, block: Any, intrinsic: str) -> None:
    """Make an intrinsic of every fragment of a block that copies a matrix of fragments."""
    rows, columns = schedule.get_loops(block)[-2:]
    row, inner_row = schedule.split(rows, [None, SIDE])
    column, inner_column = schedule.split(columns, [None, SIDE])
    schedule.reorder(row, column, inner_row, inner_column)
    schedule.tensorize(inner_row, intrinsic)
