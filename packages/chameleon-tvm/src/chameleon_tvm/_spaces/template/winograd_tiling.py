"""Knobs, constraints, features and first guesses of Winograd's convolution."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from chameleon_core.plugin_api import Choice, Constraint, DesignSpace, Values
from numpy.typing import NDArray

from chameleon_tvm._device.targets import TargetInfo
from chameleon_tvm._spaces.template.estimates import (
    FLOAT_BYTES,
    GUESSES,
    Numbers,
    Tiling,
    as_floats,
    broadcast_is_operand,
    by_algorithm,
    transpose_cost,
)
from chameleon_tvm._spaces.template.geometry import Geometry
from chameleon_tvm._spaces.template.options import WINOGRAD_TILES
from chameleon_tvm._spaces.template.winograd_transforms import TAPS, transforms

ROWS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24)
VECTORS = (1, 2, 3, 4, 6)
STEPS = (1, 2, 3, 4, 6, 8)
MAX_WASTE = 1.34
"""Largest number of computed tiles over needed tiles. Blocks that waste more are not offered."""

INPUT_OPERATIONS = 5.0
"""Vector operations per point for transforming a vector of inputs, loads and stores included."""
OUTPUT_OPERATIONS = 4.0
"""Vector operations per point for transforming a vector of outputs, loads and stores included."""
STAGED_L3 = 1.25
"""Time for a byte of transformed inputs that all panels share, over the time for a byte that is
only read from L3. Such inputs are written first, and each panel reads them."""
STAGED_MEMORY = 3.0
"""Time for a byte of shared transformed inputs that do not fit L3, over the time for a byte that is
only read from memory. A store to memory reads its cache line first."""


@attrs.frozen(kw_only=True)
class WinogradTile:
    """A decoded configuration of Winograd's convolution.

    Attributes:
        out: Rows and columns of a tile of outputs, 2 or 4.
        rows: Tiles whose sums are in registers at once.
        vectors: Vectors of output channels whose sums are in registers at once.
        steps: Number of groups of ``rows`` tiles in a block, which use the same weights in L1.
        shared: Whether the inputs of all blocks are transformed first and weights are read once.
            Otherwise each block transforms its own inputs, which stay in L2.
        unroll: Input channels per iteration of the innermost loop.
    """

    out: int
    rows: int
    vectors: int
    steps: int
    shared: bool
    unroll: int = 1

    @property
    def block(self) -> int:
        """Number of tiles of a block."""
        return self.rows * self.steps


def tile_counts(geometry: Geometry, out: int) -> tuple[int, int, int]:
    """Number of images, of tiles of outputs down an image, and of tiles across it."""
    down, across = (math.ceil(extent / out) for extent in geometry.out)
    return geometry.batch, down, across


def supports_winograd(geometry: Geometry) -> bool:
    """Whether :class:`.WinogradConvolution` supports the convolution."""
    g = geometry
    return (
        g.kernel == (TAPS, TAPS)
        and g.stride == (1, 1)
        and g.dilation == (1, 1)
        and g.groups == 1
        and not g.outer
        and g.layout in {"NHWC", "NCHW"}
        and g.out_layout == "NHWC"
        and g.ic % g.lanes == 0
        and g.oc % g.lanes == 0
    )


def winograd_tile(values: Mapping[str, Any]) -> WinogradTile:
    """The tile of a decoded configuration."""
    return WinogradTile(
        out=WINOGRAD_TILES[values["algorithm"]],
        rows=values["winograd_rows"],
        vectors=values["winograd_vectors"],
        steps=values["winograd_steps"],
        shared=values["winograd_inputs"] == "shared",
        unroll=values["winograd_unroll"],
    )


@attrs.frozen(kw_only=True)
class WinogradEstimates:
    """Estimates for n configurations of Winograd's convolution, without building kernels.

    Every field has shape (n,).

    Attributes:
        accumulators: Vector registers that hold sums.
        registers: Vector registers that the inner loop needs.
        loads_per_fma: Vector and broadcast loads per multiply-add of the inner loop.
        products: Number of multiplications over that of the direct convolution.
        waste: Number of computed tiles over the number of needed tiles.
        imbalance: Time of the busiest core over its time if work were divided evenly.
        weight_bytes: Bytes of all transformed weights.
        panel_bytes: Bytes of the transformed weights of a point and a block of channels (a panel).
        workspace_bytes: Bytes that a block of tiles holds between its steps.
        transforms: Vector operations of all transforms per multiply-add of the direct convolution.
        traffic: Bytes from beyond L2 per floating-point operation of the direct convolution.
        shared_bytes: Bytes of all transformed inputs if panels share them, else 0.
        staged: Bytes of shared transformed inputs that are written and read beyond L2, per
            floating-point operation of the direct convolution.
    """

    accumulators: Numbers
    registers: Numbers
    loads_per_fma: Numbers
    products: Numbers
    waste: Numbers
    imbalance: Numbers
    weight_bytes: Numbers
    panel_bytes: Numbers
    workspace_bytes: Numbers
    transforms: Numbers
    traffic: Numbers
    shared_bytes: Numbers
    staged: Numbers


class WinogradTiling(Tiling):
    """The design space of Winograd's convolution."""

    estimates = WinogradEstimates
    log_fields = frozenset({"weight_bytes", "panel_bytes", "workspace_bytes", "shared_bytes"})
    groups = (
        ("tile", ("accumulators", "registers", "loads_per_fma", "products", "waste")),
        ("parallel loop", ("imbalance",)),
        ("weights", ("weight_bytes", "panel_bytes")),
        ("workspace", ("workspace_bytes", "transforms", "traffic")),
        ("inputs", ("shared_bytes", "staged")),
    )
    prefix = "winograd"
    log_offset = 1.0

    def __init__(self, geometry: Geometry, info: TargetInfo, algorithms: Sequence[str]) -> None:
        self.geometry = geometry
        self.info = info
        self.algorithms = tuple(algorithms)
        available = geometry.oc // geometry.lanes
        most = max(math.prod(tile_counts(geometry, WINOGRAD_TILES[a])) for a in self.algorithms)
        self.knobs = (
            Choice(name="algorithm", options=self.algorithms),
            Choice(name="winograd_rows", options=tuple(r for r in ROWS if r <= most)),
            Choice(name="winograd_vectors", options=tuple(v for v in VECTORS if v <= available)),
            Choice(name="winograd_steps", options=tuple(s for s in STEPS if s <= most)),
            Choice(name="winograd_inputs", options=("private", "shared")),
            Choice(name="winograd_unroll", options=(1, 2, 4)),
        )

    def constraints(self) -> tuple[Constraint, ...]:
        most = max(
            math.prod(tile_counts(self.geometry, WINOGRAD_TILES[a])) for a in self.algorithms
        )
        return (
            *self.register_constraints(min(self.info.vector_registers // 4, most)),
            Constraint(
                reason="a block has more tiles than there are",
                holds=lambda v: v["winograd_rows"] * v["winograd_steps"] <= self._tiles(v),
            ),
            Constraint(
                reason="blocks of tiles overlap too much",
                holds=lambda v: self.estimate(v).waste <= MAX_WASTE,
            ),
        )

    def estimate(self, values: Values) -> WinogradEstimates:
        g, info = self.geometry, self.info
        rows, vectors = as_floats(values, "winograd_rows", "winograd_vectors")
        block = rows * values["winograd_steps"]
        shared = values["winograd_inputs"] == "shared"
        tiles, points = self._tiles(values), self._points(values)
        blocks, panels = np.ceil(tiles / block), np.ceil(g.oc / (vectors * g.lanes))
        waste = blocks * block / tiles
        direct = TAPS * TAPS * g.batch * g.out[0] * g.out[1]
        products = points * tiles * waste * panels * vectors * g.lanes / (direct * g.oc)
        tasks = np.where(shared, blocks * panels, blocks)
        transformed = np.where(shared, 1.0, waste)
        operations = INPUT_OPERATIONS * transformed / g.oc + OUTPUT_OPERATIONS * waste / g.ic
        # If L2 cannot hold them, every block of tiles reads the weights again, and every panel the
        # inputs.
        cache = info.l2_bytes / 2
        weights = points * g.ic * g.oc * FLOAT_BYTES
        inputs = points * tiles * g.ic * FLOAT_BYTES
        in_use = np.where(shared, weights / panels, weights)
        weight_traffic = weights * np.where(in_use > cache, blocks, weights > cache)
        input_traffic = inputs * (shared & (inputs > cache)) * panels
        flop = 2.0 * direct * g.ic * g.oc
        return WinogradEstimates(
            accumulators=rows * vectors,
            registers=rows * vectors + vectors + ((vectors > 1) | (not broadcast_is_operand(info))),
            loads_per_fma=(rows + vectors) / (rows * vectors),
            products=products,
            waste=waste,
            imbalance=self.imbalance(tasks),
            weight_bytes=weights,
            panel_bytes=g.ic * vectors * g.lanes * FLOAT_BYTES,
            workspace_bytes=points * block * (g.ic * ~shared + vectors * g.lanes) * FLOAT_BYTES,
            transforms=points * tiles * operations / direct,
            traffic=(weight_traffic + input_traffic) / flop,
            shared_bytes=inputs * shared,
            staged=inputs * (shared & (inputs > cache)) * (1.0 + panels) / flop,
        )

    def _tiles(self, values: Values) -> Numbers:
        """Number of tiles of outputs in all images; shape (n,)."""
        return by_algorithm(
            values,
            {a: math.prod(tile_counts(self.geometry, WINOGRAD_TILES[a])) for a in self.algorithms},
        )

    def _points(self, values: Values) -> Numbers:
        """Number of points of the transform; shape (n,)."""
        return by_algorithm(
            values, {a: transforms(WINOGRAD_TILES[a]).points for a in self.algorithms}
        )

    def guessed_cost(self, values: Values) -> Numbers:
        """Estimated time over that of the direct products at the CPU's full rate, shape (n,)."""
        e, info = self.estimate(values), self.info
        rows = values["winograd_rows"].astype(np.float64)
        broadcasts = 1.0 / (info.broadcasts_per_cycle * values["winograd_vectors"])
        ports = info.fma_per_cycle * (1.0 / (info.loads_per_cycle * rows) + broadcasts)
        # A panel that L1 holds comes from L2 once for all steps of a block.
        in_l1 = e.panel_bytes <= info.l1_bytes / 2
        again = np.where(in_l1, values["winograd_steps"], 1)
        waiting = info.sums_in_flight / e.accumulators
        issue = np.maximum(np.maximum(1.0, waiting), ports)
        issue = np.maximum(issue, info.l2_vector_fmas / (rows * again))
        issue = issue + 0.01 * e.loads_per_fma + 0.6 * info.fma_per_cycle / e.accumulators
        # L2 must also hold the weights that are read while a block of tiles is computed.
        occupied = e.workspace_bytes / info.l2_bytes
        spilled = 0.2 * np.maximum(0.0, occupied - 0.25) + 0.1 * np.maximum(0.0, occupied - 0.75)
        loops = e.imbalance * (e.products * issue + e.transforms)
        far = e.weight_bytes > info.l3_bytes / 2
        from_l3 = info.flop_per_byte(info.l3_bytes_per_cycle)
        from_memory = info.flop_per_byte(info.memory_bytes_per_cycle)
        memory = np.where(far, from_memory, from_l3) * e.traffic
        # The transformation of all inputs is a separate step, and no arithmetic hides its stores.
        far = e.shared_bytes > info.l3_bytes / 2
        staged = np.where(far, STAGED_MEMORY * from_memory, STAGED_L3 * from_l3) * e.staged
        cost: Numbers = np.maximum(loops, memory) * (1.0 + spilled) + 0.1 * memory + staged
        return cost + transpose_cost(self.geometry, info, self.geometry.ic)

    def first_guesses(self, space: DesignSpace) -> NDArray[np.int32]:
        """The configurations with the lowest estimates, of different tiles and every algorithm.

        The fastest algorithm depends on whether caches hold the weights when the layer runs, which
        no
        estimate knows. So each algorithm gets at least a quarter of the guesses.
        """
        configs = space.all_legal
        if configs is None:  # there are too many to list
            configs = space.sample(1 << 16, np.random.default_rng(0))
        order = np.argsort(self.guessed_cost(space.values(configs)), kind="stable")
        configs = configs[order]
        _, first = np.unique(configs[:, [0, 1, 2, 4]], axis=0, return_index=True)
        configs = configs[np.sort(first)]
        chosen = np.zeros(len(configs), np.bool_)
        for algorithm in range(len(self.algorithms)):
            chosen[np.flatnonzero(configs[:, 0] == algorithm)[: GUESSES // 4]] = True
        chosen[np.flatnonzero(~chosen)[: max(0, GUESSES - int(chosen.sum()))]] = True
        return configs[chosen]
