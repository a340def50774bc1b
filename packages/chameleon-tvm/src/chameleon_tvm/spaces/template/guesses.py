"""First guesses of register-tiled templates: a rough model of cycles that ranks tiles."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import attrs
import numpy as np
from chameleon_core.space import DesignSpace, Values
from numpy.typing import NDArray

from chameleon_tvm.device.targets import TargetInfo
from chameleon_tvm.spaces.template.arithmetic import FLOAT32, Arithmetic
from chameleon_tvm.spaces.template.estimates import Estimates, Numbers, broadcast_is_operand
from chameleon_tvm.spaces.template.geometry import Geometry

COPIED = 1.5
"""A byte that is read and written in a loop of its own takes so much longer than one from L3."""
TILE_CYCLES = 12.0
"""Cycles of starting a tile that nothing hides: indices, and a branch that is mispredicted."""
STORE_CYCLES = 8.0
"""Cycles until a sum that is waited for is stored and cleared for the next tile."""
LOOP_CYCLES = 4.0
"""Cycles of leaving the innermost loop and entering it for the next tap."""
TILE_KNOBS = ("tile_rows", "tile_columns", "tile_vectors", "input")
"""Configurations that differ in none of these run the same inner loops."""
_RANKED = 60_000
"""Configurations that are estimated and ranked, which takes a fraction of a second."""
GUESS_ERROR = 0.02
"""Relative error that guesses of good tiles have."""


@attrs.frozen(kw_only=True)
class CostGuess:
    """Guesses the time of configurations, in that of an inner loop's instruction at full rate.

    Attributes:
        geometry: the convolution.
        info: the target.
        reduced: input channels that an output adds up.
        arithmetic: what is multiplied with.
    """

    geometry: Geometry
    info: TargetInfo
    reduced: int
    arithmetic: Arithmetic = FLOAT32

    def cost(self, values: Values, estimates: Estimates) -> Numbers:
        """Guessed time over that of all products at full rate, lower is better; shape (n,).

        Work that is done in vain multiplies the time of the inner loop, during which most of
        what L2 does not hold arrives; copies add to it.
        """
        e = estimates
        work = e.waste * e.imbalance * (1.0 - e.skipped)
        loops = work * (self._issue(values, e) + self._overhead(e))
        dot = self.arithmetic.dot
        far = self.info.flop_per_byte(self.info.l3_bytes_per_cycle) * dot.depth / dot.cost
        memory = far * e.traffic
        copies = COPIED * far * e.copied
        # With all weights in L2, a tile of input that stays in L1 is the better thing to keep.
        habit = np.where(values["outermost"] == "channels", 0.005, 0.0)
        cost: Numbers = np.maximum(loops, memory) + 0.1 * memory + copies + habit
        return cost

    def _issue(self, values: Values, e: Estimates) -> Numbers:
        """Time that the busiest of the units takes for an instruction of the inner loop."""
        info, cost = self.info, self.arithmetic.dot.cost
        positions = (values["tile_rows"] * values["tile_columns"]).astype(np.float64)
        # Each weight serves all positions, each broadcast all vectors of a tile.
        loads = 1.0 / (info.loads_per_cycle * positions)
        broadcasts = 1.0 / (info.broadcasts_per_cycle * values["tile_vectors"])
        reloads = self._spilled(values) / info.loads_per_cycle
        ports = info.fma_per_cycle * (loads + broadcasts + reloads) / cost
        waiting = info.sums_in_flight / e.accumulators / cost
        # From L2 come weights, and for each tap again a block of inputs that L1 does not hold.
        streaming = (e.weight_bytes > info.l1_bytes / 2) * info.l2_vector_fmas / positions / cost
        block = np.minimum(values["channel_block"], self.reduced)
        held = e.input_bytes * block / self.reduced <= info.l1_bytes
        reused = self.geometry.taps > 1
        again = (~held & reused) / (self.geometry.lanes * values["tile_vectors"])
        busiest = np.maximum(np.maximum(1.0, waiting), np.maximum(ports, streaming))
        issue: Numbers = busiest + 0.01 * e.loads_per_fma + again
        return issue

    def _spilled(self, values: Values) -> Numbers:
        """Sums that a multiply-add of the inner loop finds in memory, on average.

        A multiply-add of x86 overwrites one of its operands. Where a broadcast has a register of
        its own and is used once, LLVM lets it be that one: once it has unrolled the loop over
        channels twice, every sum has two registers. Those that find none are stored and loaded.
        Products of several channels are instructions that overwrite their sums alone.
        """
        info, several = self.info, self.arithmetic.dot.depth > 1
        positions = (values["tile_rows"] * values["tile_columns"]).astype(np.float64)
        if several or not info.memory_operands or broadcast_is_operand(info) or self.reduced == 1:
            return np.zeros_like(positions)
        missing = np.maximum(0.0, 2.0 * positions + 1.0 - info.vector_registers)
        spilled: Numbers = np.where(values["tile_vectors"] == 1, missing / (2.0 * positions), 0.0)
        return spilled

    def _overhead(self, e: Estimates) -> Numbers:
        """Time per instruction of the inner loop around it: of its end and of a tile's."""
        sums, dot = e.accumulators, self.arithmetic.dot
        reduced = self.geometry.taps * self.reduced / dot.depth
        products = np.maximum(1.0, reduced * (1.0 - e.skipped))
        # The next tile starts while sums are stored, as far as instructions in flight reach;
        # those of more sums than half of the registers hold are waited for.
        exposed = np.maximum(0.0, sums - self.info.vector_registers / 2)
        ends = TILE_CYCLES + STORE_CYCLES * exposed
        cycles = LOOP_CYCLES / (e.run * sums) + ends / (products * sums) + 0.3 / sums
        overhead: Numbers = self.info.fma_per_cycle * cycles / dot.cost
        return overhead


