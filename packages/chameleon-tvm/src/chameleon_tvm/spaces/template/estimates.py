"""The use of estimates in a register-tiled template: its space and first guesses."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar

import attrs
import numpy as np
from chameleon_core.space import Constraint, DesignSpace, FeatureBlock, Knob, Values
from numpy.typing import NDArray

from chameleon_tvm.device.targets import TargetInfo
from chameleon_tvm.spaces.template.geometry import Geometry

AVX512_BYTES = 64
FLOAT_BYTES = 4

Numbers = NDArray[np.float64]

COPIED = 1.5
"""A byte that is read and written in a loop of its own takes so much longer than one from L3."""
TILE_CYCLES = 12.0
"""Cycles of starting a tile that nothing hides: indices, and a branch that is mispredicted."""
STORE_CYCLES = 8.0
"""Cycles until a sum that is waited for is stored and cleared for the next tile."""
LOOP_CYCLES = 4.0
"""Cycles of leaving the innermost loop and entering it for the next tap."""
TRANSPOSE_CYCLES = 1.2
"""Cycles of moving an element between channels first and vectors of channels."""
GUESSES = 16
"""First guesses of a template."""
_RANKED = 60_000
"""Configurations that are estimated and ranked, which takes a fraction of a second."""
GUESS_ERROR = 0.02
"""Relative error that guesses of good tiles have."""


def broadcast_is_operand(info: TargetInfo) -> bool:
    """Whether a multiply-add can broadcast an element itself, as with AVX-512 alone."""
    return info.vector_bytes == AVX512_BYTES


def transpose_cost(geometry: Geometry, info: TargetInfo, reduced: int, rate: float = 1.0) -> float:
    """Guessed time of moving each element of images with channels first by itself.

    Args:
        geometry: of the convolution that moves them.
        info: the target.
        reduced: input channels that an output adds up.
        rate: products in the time of a multiply-add.

    Returns:
        Over that of all products at full rate.
    """
    g = geometry
    read = g.groups * g.ic * g.planes * math.prod(g.size) * (g.layout == "NCHW")
    outputs = g.groups * g.oc * g.out_planes * math.prod(g.out)
    moved = read + outputs * (g.out_layout == "NCHW")
    full = g.lanes * info.fma_per_cycle * rate
    return TRANSPOSE_CYCLES * moved * full / (outputs * reduced * g.taps)


class Tiling(ABC):
    """The design space of a template whose configurations are known without building them.

    Attributes:
        info: the target.
        knobs: in order.
        tile_knobs: names of knobs; configurations that differ in none of these run the same inner
            loops.
        estimates: an attrs class of what is known of n configurations, fields of shape (n,). Each
            is an analytical feature.
        magnitudes: fields whose feature is a logarithm.
        groups: which loop or buffer each feature tells of.
        prefix: of the names of features and groups, if another template has the same.
        least: added to magnitudes that may be zero.
    """

    info: TargetInfo
    knobs: tuple[Knob, ...]
    tile_knobs: ClassVar[tuple[str, ...]] = ()
    estimates: ClassVar[Any]
    magnitudes: ClassVar[frozenset[str]]
    groups: ClassVar[tuple[tuple[str, tuple[str, ...]], ...]]
    prefix: ClassVar[str] = ""
    least: ClassVar[float] = 0.0

    @abstractmethod
    def constraints(self) -> tuple[Constraint, ...]:
        """The constraints of a legal configuration."""

    @abstractmethod
    def estimate(self, values: Values) -> Any:
        """Estimates for n configurations, without building them: an instance of ``estimates``."""

    @abstractmethod
    def guessed_cost(self, values: Values) -> Numbers:
        """A rough relative cost for ordering first guesses, lower is better; shape (n,)."""

    def first_guesses(self, space: DesignSpace) -> NDArray[np.int32]:
        """Configurations of the space, which has no guesses yet, to be measured first."""
        return first_guesses(space, self.guessed_cost, self.tile_knobs)

    def space(self) -> DesignSpace:
        """The design space with its first guesses."""
        constraints = self.constraints()
        bare = DesignSpace(self.knobs, constraints=constraints)
        return DesignSpace(
            self.knobs,
            constraints=constraints,
            features=FeatureBlock(
                names=self._named(field.name for field in attrs.fields(self.estimates)),
                compute=self.features,
                groups=tuple(
                    (f"{self.prefix} {name}".strip(), self._named(columns))
                    for name, columns in self.groups
                ),
            ),
            guessed_cost=self.guessed_cost,
            first_guesses=self.first_guesses(bare),
        )

    def _named(self, columns: Iterable[str]) -> tuple[str, ...]:
        return tuple(f"{self.prefix}_{column}".strip("_") for column in columns)

    def features(self, values: Values) -> Numbers:
        """Analytical features of n configurations, shape (n, fields of the estimates)."""
        known = self.estimate(values)
        columns = []
        for field in attrs.fields(self.estimates):
            column = getattr(known, field.name)
            magnitude = field.name in self.magnitudes
            columns.append(np.log2(self.least + column) if magnitude else column)
        return np.stack(np.broadcast_arrays(*columns), axis=1)

    def of_registers(
        self,
        enough: float,
        tile: str = "the tile",
        field: str = "registers",
        sums: str = "accumulators",
    ) -> tuple[Constraint, Constraint]:
        """The registers hold a tile, and its sums hide the latency of a multiply-add.

        Args:
            enough: sums that hide it.
            tile: in words.
            field: the field of the estimates that is the registers of the inner loop.
            sums: that which is those of sums.
        """
        most = self.info.vector_registers
        return (
            Constraint(
                reason=f"{tile} needs more than {most} vector registers",
                holds=lambda v: getattr(self.estimate(v), field) <= most,
            ),
            Constraint(
                reason=f"{tile} has too few sums to hide the latency of a multiply-add",
                holds=lambda v: getattr(self.estimate(v), sums) >= enough,
            ),
        )

    def imbalance(self, tasks: Numbers) -> Numbers:
        """Time of the busiest core over that of a fair share of parallel pieces of work."""
        return np.ceil(tasks / self.info.cores) * self.info.cores / tasks


def spread(space: DesignSpace, count: int) -> NDArray[np.int32]:
    """About ``count`` index vectors spread over a whole space, legal or not; all of a smaller one.

    Every so many-th in lexicographic order. The stride shares no factor with the number of choices
    of any knob. A
        stride that does meets some choices of that knob only. A last knob with three choices always
        has the same one at a stride of three.
    """
    step = max(1, space.size // count)
    while math.gcd(step, space.size) > 1:
        step += 1
    return space.from_keys(np.arange(0, space.size, step))


def first_guesses(
    space: DesignSpace,
    guessed_cost: Callable[[Values], Numbers],
    tile_knobs: Sequence[str],
    count: int = GUESSES,
) -> NDArray[np.int32]:
    """The cheapest configurations by estimate, the first ones of different tiles.

    A further variant of a tile that is already among them comes later, by about as much as
    estimates are wrong. Variants that differ only in how far the loop is unrolled do not.
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
