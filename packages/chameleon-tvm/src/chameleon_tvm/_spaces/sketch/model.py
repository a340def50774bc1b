"""Models the cost of a configuration's loop nest on a CPU, from knob values only.

Cost models read the quantities as features, first guesses and pruning read them by name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
from chameleon_core.plugin_api import Values
from numpy.typing import NDArray

from chameleon_tvm._device.targets import TargetInfo
from chameleon_tvm._spaces.sketch.cycles import cycles_of
from chameleon_tvm._spaces.sketch.nest import MAX_UNROLLED, Access, Extents, Nest, product, total
from chameleon_tvm._spaces.sketch.padding import pieces_of_borders
from chameleon_tvm._spaces.sketch.plan import INLINE, ROOT, SKETCH

OPERANDS = 6
"""Number of vector registers that a loop of multiply-adds needs for its operands."""

Quantities = dict[str, NDArray[np.float64]]


@attrs.frozen(kw_only=True)
class NestModel:
    """A model of a sketch's loop nest on a CPU.

    Attributes:
        rewritten: Whether sums are kept in registers and products of padding are skipped.
        stages: For several sketches, ``Nest.staged_at`` of each; otherwise None.
    """

    nest: Nest
    info: TargetInfo
    rewritten: bool = False
    stages: tuple[int, ...] | None = None

    def for_configurations(self, values: Values) -> NestModel:
        """The model whose ``nest.staged_at`` has one position for each configuration."""
        if self.stages is None:
            return self
        staged = np.array(self.stages)[values[SKETCH]]
        return attrs.evolve(self, nest=attrs.evolve(self.nest, staged_at=staged), stages=None)

    def quantities(self, values: Values, count: int) -> Quantities:
        """All quantities that the model estimates, by name, each of shape (count,)."""
        extents = self.nest.extents(values)
        facts: dict[str, Any] = self.registers(extents)
        facts.update(self.unrolling(extents, values))
        facts.update(self.parallel(extents, values))
        self._memory(facts, extents)
        self._producers(facts, extents, values)
        facts["cycles"] = cycles_of(
            facts,
            iterations=math.prod(axis.extent for axis in self.nest.axes),
            lanes=self.lanes,
            info=self.info,
            rewritten=self.rewritten,
        )
        return {
            name: np.broadcast_to(np.asarray(value, np.float64), (count,))
            for name, value in facts.items()
        }

    def names(self) -> tuple[str, ...]:
        """Names of the quantities, in the order of ``quantities``."""
        knobs = {part.knob for part in self.nest.parts if part.knob is not None}
        depth = 1 + max((part.index for part in self.nest.parts), default=0)
        values: dict[str, Any] = {knob: np.ones((1, depth), np.int64) for knob in knobs}
        for name in (*self.nest.locations, *filter(None, [self.nest.unroll])):
            values[name] = np.zeros(1, np.int64)
        return tuple(self.quantities(values, 1))

    @property
    def lanes(self) -> int:
        """Number of output elements in one vector register."""
        return self.info.lanes(f"V{self._output().itemsize}")

    @property
    def spatial_points(self) -> int:
        """Number of elements of the output."""
        return math.prod(axis.extent for axis in self.nest.axes if not axis.reduction)

    # -- registers --------------------------------------------------------------------------

    def _innermost_level(self) -> int:
        return self.nest.levels[-1]

    def registers(self, extents: list[Extents]) -> dict[str, Any]:
        """Estimates of the use of registers, by name, each of shape (n,) or (1,).

        The register tile consists of the innermost spatial loops, the last of which is vectorized.
        """
        facts: dict[str, Any] = {}
        nest = self.nest
        start = self._innermost_level()
        lanes = float(self.lanes)
        vector = extents[-1]
        vectors = np.ceil(vector / lanes)
        copies = product(extents[start:-1])
        accumulators = self.accumulators(extents)
        tile = nest.tile(start, extents)
        innermost = nest.parts[-1].axis.name
        loads: Any = 0.0
        for access in self._inputs():
            elements = access.footprint(tile) / access.itemsize
            loads = loads + (
                elements / np.maximum(vector, 1) * vectors
                if access.reads_axis(innermost)
                else elements
            )
        facts["lanes"] = vector
        facts["vector_efficiency"] = vector / (vectors * lanes)
        facts["accumulators"] = accumulators
        facts["copies"] = copies
        facts["loads"] = loads
        facts["reuse_in_registers"] = accumulators / np.maximum(loads, 1)
        facts["registers_over"] = np.maximum(
            accumulators + OPERANDS - self.info.vector_registers, 0
        )
        levels = nest.levels
        inner = levels[-2] if len(levels) > 1 else start
        facts["inner_reduction"] = product(extents[inner:start])
        in_registers = self._sums_in_registers(extents, copies)
        facts["sums_kept"] = in_registers * np.ones(1)
        all_reductions = math.prod(axis.extent for axis in nest.axes if axis.reduction)
        facts["reduction_in_registers"] = np.where(
            in_registers, all_reductions, facts["inner_reduction"]
        )
        facts["last_reduction"] = extents[start - 1] if start else np.ones(1)
        return facts

    def accumulators(self, extents: list[Extents]) -> Any:
        """The number of vector registers that the sums of the register tile need."""
        copies = product(extents[self._innermost_level() : -1])
        return copies * np.ceil(extents[-1] / float(self.lanes))

    def _sums_in_registers(self, extents: list[Extents], copies: Any) -> Any:
        """Whether the sums of a register tile stay in registers from first to last addition."""
        in_registers: Any = (copies <= MAX_UNROLLED) & np.full(1, self.rewritten)
        start, end = self.nest.first_reduction_part, self._innermost_level()
        for part, extent in zip(self.nest.parts[start:end], extents[start:end], strict=True):
            if not part.axis.reduction:
                in_registers = in_registers & (extent == 1)
        return in_registers

    def _output(self) -> Access:
        return next(access for access in self.nest.accesses if access.written)

    def _inputs(self) -> list[Access]:
        output = self._output().name
        return [read for read in self.nest.accesses if not read.written and read.name != output]

    # -- code size --------------------------------------------------------------------------

    def unrolling(self, extents: list[Extents], values: Values) -> dict[str, Any]:
        """The number of copies of the innermost statement that TVM makes by unrolling loops."""
        limit = (
            values[self.nest.unroll].astype(np.float64)
            if self.nest.unroll is not None
            else np.zeros(1)
        )
        size: Any = np.ones(1)
        unrolled: Any = np.ones(1)
        for extent in reversed(extents[:-1]):
            size = size * extent
            unrolled = np.where(size <= limit, size, unrolled)
        copies = product(extents[self._innermost_level() : -1])
        at_least = MAX_UNROLLED if self.rewritten else 1
        if self.rewritten:
            unrolled = np.maximum(unrolled, np.where(copies <= at_least, copies, 1))
        pieces, clean = pieces_of_borders(self.nest, extents)
        inlined = self.inlined(values) & clean & np.full(1, self.rewritten)
        unrolled_in_all = unrolled * np.where(inlined, pieces, 1)
        return {
            "unroll_limit": limit,
            "unrolled": unrolled,
            "pieces": np.where(inlined, pieces, 1),
            "skips_padding": inlined.astype(np.float64),
            "instructions": unrolled_in_all * np.ceil(extents[-1] / self.lanes),
            "tile_unrolled": (copies <= np.maximum(limit, at_least)).astype(np.float64),
            "reductions_unrolled": np.maximum(unrolled / copies, 1),
        }

    def inlined(self, values: Values) -> Any:
        """Whether a block that prepares an input (such as padding) is computed where it is read."""
        inlined: Any = np.zeros(1, bool)
        for knob in self.nest.locations:
            inlined = inlined | (values[knob] == INLINE)
        return inlined

    # -- threads ----------------------------------------------------------------------------

    def parallel(self, extents: list[Extents], values: Values) -> dict[str, Any]:
        """Estimates of the parallel loop: its iterations, and how well it keeps the cores busy.

        TVM fuses the outermost spatial loops up to ``nest.max_parallel`` iterations.
        """
        depth = self.nest.position_of_first_reduction()
        depth_limit: Any = np.full(1, float(depth))
        if self.nest.staged_at is not None:
            depth_limit = np.minimum(depth_limit, self.nest.staged_at + 1)
        for knob in self.nest.locations:
            location = values[knob].astype(np.float64)
            depth_limit = np.where(
                location >= 0, np.minimum(depth_limit, location + 1), depth_limit
            )
        limit = float(self.nest.max_parallel or np.inf)
        grain: Any = np.ones(1)
        fusible: Any = np.ones(1, bool)
        for position in range(depth):
            wider = grain * extents[position]
            fusible = fusible & (wider <= limit) & (position < depth_limit)
            grain = np.where(fusible, wider, grain)
        cores = float(self.info.cores)
        return {"parallel": grain, "balance": grain / (np.ceil(grain / cores) * cores)}

    # -- caches -----------------------------------------------------------------------------

    def _memory(self, facts: dict[str, Any], extents: list[Extents]) -> None:
        """Bytes that each tile level touches, and bytes fetched if each tile is fetched once."""
        nest = self.nest
        levels = nest.levels
        footprints, traffics = [], []
        for number, start in enumerate(levels):
            tile = nest.tile(start, extents)
            sizes = [access.footprint(tile) for access in nest.accesses]
            size = total(sizes)
            trips = product(extents[:start])
            footprints.append(size)
            traffics.append(trips * size)
            facts[f"footprint{number}"] = size
            facts[f"traffic{number}"] = trips * size
        for name, bytes_ in (("l1", self.info.l1_bytes), ("l2", self.info.l2_bytes)):
            # The largest tile that fits decides the traffic.
            traffic: Any = traffics[-1]
            for size, fetched in zip(reversed(footprints), reversed(traffics), strict=True):
                traffic = np.where(size <= bytes_, np.minimum(traffic, fetched), traffic)
            facts[f"traffic_{name}"] = traffic

    # -- producers --------------------------------------------------------------------------

    def _producers(self, facts: dict[str, Any], extents: list[Extents], values: Values) -> None:
        """How often the blocks that the anchor reads (padding, for example) are computed again."""
        inlined: Any = np.zeros(1)
        rooted: Any = np.zeros(1)
        repeated: Any = np.ones(1)
        inputs = self._inputs()
        for knob in self.nest.locations:
            location = values[knob]
            inlined = inlined + (location == INLINE)
            rooted = rooted + (location == ROOT)
            if not inputs or not (location >= 0).any():
                continue
            # The knob does not say which input is meant, so the largest share counts.
            tile, trips = self.nest.split_at(location, extents)
            repeats = total([trips * a.footprint(tile) for a in inputs]) / total(
                [a.footprint(self.nest.tile(0, extents)) for a in inputs]
            )
            repeated = np.where(location >= 0, np.maximum(repeated, repeats), repeated)
        facts["inlined"] = inlined
        facts["rooted"] = rooted
        facts["repeated"] = repeated


def common_model(models: Sequence[NestModel | None]) -> NestModel | None:
    """One model for all sketches, if only the copies of outputs differ; else None."""
    unstaged = [
        None
        if model is None
        else attrs.evolve(model, nest=attrs.evolve(model.nest, staged_at=None))
        for model in models
    ]
    if not unstaged or unstaged[0] is None or any(model != unstaged[0] for model in unstaged):
        return None
    innermost = len(unstaged[0].nest.loops)
    staged = [None if model is None else model.nest.staged_at for model in models]
    stages = tuple(innermost if stage is None else int(stage) for stage in staged)
    return attrs.evolve(unstaged[0], stages=stages)
