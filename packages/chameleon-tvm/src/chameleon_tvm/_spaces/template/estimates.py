"""The base class of templates' design spaces, in which estimates choose first guesses."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import attrs
import numpy as np
from chameleon_core.plugin_api import Constraint, DesignSpace, Knob, Values
from numpy.typing import NDArray

from chameleon_tvm._device.targets import TargetInfo
from chameleon_tvm._spaces.template.geometry import Geometry
from chameleon_tvm._spaces.template.options import ALGORITHM

AVX512_BYTES = 64
FLOAT_BYTES = 4

Numbers = NDArray[np.float64]

COPY_COST = 1.5
"""Time of copying a byte in a separate loop (reading and writing it), over the time of reading it
from L3."""
TILE_CYCLES = 12.0
"""Cycles for starting a tile, which nothing hides: indices, and a mispredicted branch."""
STORE_CYCLES = 8.0
"""Cycles until a sum is stored and cleared for the next tile, if the tile waits for this."""
LOOP_CYCLES = 4.0
"""Cycles for leaving the innermost loop and entering it for the next tap."""
TRANSPOSE_CYCLES = 1.2
"""Cycles for moving an element between a channels-first layout and vectors of channels."""
GUESSES = 16
"""Number of first guesses of a template."""
_MAX_RANKED = 60_000
"""Number of configurations that are estimated and ranked, which takes a fraction of a second."""
GUESS_ERROR = 0.02
"""Relative error of the estimates for good tiles."""


def as_floats(values: Values, *names: str) -> list[Numbers]:
    """The values of several knobs as floating-point numbers."""
    return [values[name].astype(np.float64) for name in names]


def broadcast_is_operand(info: TargetInfo) -> bool:
    """Whether a multiply-add can broadcast a memory operand; only AVX-512 can."""
    return info.vector_bytes == AVX512_BYTES


def transpose_cost(
    geometry: Geometry, info: TargetInfo, reduction_channels: int, rate: float = 1.0
) -> float:
    """The time of a kernel's layout transposes over the time of its products at the full rate.

    ``rate`` is the number of products that a lane computes in the time of a float32 multiply-add.
    """
    g = geometry
    read = g.groups * g.ic * g.planes * math.prod(g.size) * (g.layout == "NCHW")
    outputs = g.groups * g.oc * g.out_planes * math.prod(g.out)
    moved = read + outputs * (g.out_layout == "NCHW")
    full = g.lanes * info.fma_per_cycle * rate
    return TRANSPOSE_CYCLES * moved * full / (outputs * reduction_channels * g.taps)


class Tiling(ABC):
    """The design space of a template, with estimates that need no compiled kernel.

    Attributes:
        tile_knobs: Knobs with equal values in configurations that run the same inner loops.
        estimates: An attrs class of estimates for n configurations, with fields of shape (n,). Each
            field is a feature.
        log_fields: Names of the fields whose feature is a logarithm.
        groups: For each loop or buffer, the features that describe it.
        prefix: Prefix of the names of features and groups, to tell templates apart.
        log_offset: A number added before the logarithm, for fields that may be zero.
    """

    info: TargetInfo
    knobs: tuple[Knob, ...]
    tile_knobs: ClassVar[tuple[str, ...]] = ()
    estimates: ClassVar[Any]
    log_fields: ClassVar[frozenset[str]]
    groups: ClassVar[tuple[tuple[str, tuple[str, ...]], ...]]
    prefix: ClassVar[str] = ""
    log_offset: ClassVar[float] = 0.0

    @abstractmethod
    def constraints(self) -> tuple[Constraint, ...]:
        """The constraints that legal configurations satisfy."""

    @abstractmethod
    def estimate(self, values: Values) -> Any:
        """Estimates for n configurations without building kernels, as an ``estimates`` object."""

    @abstractmethod
    def guessed_cost(self, values: Values) -> Numbers:
        """A rough relative cost of n configurations to order first guesses; lower is better."""

    def first_guesses(self, space: DesignSpace) -> NDArray[np.int32]:
        """Choose the configurations of a space that are measured first, by their estimates."""
        return first_guesses(space, self.guessed_cost, self.tile_knobs)

    def space(self) -> DesignSpace:
        """The design space with its first guesses."""
        constraints = self.constraints()
        bare = DesignSpace(self.knobs, constraints=constraints)
        return DesignSpace(
            self.knobs,
            constraints=constraints,
            features=DesignSpace.FeatureBlock(
                names=self._prefixed(field.name for field in attrs.fields(self.estimates)),
                compute=self.features,
                groups=tuple(
                    (f"{self.prefix} {name}".strip(), self._prefixed(columns))
                    for name, columns in self.groups
                ),
            ),
            guessed_cost=self.guessed_cost,
            first_guesses=self.first_guesses(bare),
        )

    def _prefixed(self, columns: Iterable[str]) -> tuple[str, ...]:
        return tuple(f"{self.prefix}_{column}".strip("_") for column in columns)

    def features(self, values: Values) -> Numbers:
        """Features of n configurations for cost models, shape (n, fields of the estimates)."""
        columns = [
            np.log2(self.log_offset + column) if name in self.log_fields else column
            for name, column in attrs.asdict(self.estimate(values), recurse=False).items()
        ]
        return np.stack(np.broadcast_arrays(*columns), axis=1)

    def register_constraints(
        self,
        least_sums: float,
        tile: str = "the tile",
        field: str = "registers",
        sums: str = "accumulators",
    ) -> tuple[Constraint, Constraint]:
        """Constraints: a tile fits the registers, and its sums hide a multiply-add's latency."""
        most = self.info.vector_registers
        return (
            Constraint(
                reason=f"{tile} needs more than {most} vector registers",
                holds=lambda v: getattr(self.estimate(v), field) <= most,
            ),
            Constraint(
                reason=f"{tile} has too few sums to hide the latency of a multiply-add",
                holds=lambda v: getattr(self.estimate(v), sums) >= least_sums,
            ),
        )

    def imbalance(self, tasks: Numbers) -> Numbers:
        """Time of the busiest core over its time if work were divided evenly, shape (n,)."""
        return np.ceil(tasks / self.info.cores) * self.info.cores / tasks


