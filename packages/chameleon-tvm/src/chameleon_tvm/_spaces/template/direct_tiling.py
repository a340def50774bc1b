"""Knobs, constraints, features and first guesses of direct convolutions."""

from __future__ import annotations

import math
from typing import Any

import attrs
import numpy as np
from chameleon_core.plugin_api import Choice, Constraint, Values

from chameleon_tvm._device.targets import TargetInfo
from chameleon_tvm._spaces.template.arithmetic import FLOAT32_ARITHMETIC, Arithmetic
from chameleon_tvm._spaces.template.estimates import (
    COPY_COST,
    LOOP_CYCLES,
    STORE_CYCLES,
    TILE_CYCLES,
    Numbers,
    Tiling,
    as_floats,
    broadcast_is_operand,
    transpose_cost,
)
from chameleon_tvm._spaces.template.geometry import Geometry, tap_patterns

MAX_WASTE = 1.13
"""Largest number of computed outputs over needed outputs along one axis. Tiles that waste more are
not offered."""

MOST_ROWS = 8
"""Number of rows of the largest tile."""

MAX_VERSIONS = 3
"""Largest number of versions of the code for borders: left, middle, right. Each version adds to the
time of compilation."""


@attrs.frozen(kw_only=True)
class DirectEstimates:
    """Estimates for n configurations of a direct convolution, without building kernels.

    Every field has shape (n,).

    Attributes:
        accumulators: Vector registers that hold sums.
        registers: Vector registers that the inner loop needs.
        loads_per_fma: Vector and broadcast loads per multiply-add of the inner loop.
        waste: Number of computed outputs over the number of needed outputs.
        tasks: Number of iterations of the parallel loop.
        imbalance: Time of the busiest core over its time if work were divided evenly.
        weight_bytes: Bytes of the weights that a tile reads.
        input_bytes: Bytes of the inputs that a tile reads.
        versions: Number of copies of the tile's code, one for each kind of border.
        run: Iterations of the innermost loop.
        skipped: Fraction of multiplications that are left out because their tap is in the padding.
        copied: Bytes written while copying the input, per floating-point operation.
        traffic: Bytes that the outer loops read repeatedly and L2 does not hold, per floating-point
            operation.
        input_in_l1: ``input_bytes`` over the size of L1.
        weights_in_l2: ``weight_bytes`` over the size of L2.
    """

    accumulators: Numbers
    registers: Numbers
    loads_per_fma: Numbers
    waste: Numbers
    tasks: Numbers
    imbalance: Numbers
    weight_bytes: Numbers
    input_bytes: Numbers
    versions: Numbers
    run: Numbers
    skipped: Numbers
    copied: Numbers
    traffic: Numbers
    input_in_l1: Numbers
    weights_in_l2: Numbers


