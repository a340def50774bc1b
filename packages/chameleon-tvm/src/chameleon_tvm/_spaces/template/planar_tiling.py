"""Knobs, constraints, features and first guesses of planar convolutions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

import attrs
import numpy as np
from chameleon_core.plugin_api import Choice, Constraint, Factorization, Values

from chameleon_tvm._device.targets import TargetInfo
from chameleon_tvm._spaces.template.direct_tiling import MOST_ROWS, tile_sizes
from chameleon_tvm._spaces.template.estimates import (
    COPY_COST,
    FLOAT_BYTES,
    STORE_CYCLES,
    TILE_CYCLES,
    Numbers,
    Tiling,
    as_floats,
    broadcast_is_operand,
)
from chameleon_tvm._spaces.template.geometry import Geometry
from chameleon_tvm._spaces.template.options import ALGORITHM

PLANAR = "planar"
"""Name of the planar algorithm."""

MAX_WASTE = 1.34
"""Largest number of computed outputs over needed outputs. Tiles that waste more are not offered."""

_CHANNELS = (1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28)
_VECTORS = (1, 2, 3, 4, 6, 7, 8)
_BANDS = (4, 8, 16, 32, 64)
"""Numbers of vectors of a band's pixels to choose from, if all pixels are a single axis."""


@attrs.frozen(kw_only=True)
class PlanarTile:
    """A decoded configuration of a planar convolution.

    Attributes:
        rows: Output rows of a tile.
        vectors: Vectors of output columns of a tile.
        channels: Output channels of a tile.
        band_rows: Output rows of a band, the work of a parallel task.
        band_columns: Output columns of a band: all, or in a 1x1 convolution a part of them.
        copy: Whether a band's input is copied and padded, instead of read in place.
    """

    rows: int
    vectors: int
    channels: int
    band_rows: int
    band_columns: int
    copy: bool

    @classmethod
    def of(cls, values: Mapping[str, Any], geometry: Geometry) -> Self:
        """The tile of a decoded configuration."""
        rows, columns = band_size(geometry, values["planar_band"])
        return cls(
            rows=values["planar_rows"],
            vectors=values["planar_vectors"],
            channels=values["planar_channels"],
            band_rows=int(rows),
            band_columns=int(columns),
            copy=values["planar_input"] == "copy",
        )


def _pointwise(geometry: Geometry) -> bool:
    g = geometry
    alone = all(axis.independent and axis.stride == 1 for axis in g.outer)
    return alone and g.kernel == (1, 1) and g.stride == (1, 1) and g.size == g.out and g.taps == 1


def _single_row(geometry: Geometry) -> bool:
    """Whether all pixels of an image form one row, as in a 1x1 convolution."""
    return _pointwise(geometry) and geometry.out[0] == 1


def planar_geometry(geometry: Geometry) -> Geometry | None:
    """Convert the sizes of a convolution for planar loops; None if these do not support it.

    All pixels of a 1x1 convolution become one row. Supported are NCHW with at least two pixels per
    row, and images with more axes than height and width only for 1x1 convolutions.
    """
    g = geometry
    if {g.layout, g.out_layout} != {"NCHW"}:
        return None
    if _pointwise(g):
        pixels = g.planes * math.prod(g.size)
        g = attrs.evolve(g, size=(1, pixels), out=(1, pixels), outer=())
    if g.outer:
        return None
    lanes = min(g.lanes, 1 << (g.out[1].bit_length() - 1))
    return None if lanes == 1 else attrs.evolve(g, lanes=lanes)


def supports_in_place(geometry: Geometry) -> bool:
    """Whether loops over channels-first images can read the input without a padded copy."""
    return not any(geometry.padded) and geometry.stride[1] == 1


def input_rows(geometry: Geometry, rows: int) -> int:
    """Number of input rows that ``rows`` output rows read."""
    g = geometry
    return (rows - 1) * g.stride[0] + (g.kernel[0] - 1) * g.dilation[0] + 1


def band_size(geometry: Geometry, band: Any) -> tuple[Any, Any]:
    """Output rows and columns of a band, the part of an image that one parallel task computes."""
    g = geometry
    if _single_row(g):
        return 1, np.minimum(band * g.lanes, g.out[1])
    return band, g.out[1]


@attrs.frozen(kw_only=True)
class PlanarEstimates:
    """Estimates for n configurations of a planar convolution, without building kernels.

    Every field has shape (n,). A band is the part of the output that one parallel task computes.

    Attributes:
        accumulators: Vector registers that hold sums.
        registers: Vector registers that the inner loop needs.
        loads_per_fma: Vector and broadcast loads per multiply-add of the inner loop.
        waste: Number of computed outputs over the number of needed outputs.
        tasks: Number of iterations of the parallel loop, over images, groups and bands.
        imbalance: Time of the busiest core over its time if work were divided evenly.
        band_bytes: Bytes of the inputs that a band reads.
        weight_bytes: Bytes of the weights that a tile reads.
        copied: Bytes written while copying inputs, per floating-point operation.
        again: Number of times that a band's input is read.
    """

    accumulators: Numbers
    registers: Numbers
    loads_per_fma: Numbers
    waste: Numbers
    tasks: Numbers
    imbalance: Numbers
    band_bytes: Numbers
    weight_bytes: Numbers
    copied: Numbers
    again: Numbers