def by_algorithm(values: Values, numbers: Mapping[str, int]) -> Numbers:
    """The number of each configuration's algorithm, shape (n,); arbitrary for other algorithms."""
    each = [float(number) for number in numbers.values()]
    return np.select([values[ALGORITHM] == name for name in numbers], each, each[0])


def evenly_spaced(space: DesignSpace, count: int) -> NDArray[np.int32]:
    """About ``count`` configurations, legal or not, at equal distances in lexicographic order.

    The distance shares no factor with any knob's number of options. Otherwise some options of a
    knob would never occur.
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
    """The configurations with the lowest estimated cost, those with different tiles first.

    A second configuration with the same tile comes later by about the error of the estimates. The
    best configuration of each algorithm is among them, since another one may round too much.
    """
    configs = evenly_spaced(space, _MAX_RANKED)
    configs = configs[space.legal(configs)]
    cost = guessed_cost(space.values(configs))
    order = np.argsort(cost, kind="stable")
    variant_knobs = [at for name, at in space.index.items() if name != "unroll"]
    _, first = np.unique(configs[order][:, variant_knobs], axis=0, return_index=True)
    order = order[np.sort(first)]
    tile_columns = [space.index[name] for name in tile_knobs]
    _, tile = np.unique(configs[order][:, tile_columns], axis=0, return_inverse=True)
    tile = tile.reshape(-1)
    # The number of cheaper variants of the same tile.
    grouped = np.argsort(tile, kind="stable")
    starts = np.searchsorted(tile[grouped], tile[grouped])
    cheaper = np.empty(len(tile))
    cheaper[grouped] = np.arange(len(tile)) - starts
    penalized = cost[order] * (1.0 + GUESS_ERROR * cheaper)
    ranked = configs[order[np.argsort(penalized, kind="stable")]]
    algorithms = ranked[:, space.index[ALGORITHM]] if ALGORITHM in space.index else ranked[:1, 0]
    _, best = np.unique(algorithms, return_index=True)
    return ranked[[*range(min(count, len(ranked))), *sorted(best[best >= count])]]
