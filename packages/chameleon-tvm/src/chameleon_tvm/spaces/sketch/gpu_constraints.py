"""Limits of a GPU's block of threads, which TVM checks only after scheduling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from chameleon_core.space import Constraint, Values
from numpy.typing import NDArray

from chameleon_tvm.quick_tvm import tvm
from chameleon_tvm.spaces.sketch.constraints import Predicate, per_sketch
from chameleon_tvm.spaces.sketch.nest import Extents, Nest
from chameleon_tvm.spaces.sketch.plan import SKETCH

MAX_VIRTUAL_THREADS = 8
"""The limit that TVM's GPU check sets on ``vthread``."""


def gpu_constraints(nests: Sequence[Nest | None], target: tvm.target.Target) -> list[Constraint]:
    """Threads, virtual threads and shared memory of a block within the target's limits."""
    attributes = target.attrs
    most = int(attributes.get("max_threads_per_block", 1024))
    warp = int(attributes.get("thread_warp_size", 1))
    shared = int(attributes.get("max_shared_memory_per_block", 48 * 1024))
    return [
        Constraint(
            reason="threads per block are more than the target has, or fewer than a warp",
            holds=per_sketch([_bound_within(nest, "threadIdx.x", warp, most) for nest in nests]),
        ),
        Constraint(
            reason="more virtual threads than TVM accepts",
            holds=per_sketch(
                [_bound_within(nest, "vthread.x", 1, MAX_VIRTUAL_THREADS) for nest in nests]
            ),
        ),
        Constraint(
            reason="a block's inputs do not fit the target's shared memory",
            holds=per_sketch([_sharing_within(nest, shared) for nest in nests]),
        ),
    ]


def _bound_within(nest: Nest | None, axis: str, least: int, most: int) -> Predicate | None:
    if nest is None or axis not in nest.threads.values():
        return None

    def holds(values: Values) -> NDArray[np.bool_]:
        extents = nest.extents(values)
        bound: Any = np.ones(len(values[SKETCH]))
        for position in nest.threads:
            if nest.threads[position] == axis:
                for extent in extents[_parts(nest, position)]:
                    bound = bound * extent
        return np.asarray((bound <= most) & (bound >= least))

    return holds


def _sharing_within(nest: Nest | None, limit: int) -> Predicate | None:
    if nest is None or not nest.shared_at:
        return None

    def holds(values: Values) -> NDArray[np.bool_]:
        extents = nest.extents(values)
        reads = [access for access in nest.accesses if not access.written]
        total: Any = np.zeros(1)
        for number, position in nest.shared_at.items():
            inside = nest.tile(_parts(nest, position).stop, extents)
            # The threads of a block share the copy: it spans what all of them read.
            for at, axis in nest.threads.items():
                if at <= position and axis != "blockIdx.x":
                    _widen(nest, inside, extents, at)
            total = total + reads[int(number)].footprint(inside)
        return np.broadcast_to(total <= limit, (len(values[SKETCH]),))

    return holds


def _parts(nest: Nest, position: int) -> slice:
    """Where the parts of one loop are among all parts."""
    start = sum(len(loop) for loop in nest.loops[:position])
    return slice(start, start + len(nest.loops[position]))


def _widen(nest: Nest, tile: dict[str, Any], extents: list[Extents], position: int) -> None:
    for part, extent in zip(nest.loops[position], extents[_parts(nest, position)], strict=True):
        tile[part.axis.name] = tile[part.axis.name] * extent
