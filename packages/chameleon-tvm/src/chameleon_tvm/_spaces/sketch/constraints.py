"""The constraints of a legal configuration of a sketch, checked on arrays of configurations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from chameleon_core.plugin_api import Constraint, Knob, Values
from numpy.typing import NDArray

from chameleon_tvm._quick_tvm import tvm
from chameleon_tvm._spaces.sketch.cycles import MANY_INSTRUCTIONS
from chameleon_tvm._spaces.sketch.model import NestModel, common_model
from chameleon_tvm._spaces.sketch.nest import Nest, product, total
from chameleon_tvm._spaces.sketch.padding import pieces_of_borders
from chameleon_tvm._spaces.sketch.plan import SKETCH, ThinnedFactorization

Predicate = Callable[[Values], NDArray[np.bool_]]


class RowValues(Mapping[str, NDArray[Any]]):
    """Knob values of some of the configurations, read only when used."""

    def __init__(self, values: Values, rows: NDArray[np.intp]) -> None:
        self._values = values
        self._rows = rows
        self._read: dict[str, NDArray[Any]] = {}

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._read:
            self._read[name] = self._values[name][self._rows]
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def per_sketch(predicates: Sequence[Predicate | None]) -> Predicate:
    """Combine one predicate per sketch (None: always true) into one for all sketches."""

    def holds(values: Values) -> NDArray[np.bool_]:
        sketch = values[SKETCH]
        ok = np.ones(len(sketch), bool)
        for number, predicate in enumerate(predicates):
            rows = np.flatnonzero(sketch == number)
            if predicate is not None and len(rows):
                ok[rows] = predicate(RowValues(values, rows))
        return ok

    return holds


def location_constraint(nests: Sequence[Nest | None]) -> Constraint:
    """Exclude compute locations of a single iteration, which TVM would silently replace."""

    def of(nest: Nest | None) -> Predicate | None:
        if nest is None or not nest.locations:
            return None

        def holds(values: Values) -> NDArray[np.bool_]:
            extents = nest.extents(values)
            count = len(values[SKETCH])
            loops = [product(extents[_parts(nest, at)]) for at in range(len(nest.loops))]
            table = np.stack([np.broadcast_to(loop, (count,)) for loop in loops], axis=1)
            ok = np.ones(count, bool)
            for knob in nest.locations:
                location = values[knob].astype(np.int64)
                at = np.clip(location, 0, table.shape[1] - 1)
                ok &= (location < 0) | (table[np.arange(count), at] > 1)
            return ok

        return holds

    # The position at which outputs are staged makes no difference here, and most nests differ in
    # nothing else.
    unstaged = [None if nest is None else attrs.evolve(nest, staged_at=None) for nest in nests]
    common = bool(unstaged) and all(nest == unstaged[0] for nest in unstaged)
    return Constraint(
        reason="a block is computed at a loop of one iteration, which TVM moves elsewhere",
        holds=(of(unstaged[0]) or _all_true)
        if common
        else per_sketch([of(nest) for nest in nests]),
    )


def cpu_constraints(models: Sequence[NestModel | None]) -> list[Constraint]:
    """Exclude configurations that cannot be fast on a CPU, whatever the other choices are."""
    common = common_model(models)

    def build(make: Callable[[NestModel], Predicate | None]) -> Predicate:
        if common is not None:
            return make(common) or _all_true
        return per_sketch([None if model is None else make(model) for model in models])

    return [Constraint(reason=reason, holds=build(make)) for make, reason in _CPU_REASONS.items()]


def keep_full_vectors(knobs: Sequence[Knob], models: Sequence[NestModel | None]) -> list[Knob]:
    """The knobs without the choices that leave vector registers partly empty in every sketch.

    With a constraint instead, nine of ten random configurations would be illegal.
    """
    innermost = {None if m is None else (m.nest.parts[-1], m.lanes) for m in models}
    if len(innermost) != 1 or None in innermost:
        return list(knobs)
    (part, lanes), *_ = [pair for pair in innermost if pair is not None]
    return [
        attrs.evolve(knob, innermost_multiple=lanes)
        if isinstance(knob, ThinnedFactorization)
        and (knob.name, knob.parts - 1) == (part.knob, part.index)
        and min(knob.extent, knob.max_innermost or knob.extent) >= lanes
        and knob.extent % lanes == 0
        else knob
        for knob in knobs
    ]


def _all_true(values: Values) -> NDArray[np.bool_]:
    return np.ones(len(values[SKETCH]), bool)


def _full_vectors(model: NestModel) -> Predicate | None:
    lanes = model.lanes
    if model.nest.parts[-1].axis.extent % lanes:
        return None
    return lambda values: model.nest.extents(values)[-1] % lanes == 0


def _fitting_registers(model: NestModel) -> Predicate | None:
    limit = model.info.vector_registers
    return lambda values: model.accumulators(model.nest.extents(values)) <= limit


def _latency_hiding(model: NestModel) -> Predicate | None:
    # Half as many independent sums as the units can hold in flight reach half of the peak.
    least = model.info.fma_latency * model.info.fma_units // 2
    if model.spatial_points < least * model.lanes:
        return None
    return lambda values: model.accumulators(model.nest.extents(values)) >= least


def _parallel_enough(model: NestModel) -> Predicate | None:
    if model.spatial_points < model.info.cores * model.lanes:
        return None

    def holds(values: Values) -> NDArray[np.bool_]:
        nest_model = model.for_configurations(values)
        grain = nest_model.parallel(nest_model.nest.extents(values), values)["parallel"]
        return np.broadcast_to(grain >= model.info.cores, (len(values[SKETCH]),))

    return holds


def _compact_code(model: NestModel) -> Predicate:
    limit = 2 * MANY_INSTRUCTIONS
    return lambda values: np.asarray(
        model.unrolling(model.nest.extents(values), values)["instructions"] <= limit
    )


def _unconditional(model: NestModel) -> Predicate | None:
    if not model.rewritten or not model.nest.locations:
        return None
    return lambda values: np.asarray(
        ~model.inlined(values) | pieces_of_borders(model.nest, model.nest.extents(values))[1]
    )


# The most selective and the cheapest first: sampling checks them in this order.
_CPU_REASONS: dict[Callable[[NestModel], Predicate | None], str] = {
    _full_vectors: "the innermost loop does not fill whole vector registers",
    _latency_hiding: "the register tile is too small to hide the latency of multiply-add",
    _fitting_registers: "the register tile has more accumulators than there are vector registers",
    _parallel_enough: "fewer parallel iterations than cores",
    _compact_code: "so much unrolled code compiles for seconds and runs no faster",
    _unconditional: "an inlined padding leaves conditions in the innermost loops",
}


MAX_VIRTUAL_THREADS = 8
"""The limit that TVM's GPU check sets on ``vthread``."""