class PlanarTiling(Tiling):
    """The design space of a convolution with the sizes of ``planar_geometry``."""

    tile_knobs = ("planar_rows", "planar_vectors", "planar_channels", "planar_input")
    estimates = PlanarEstimates
    log_fields = frozenset({"tasks", "band_bytes", "weight_bytes", "again"})
    groups = (
        ("tile", ("accumulators", "registers", "loads_per_fma", "waste")),
        ("parallel loop", ("tasks", "imbalance")),
        ("input", ("band_bytes", "copied", "again")),
        ("weights", ("weight_bytes",)),
    )
    prefix = PLANAR

    def __init__(self, geometry: Geometry, info: TargetInfo) -> None:
        self.geometry, self.info = geometry, info
        g = geometry
        self._vector_lanes = info.lanes("float32")
        wide = g.out[1] // g.lanes
        if _single_row(g):
            bands = (*(band for band in _BANDS if band < wide), -(-g.out[1] // g.lanes))
        else:
            bands = Factorization.divisors(g.out[0])
        channels = (*(c for c in _CHANNELS if c < g.oc), *(g.oc,) * (g.oc <= _CHANNELS[-1]))
        inputs = ("copy", "in_place") if supports_in_place(g) else ("copy",)
        self.knobs = (
            Choice(name=ALGORITHM, options=(PLANAR,)),
            Choice(name="planar_rows", options=tile_sizes(g.out[0], MOST_ROWS)),
            Choice(name="planar_vectors", options=tuple(v for v in _VECTORS if v <= wide)),
            Choice(name="planar_channels", options=channels),
            Choice(name="planar_band", options=bands),
            Choice(name="planar_input", options=inputs),
        )

    def constraints(self) -> tuple[Constraint, ...]:
        g = self.geometry
        # Rows of a little more than a vector take two of them.
        most = MAX_WASTE * -(-g.out[1] // g.lanes) * g.lanes / g.out[1]
        return (
            self.register_constraints(1, "the planar tile")[0],
            Constraint(
                reason="a planar tile has more rows or columns than its band",
                holds=lambda v: (
                    (v["planar_rows"] <= band_size(g, v["planar_band"])[0])
                    & (v["planar_vectors"] * g.lanes <= band_size(g, v["planar_band"])[1])
                ),
            ),
            Constraint(
                reason="planar tiles overlap too much",
                holds=lambda v: self.estimate(v).waste <= most,
            ),
        )

    def estimate(self, values: Values) -> PlanarEstimates:
        g, info = self.geometry, self.info
        rows, vectors, channels = as_floats(values, *self.tile_knobs[:3])
        columns = vectors * g.lanes
        down, across = band_size(g, values["planar_band"].astype(np.float64))
        copy = values["planar_input"] == "copy"
        positions = rows * vectors
        blocks = np.ceil(g.oc / channels)
        bands = np.ceil(g.out[0] / down) * np.ceil(g.out[1] / across)
        tasks = g.batch * g.groups * bands
        computed = np.ceil(down / rows) * rows * np.ceil(across / columns) * columns
        needed = g.out[0] * g.out[1]
        flop = 2.0 * g.batch * g.groups * needed * g.oc * g.ic * g.taps
        staged = across * g.stride[1] + (g.kernel[1] - 1) * g.dilation[1]
        band_bytes = g.ic * input_rows(g, down) * staged * FLOAT_BYTES
        return PlanarEstimates(
            accumulators=positions * channels,
            registers=positions * channels
            + np.where(channels > 1, positions, 0.0)
            + ((positions > 1) | (not broadcast_is_operand(info))),
            loads_per_fma=(positions + channels) / (positions * channels),
            waste=computed * bands * blocks * channels / (needed * g.oc),
            tasks=tasks,
            imbalance=self.imbalance(tasks),
            band_bytes=band_bytes,
            weight_bytes=g.ic * g.taps * channels * FLOAT_BYTES,
            copied=np.where(copy, tasks * band_bytes, 0.0) / flop,
            again=blocks + 0.0 * rows,
        )

    def guessed_cost(self, values: Values) -> Numbers:
        """Estimated time over the time of all products at the CPU's full rate, shape (n,)."""
        g, info, e = self.geometry, self.info, self.estimate(values)
        rows, vectors, channels = as_floats(values, *self.tile_knobs[:3])
        positions = rows * vectors
        # A vector that begins within a cache line is two loads.
        crossing = 2.0 if g.kernel[1] > 1 and g.lanes * FLOAT_BYTES >= 64 else 1.0  # noqa: PLR2004
        loads = crossing / (info.loads_per_cycle * channels)
        broadcasts = 1.0 / (info.broadcasts_per_cycle * positions)
        ports = info.fma_per_cycle * (loads + broadcasts)
        waiting = info.sums_in_flight / e.accumulators
        from_l2 = (e.band_bytes > info.l1_bytes / 2) * info.l2_vector_fmas / channels
        issue = np.maximum(np.maximum(1.0, waiting), np.maximum(ports, from_l2))
        exposed = np.maximum(0.0, e.accumulators - info.vector_registers / 2)
        products = g.ic * g.taps * e.accumulators
        cycles = (TILE_CYCLES + STORE_CYCLES * exposed) / products + 0.3 / e.accumulators
        loops = e.waste * e.imbalance * (issue + info.fma_per_cycle * cycles)
        loops = loops * self._vector_lanes / g.lanes
        # A band that L2 does not hold is read from L3 for each block of channels.
        far = info.flop_per_byte(info.l3_bytes_per_cycle)
        flop_per_band = 2.0 * g.ic * g.taps * g.oc
        spilled = (e.band_bytes > info.l2_bytes / 2) * (e.again - 1.0)
        pixel_bytes = g.ic * FLOAT_BYTES / flop_per_band
        reads_rows_apart = (values["planar_input"] == "in_place") & (g.ic > 1)
        strided = np.where(reads_rows_apart, e.again - 1.0, 0.0) * pixel_bytes
        return np.asarray(
            loops + far * (0.5 * COPY_COST * e.copied + spilled * pixel_bytes + 0.25 * strided)
        )