def tile_sizes(extent: int, most: int) -> tuple[int, ...]:
    """The sizes of tiles along an axis for which overlaps of the last tile waste little work."""
    sizes = range(1, min(extent, most) + 1)
    return tuple(s for s in sizes if -(-extent // s) * s <= MAX_WASTE * extent)


class DirectTiling(Tiling):
    """The design space of a direct convolution."""

    tile_knobs = ("tile_rows", "tile_columns", "tile_vectors", "input")
    estimates = DirectEstimates
    log_fields = frozenset({"tasks", "weight_bytes", "input_bytes", "run"})
    groups = (
        ("tile", ("accumulators", "registers", "loads_per_fma", "waste")),
        ("parallel loop", ("tasks", "imbalance")),
        ("innermost loop", ("versions", "run", "skipped")),
        ("weights", ("weight_bytes", "weights_in_l2")),
        ("input", ("input_bytes", "input_in_l1", "copied")),
        ("outer loops", ("traffic",)),
    )

    def __init__(
        self,
        geometry: Geometry,
        info: TargetInfo,
        *,
        in_place: bool,
        channel_blocks: tuple[int, ...],
        arithmetic: Arithmetic = FLOAT32_ARITHMETIC,
    ) -> None:
        self.geometry = geometry
        self.arithmetic = arithmetic
        self.info = info
        height, width = geometry.out
        self.columns = tile_sizes(width, info.vector_registers - 2)
        available = -(-geometry.oc // geometry.lanes)
        # With few positions, as in a matrix times a vector, only channels can fill the registers.
        sizes = (1, 2, 3, 4, 6, 8) if height * width > 2 else (2, 4, 6, 8, 12, 16)  # noqa: PLR2004
        self.vectors = tuple(v for v in sizes if v <= available) or (available,)
        self.knobs = self._make_knobs(channel_blocks, in_place=in_place)
        self._versions = np.zeros(max(self.columns) + 1)
        for size in self.columns:
            self._versions[size] = int(tap_patterns(geometry, size).max()) + 1

    def _make_knobs(self, channel_blocks: tuple[int, ...], *, in_place: bool) -> tuple[Choice, ...]:
        return (
            Choice(name="tile_rows", options=tile_sizes(self.geometry.out[0], MOST_ROWS)),
            Choice(name="tile_columns", options=self.columns),
            Choice(name="tile_vectors", options=self.vectors),
            Choice(name="channel_block", options=channel_blocks),
            Choice(name="input", options=("copy", "in_place") if in_place else ("copy",)),
            Choice(name="outermost", options=("channels", "positions")),
            Choice(name="unroll", options=(1, 2, 4)),
        )

    def constraints(self) -> tuple[Constraint, ...]:
        info, geometry = self.info, self.geometry
        depth = self.arithmetic.dot.depth
        # The estimate includes the cost of few sums in flight. Small images may have no tile with
        # more sums.
        least = min(info.vector_registers // 4, self._largest_tile_sums())
        return (
            *self.register_constraints(least),
            Constraint(
                reason="a tile read in place may have one row only if the input is padded",
                holds=lambda v: (
                    (v["input"] == "copy") | (v["tile_rows"] == 1) | (not geometry.padded[0])
                ),
            ),
            Constraint(
                reason="a tile read in place would need too many versions for the borders",
                holds=lambda v: self.estimate(v).versions <= MAX_VERSIONS,
            ),
            Constraint(
                reason="the unrolled loop does not divide the block of input channels",
                holds=lambda v: v["channel_block"] // depth % v.get("unroll", 1) == 0,
            ),
        )

    def _largest_tile_sums(self) -> int:
        """Number of sums of the largest tile that fits the registers."""
        rows = np.array(tile_sizes(self.geometry.out[0], MOST_ROWS))
        positions = np.multiply.outer(rows, np.array(self.columns))[..., None]
        vectors = np.array(self.vectors)
        fits = self._registers(positions, vectors) <= self.info.vector_registers
        return int((positions * vectors * fits).max())

    def _registers(self, positions: Any, vectors: Any) -> Any:
        """Vector registers of the inner loop: sums, a row of weights and a broadcast."""
        info = self.info
        # A broadcast that several vectors multiply with gets a register of its own. A broadcast for
        # a single vector is a memory operand if the target has those. Otherwise the next broadcast
        # is loaded while this one is multiplied.
        dot = self.arithmetic.dot
        operand = broadcast_is_operand(info) and dot.depth == 1
        broadcast = np.where(vectors > 1, 1.0, 0.0 if operand else 2.0)
        # A weight that a single position multiplies with is a memory operand, too.
        weights = np.where(info.memory_operands & (positions == 1), 0, vectors)
        return positions * vectors + weights + broadcast + dot.temporaries

    @property
    def reduction_channels(self) -> int:
        """Number of input channels that each output adds up."""
        return self.geometry.ic

    def estimate(self, values: Values) -> DirectEstimates:
        g, info = self.geometry, self.info
        rows, columns, vectors = as_floats(values, "tile_rows", "tile_columns", "tile_vectors")
        (channels,) = as_floats(values, "channel_block")
        copy = values["input"] == "copy"
        kh, kw = g.kernel
        data_bytes, depth = self.arithmetic.data_bytes, self.arithmetic.dot.depth
        taps, images = g.taps, g.batch * g.out_planes
        positions = rows * columns
        down, across = np.ceil(g.out[0] / rows), np.ceil(g.out[1] / columns)
        blocks = np.ceil(g.oc / (vectors * g.lanes))
        tasks = images * g.groups * down * across * blocks
        needed = g.out[0] * g.out[1] * g.oc
        staged = g.padded_size
        in_rows = (rows - 1) * g.stride[0] + (kh - 1) * g.dilation[0] + 1
        in_columns = (columns - 1) * g.stride[1] + (kw - 1) * g.dilation[1] + 1
        flop = 2.0 * images * g.groups * needed * self.reduction_channels * taps
        staged_bytes = g.planes * g.groups * g.ic * staged[0] * staged[1] * data_bytes
        copied = g.batch * staged_bytes / flop
        fused = copy & (channels == g.ic) & (g.dilation[1] == 1)
        weight_bytes = (
            taps * self.reduction_channels * vectors * g.lanes * self.arithmetic.weight_bytes
        )
        input_bytes = (
            in_rows * in_columns * self.reduction_channels * (taps // (kh * kw)) * data_bytes
        )
        return DirectEstimates(
            accumulators=positions * vectors,
            registers=self._registers(positions, vectors),
            loads_per_fma=(positions + vectors) / (positions * vectors),
            waste=down * rows * across * columns * blocks * vectors * g.lanes / needed,
            tasks=tasks,
            imbalance=self.imbalance(tasks),
            weight_bytes=weight_bytes,
            input_bytes=input_bytes,
            versions=np.where(copy, 1, self._versions[values["tile_columns"]]),
            run=np.where(fused, kw * channels, channels) / depth,
            skipped=np.where(copy, 1.0 - self._inside, self._skipped),
            copied=np.where(copy, copied, 0.0),
            traffic=self._traffic(values, blocks, down * across) / flop,
            input_in_l1=input_bytes / info.l1_bytes,
            weights_in_l2=weight_bytes / info.l2_bytes,
        )

    def _traffic(self, values: Values, blocks: Numbers, positions: Numbers) -> Numbers:
        """Bytes that the outer loops read repeatedly, if they do not fit half of L2."""
        g, cache = self.geometry, self.info.l2_bytes / 2
        types = self.arithmetic
        weights = g.groups * g.oc * self.reduction_channels * g.taps * types.weight_bytes
        inputs: Any = g.groups * g.ic * g.planes * g.size[0] * g.size[1] * types.data_bytes
        if self.reduction_channels < g.ic:
            inputs /= blocks  # each block of channels reads its own
        input_bytes = blocks * inputs * g.batch * (inputs > cache)
        weight_bytes = positions * weights * g.batch * g.out_planes * (weights > cache)
        return np.where(values["outermost"] == "channels", input_bytes, weight_bytes)

    @property
    def _skipped(self) -> float:
        """Fraction of all taps that fall into the padding."""
        return 1.0 - math.prod(
            (axis.inside_fraction for axis in self.geometry.plane), start=self._inside
        )

    @property
    def _inside(self) -> float:
        """Fraction of all taps that fall into the input along the outer axes."""
        return math.prod(axis.inside_fraction for axis in self.geometry.outer)

    def guessed_cost(self, values: Values) -> Numbers:
        """Estimated time over the time of all products at the CPU's full rate, shape (n,).

        The inner loop overlaps with loads of data that L2 does not hold, so the longer of the two
        counts. A tenth of the loads' time prefers fewer loads if the inner loop takes longer.
        """
        e = self.estimate(values)
        work = e.waste * e.imbalance * (1.0 - e.skipped)
        loops = work * (self._issue(values, e) + self._overhead(e))
        dot = self.arithmetic.dot
        l3_cost = self.info.flop_per_byte(self.info.l3_bytes_per_cycle) * dot.depth / dot.cost
        memory = l3_cost * e.traffic
        copies = COPY_COST * l3_cost * e.copied
        copies += transpose_cost(
            self.geometry, self.info, self.reduction_channels, dot.depth / dot.cost
        )
        # With all weights in L2, a tile of input that stays in L1 is the better thing to keep.
        tie_break = np.where(values["outermost"] == "channels", 0.005, 0.0)
        return np.asarray(np.maximum(loops, memory) + 0.1 * memory + copies + tie_break)

    def _issue(self, values: Values, e: DirectEstimates) -> Numbers:
        """Time that the busiest unit takes for an instruction of the inner loop."""
        info, cost = self.info, self.arithmetic.dot.cost
        positions = (values["tile_rows"] * values["tile_columns"]).astype(np.float64)
        # Each weight is used for all positions of a tile, and each broadcast for all its vectors.
        loads = 1.0 / (info.loads_per_cycle * positions)
        broadcasts = 1.0 / (info.broadcasts_per_cycle * values["tile_vectors"])
        reloads = self._spilled(values) / info.loads_per_cycle
        ports = info.fma_per_cycle * (loads + broadcasts + reloads) / cost
        waiting = info.sums_in_flight / e.accumulators / cost
        # Weights come from L2. If L1 cannot hold a block of inputs, it also comes from L2 again for
        # each tap.
        streaming = (e.weight_bytes > info.l1_bytes / 2) * info.l2_vector_fmas / positions / cost
        block = np.minimum(values["channel_block"], self.reduction_channels)
        in_l1 = e.input_bytes * block / self.reduction_channels <= info.l1_bytes
        has_taps = self.geometry.taps > 1
        again = (~in_l1 & has_taps) / (self.geometry.lanes * values["tile_vectors"])
        busiest = np.maximum(np.maximum(1.0, waiting), np.maximum(ports, streaming))
        return np.asarray(busiest + 0.01 * e.loads_per_fma + again)

    def _spilled(self, values: Values) -> Numbers:
        """Average number of sums in memory that a multiply-add of the inner loop accesses.

        A multiply-add of x86 overwrites an operand. LLVM overwrites a broadcast that is used once.
        If
        it has also unrolled the loop over channels twice, every sum needs two registers.
        """
        info, several = self.info, self.arithmetic.dot.depth > 1
        positions = (values["tile_rows"] * values["tile_columns"]).astype(np.float64)
        if (
            several
            or not info.memory_operands
            or broadcast_is_operand(info)
            or self.reduction_channels == 1
        ):
            return np.zeros_like(positions)
        missing = np.maximum(0.0, 2.0 * positions + 1.0 - info.vector_registers)
        return np.asarray(np.where(values["tile_vectors"] == 1, missing / (2.0 * positions), 0.0))

    def _overhead(self, e: DirectEstimates) -> Numbers:
        """Time outside the inner loop per instruction of it: at its end and at a tile's end."""
        sums, dot = e.accumulators, self.arithmetic.dot
        reduction_channels = self.geometry.taps * self.reduction_channels / dot.depth
        products = np.maximum(1.0, reduction_channels * (1.0 - e.skipped))
        # The next tile starts while sums are stored, as far as instructions in flight reach. Only
        # the stores of sums beyond half of the registers cost time.
        exposed = np.maximum(0.0, sums - self.info.vector_registers / 2)
        ends = TILE_CYCLES + STORE_CYCLES * exposed
        cycles = LOOP_CYCLES / (e.run * sums) + ends / (products * sums) + 0.3 / sums
        return np.asarray(self.info.fma_per_cycle * cycles / dot.cost)