def gpu_constraints(nests: Sequence[Nest | None], target: tvm.target.Target) -> list[Constraint]:
    """Constraints that keep a block's threads and shared memory within a GPU's limits."""
    attributes = target.attrs
    most = int(attributes.get("max_threads_per_block", 1024))
    warp = int(attributes.get("thread_warp_size", 1))
    shared = int(attributes.get("max_shared_memory_per_block", 48 * 1024))
    return [
        Constraint(
            reason="threads per block are more than the target has, or fewer than a warp",
            holds=per_sketch([_thread_limits(nest, "threadIdx.x", warp, most) for nest in nests]),
        ),
        Constraint(
            reason="more virtual threads than TVM accepts",
            holds=per_sketch(
                [_thread_limits(nest, "vthread.x", 1, MAX_VIRTUAL_THREADS) for nest in nests]
            ),
        ),
        Constraint(
            reason="a block's inputs do not fit the target's shared memory",
            holds=per_sketch([_shared_memory_limit(nest, shared) for nest in nests]),
        ),
    ]


def _thread_limits(nest: Nest | None, axis: str, least: int, most: int) -> Predicate | None:
    if nest is None or axis not in nest.threads.values():
        return None

    def holds(values: Values) -> NDArray[np.bool_]:
        extents = nest.extents(values)
        positions = [position for position, thread in nest.threads.items() if thread == axis]
        bound = product(extent for at in positions for extent in extents[_parts(nest, at)])
        return np.broadcast_to((bound <= most) & (bound >= least), (len(values[SKETCH]),))

    return holds


def _shared_memory_limit(nest: Nest | None, limit: int) -> Predicate | None:
    if nest is None or not nest.shared_at:
        return None

    def holds(values: Values) -> NDArray[np.bool_]:
        extents = nest.extents(values)
        reads = [access for access in nest.accesses if not access.written]
        copied = []
        for number, position in nest.shared_at.items():
            inside = nest.tile(_parts(nest, position).stop, extents)
            # The threads of a block share the copy: it spans what all of them read.
            for at, axis in nest.threads.items():
                if at <= position and axis != "blockIdx.x":
                    parts = zip(nest.loops[at], extents[_parts(nest, at)], strict=True)
                    for part, extent in parts:
                        inside[part.axis.name] = inside[part.axis.name] * extent
            copied.append(reads[int(number)].footprint(inside))
        return np.broadcast_to(total(copied) <= limit, (len(values[SKETCH]),))

    return holds


def _parts(nest: Nest, position: int) -> slice:
    """The positions of a loop's parts among the parts of all loops."""
    start = sum(len(loop) for loop in nest.loops[:position])
    return slice(start, start + len(nest.loops[position]))