def spread(space: DesignSpace, count: int) -> NDArray[np.int32]:
    """About ``count`` index vectors spread over a whole space, legal or not; all of a smaller one.

    Every so many-th in lexicographic order. The stride shares no factor with the number of choices
    of any knob: one that does meets some choices of that knob only, and those of the last knob with
    three choices are always the same at a stride of three.
    """
    step = max(1, space.size // count)
    while math.gcd(step, space.size) > 1:
        step += 1
    return space.from_keys(np.arange(0, space.size, step))


def first_guesses(
    space: DesignSpace,
    guessed_cost: Callable[[Values], Numbers],
    count: int = 16,
    tile_knobs: Sequence[str] = TILE_KNOBS,
) -> NDArray[np.int32]:
    """The cheapest configurations by estimate, the first ones of different tiles.

    A further variant of a tile that is already among them comes later, by about as much as
    estimates are wrong; variants that differ only in how far the loop is unrolled do not.
    """
    configs = spread(space, _RANKED)
    configs = configs[space.legal(configs)]
    cost = guessed_cost(space.values(configs))
    order = np.argsort(cost, kind="stable")
    variant = [at for name, at in space.index.items() if name != "unroll"]
    _, first = np.unique(configs[order][:, variant], axis=0, return_index=True)
    order = order[np.sort(first)]
    shape = [space.index[name] for name in tile_knobs]
    _, tile = np.unique(configs[order][:, shape], axis=0, return_inverse=True)
    tile = tile.reshape(-1)
    # How many cheaper variants of the same tile there are.
    grouped = np.argsort(tile, kind="stable")
    starts = np.searchsorted(tile[grouped], tile[grouped])
    earlier = np.empty(len(tile))
    earlier[grouped] = np.arange(len(tile)) - starts
    late = cost[order] * (1.0 + GUESS_ERROR * earlier)
    return configs[order[np.argsort(late, kind="stable")[:count]]]
