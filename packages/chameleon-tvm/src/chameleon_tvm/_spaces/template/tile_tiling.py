"""Convolutions by tile products (such as AMX), and the design space of their loops.

A tile of data holds the inputs of up to 16 neighbouring outputs of one image row, one tile row for
each output. The instruction loads tile rows directly from the padded input, one stride apart. So
the input is not rearranged into a matrix, as im2col would do (Chellapilla et al., "High Performance
Convolutional Neural Networks for Document Processing", 2006).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from chameleon_core.plugin_api import Choice, Constraint, Values
from numpy.typing import NDArray

from chameleon_tvm._arrays import contiguous
from chameleon_tvm._device.targets import TargetInfo
from chameleon_tvm._instructions.tiles import TileProduct
from chameleon_tvm._spaces.template.direct_tiling import tile_sizes
from chameleon_tvm._spaces.template.estimates import (
    COPY_COST,
    TILE_CYCLES,
    Numbers,
    Tiling,
    as_floats,
    by_algorithm,
)
from chameleon_tvm._spaces.template.geometry import Geometry, Tile, overlapping_blocks
from chameleon_tvm._spaces.template.options import ALGORITHM
from chameleon_tvm._types import FLOAT32

TILE_PRODUCTS = "tiles"
"""Name of the tile-product algorithm."""

BLOCK_KNOBS = ("product_pixels", "product_strips", "product_rows", "product_vectors")
"""Knobs of the inner loops. Configurations with equal values of these run the same inner loops."""

PRODUCTS_OF_PARTS = {(1, 1): 1, (2, 1): 2, (3, 1): 3, (2, 2): 3, (3, 3): 6}
"""Number of tile products for each piece of the reduction, by the numbers of parts of a number of
the data and of a weight."""

PANELS = "panels"
"""The order of blocks in which the outermost loop is over panels of positions. Inside a panel, it
is over output channels. So both weights and inputs are read from the second-level cache."""

COPY, IN_PLACE, BY_PANEL = "copy", "in_place", "by_panel"
"""The forms of the input that tile products read: a copy, the input itself, or copies of panels. A
panel is neighbouring pixels, which an iteration of the parallel loop copies and reads."""

PANELS_PER_CORE = 4
"""Least number of panels that each core copies, if L2 holds the weights."""

CACHE_SETS = 64
"""Number of sets of a first-level cache with 4 KiB in each way, as on all x86 CPUs."""

LEAST_JOIN_GAIN = 1.15
"""Least ratio of the numbers of tiles for which rows may be joined. Outputs between rows cost a
little, too."""

LOAD_SHARE = 0.5
"""Time of loading a tile over the time of a product."""
FACTORS = 2.0
"""Number of factors in registers: a tile of data and one of weights (``turns_of_products``)."""
FINISH_CYCLES = 8.0
"""Cycles for storing a vector of sums, applying the epilogue and storing the output."""


@attrs.frozen(kw_only=True)
class TileBlock(Tile):
    """A decoded configuration: the block of outputs in registers, and how it is computed.

    The vectors of a ``Tile`` are tiles of output channels here.

    Attributes:
        pixels: Outputs of a row in a tile of data.
        strips: Tiles of data beside each other in a row.
        joined: Whether all rows of the padded image form one row, so that a tile may hold outputs
            of several rows. Outputs between the rows are computed and not stored.
        panels: Whether positions are divided into panels, see ``panel_positions``.
    """

    pixels: int
    strips: int
    joined: bool = False
    panels: bool = False

    @classmethod
    def of(cls, values: Mapping[str, Any], channels: int) -> TileBlock:
        """The block of a decoded configuration."""
        pixels, strips = values["product_pixels"], values["product_strips"]
        return cls(
            pixels=pixels,
            strips=strips,
            rows=values["product_rows"],
            columns=pixels * strips,
            vectors=values["product_vectors"],
            channels=channels,
            copy=values["product_input"] != IN_PLACE,
            channels_outermost=values["product_outermost"] == "channels",
            joined=values.get("product_positions", "row") == "image",
            panels=values["product_outermost"] == PANELS,
        )

    @property
    def tiles(self) -> int:
        """Number of tiles of data."""
        return self.rows * self.strips


@attrs.frozen(kw_only=True)
class Runs:
    """The inputs that one output reads, divided into pieces for one tile product each.

    A run is a series of neighbouring elements in memory. Its pieces have equal sizes, because an
    infinity or NaN beyond the run would spoil the output even if its weight is zero.

    Attributes:
        rows: Rows of the filter.
        count: Runs in each row of the filter: one if its taps are neighbours, else one per tap.
        pieces: Pieces of a run.
        depth: Elements of a piece.
    """

    rows: int
    count: int
    pieces: int
    depth: int

    @classmethod
    def of(cls, geometry: Geometry, product: TileProduct, *, separate: bool = False) -> Runs:
        """The runs of a one-group convolution with the channels of ``best_padded_channels``."""
        g = geometry
        neighbours = (g.dilation[1] == 1 and not separate) or g.kernel[1] == 1
        elements = g.ic * g.kernel[1] if neighbours else g.ic
        depth = max(d for d in _depths(product) if elements % d == 0)
        return cls(
            rows=g.kernel[0],
            count=1 if neighbours else g.kernel[1],
            pieces=elements // depth,
            depth=depth,
        )

    @property
    def steps(self) -> int:
        """Number of tile products that are added up for each tile of sums."""
        return self.rows * self.count * self.pieces


def best_padded_channels(geometry: Geometry, product: TileProduct) -> int:
    """The number of padded input channels that takes the fewest tile products."""
    most = geometry.ic + product.depth
    step = _depths(product)[0]
    every = range(-(-geometry.ic // step) * step, most + 1, step)
    return min(every, key=lambda ic: (Runs.of(attrs.evolve(geometry, ic=ic), product).steps, ic))


def _depths(product: TileProduct) -> Sequence[int]:
    """The possible depths of a piece, ascending."""
    least = product.pack if product.shorter else product.depth
    return range(least, product.depth + 1, product.pack)


def supports(geometry: Geometry) -> bool:
    """Whether tile products can compute a convolution: one group, at most two spatial axes."""
    return geometry.groups == 1 and not geometry.outer


def flatten_image(geometry: Geometry) -> Geometry:
    """The sizes with the image as one row, if each output reads only its own pixel."""
    g = geometry
    own = g.kernel == (1, 1) and g.stride == (1, 1) and g.size == g.out and not any(g.padded)
    if not own:
        return g
    row = (1, g.size[0] * g.size[1])
    return attrs.evolve(g, size=row, out=row)


def column_pitch(geometry: Geometry, product: TileProduct) -> int:
    """Number of elements from a column of a copied input to the next one.

    Columns a multiple of many cache lines apart share few sets of L1, so a line is added then.
    """
    lines, rest = divmod(geometry.ic, product.depth)
    shared = rest == 0 and math.gcd(lines, CACHE_SETS) > CACHE_SETS // product.rows
    return geometry.ic + product.depth * shared


def joined_width(geometry: Geometry) -> int:
    """Number of outputs of all rows as one row, those between the rows included."""
    return (geometry.out[0] - 1) * geometry.padded_size[1] + geometry.out[1]


def joining_pays(geometry: Geometry, product: TileProduct) -> bool:
    """Whether tiles hold notably more needed outputs if all rows of an image form one row."""
    g = geometry
    if g.stride != (1, 1) or g.out[0] == 1 or joined_width(g) < product.rows:
        return False
    separate = g.out[0] * math.ceil(g.out[1] / product.rows)
    return math.ceil(joined_width(g) / product.rows) * LEAST_JOIN_GAIN <= separate


def input_bytes(geometry: Geometry, product: TileProduct) -> int:
    """Bytes of a part of the padded inputs."""
    g = geometry
    return math.prod(g.padded_size) * g.batch * g.ic * np.dtype(product.data).itemsize


def panel_positions(bytes_of_position: Any, l2_bytes: int) -> Any:
    """Number of blocks of outputs in a panel, whose inputs fill half of the second-level cache."""
    return np.maximum(1, l2_bytes // 2 // bytes_of_position)


def panel_pixels(
    geometry: Geometry, product: TileProduct, info: TargetInfo, columns: Any, parts: tuple[Any, Any]
) -> Any:
    """Number of pixels of a panel that an iteration of the parallel loop copies.

    An iteration reads all weights. If L2 does not hold them, panels are as large as L2 allows.

    Args:
        geometry: The sizes, with the image as one row.
        product: The instruction.
        info: The CPU.
        columns: Number of outputs of a block; a number or an array, as the result.
        parts: Numbers of parts of a number of the data and of a weight.
    """
    g, width = geometry, geometry.out[1]
    blocks = np.ceil(width / columns)
    pixel_bytes = column_pitch(g, product) * np.dtype(product.data).itemsize
    most = panel_positions(columns * parts[0] * pixel_bytes, info.l2_bytes)
    weight_bytes = parts[1] * g.oc * g.ic * np.dtype(product.weights).itemsize
    wanted = np.where(weight_bytes > info.l2_bytes / 2, 1, PANELS_PER_CORE) * info.cores / g.batch
    panels = np.maximum(np.ceil(blocks / most), wanted)
    panels = np.minimum(blocks, np.ceil(panels * g.batch / info.cores) * info.cores / g.batch)
    return np.minimum(width, np.ceil(blocks / panels) * columns)


def tiles_together(geometry: Geometry, vectors: int, product: TileProduct) -> int:
    """Number of tiles of output channels that packed weights hold together for each step.

    It is 1 if tiles divide the channels. Then all configurations read weights in the same order.
    """
    return 1 if geometry.oc % product.columns == 0 else vectors


def pack_tiles(
    weights: NDArray[Any], geometry: Geometry, vectors: int, product: TileProduct
) -> NDArray[Any]:
    """Weights (O, I, rows, columns) in the order in which a tile product reads them.

    The array is one-dimensional: groups of tiles of output channels, steps of the reduction, tiles
    of a group, rows of a tile. The last group starts earlier if it would exceed the channels.

    Args:
        vectors: Number of tiles of a group, see ``tiles_together``.
    """
    runs = Runs.of(geometry, product)
    oc, ic = weights.shape[:2]
    width = vectors * product.columns
    channels = max(oc, width)
    last = weights.reshape(oc, ic, *geometry.kernel).transpose(0, 2, 3, 1)
    whole = np.pad(last, ((0, channels - oc), (0, 0), (0, 0), (0, geometry.ic - ic)))
    ordered = whole.reshape(channels, -1)
    blocked = ordered[overlapping_blocks(channels, width)]
    groups = runs.depth // product.pack
    tiles = blocked.reshape(
        len(blocked), vectors, product.columns, runs.steps, groups, product.pack
    )
    return contiguous(tiles.transpose(0, 3, 1, 4, 2, 5)).reshape(-1)


@attrs.frozen(kw_only=True)
class TileEstimates:
    """Estimates for n configurations of tile products, without building kernels.

    Every field has shape (n,).

    Attributes:
        registers: Tiles that are held in registers.
        loads: Tiles loaded for each product.
        rows_used: Share of a tile's rows that hold a pixel.
        waste: Number of computed outputs over the number of needed outputs.
        tasks: Number of blocks of outputs.
        imbalance: Time of the busiest core over its time if work were divided evenly.
        steps: Number of tile products that are added to each tile of sums.
        input_bytes: Bytes of the inputs that a block reads.
        weight_bytes: Bytes of the weights that a block reads.
        copied: Bytes written while copying the input, over the number of tile products. 0 if the
            input is not copied.
        streamed: Bytes for a block of outputs that the second-level cache does not hold.
    """

    registers: Numbers
    loads: Numbers
    rows_used: Numbers
    waste: Numbers
    tasks: Numbers
    imbalance: Numbers
    steps: Numbers
    input_bytes: Numbers
    weight_bytes: Numbers
    copied: Numbers
    streamed: Numbers


class TileTiling(Tiling):
    """The design space of a convolution by tile products."""

    tile_knobs = BLOCK_KNOBS
    estimates = TileEstimates
    log_fields = frozenset({"tasks", "steps", "input_bytes", "weight_bytes", "streamed"})
    log_offset = 1.0
    groups = (
        ("tile", ("registers", "loads", "rows_used", "waste")),
        ("parallel loop", ("tasks", "imbalance", "streamed")),
        ("innermost loop", ("steps",)),
        ("input", ("input_bytes", "copied")),
        ("weights", ("weight_bytes",)),
    )
    prefix = "product"

    def __init__(
        self,
        geometry: Geometry,
        info: TargetInfo,
        product: TileProduct,
        *,
        inputs: Sequence[str],
        parts: Mapping[str, tuple[int, int]],
    ) -> None:
        self.geometry = geometry
        self.info = info
        self.product = product
        self.data_parts = {name: data for name, (data, _) in parts.items()}
        self.weight_parts = {name: weights for name, (_, weights) in parts.items()}
        self.products = {name: PRODUCTS_OF_PARTS[both] for name, both in parts.items()}
        self.runs = Runs.of(geometry, product)
        self.input_bytes = input_bytes(geometry, product)
        width = geometry.out[1]
        sizes = tile_sizes(width, product.rows)
        # A tile of few pixels takes as long as a whole one.
        pixels = tuple(size for size in sizes if 2 * size >= max(sizes))
        self.can_join = joining_pays(geometry, product)
        if self.can_join:
            pixels, width = (*pixels, product.rows), joined_width(geometry)
        channels = math.ceil(geometry.oc / product.columns)
        counts = range(1, product.registers)
        self.knobs = (
            Choice(name=ALGORITHM, options=tuple(parts)),
            Choice(name="product_pixels", options=pixels),
            Choice(
                name="product_strips",
                options=tuple(n for n in counts if n * min(pixels) <= width)[:3],
            ),
            Choice(
                name="product_rows", options=tuple(n for n in counts if n <= geometry.out[0])[:3]
            ),
            Choice(name="product_vectors", options=tuple(n for n in counts if n <= channels)[:3]),
            Choice(name="product_input", options=tuple(inputs)),
            Choice(name="product_outermost", options=self._orders()),
        )
        if self.can_join:
            self.knobs += (Choice(name="product_positions", options=("row", "image")),)

    def constraints(self) -> tuple[Constraint, ...]:
        # With the last register in use as well, no block is faster, even alone on a core.
        most, width = self.product.registers - 1, self.geometry.out[1]
        return (
            Constraint(
                reason=f"the block needs more than {most} tiles",
                holds=lambda v: self.estimate(v).registers <= most,
            ),
            Constraint(
                reason="the blocks of panels that are copied are in one of the other orders",
                holds=lambda v: (
                    (v["product_input"] != BY_PANEL) | (v["product_outermost"] != PANELS)
                ),
            ),
            Constraint(
                reason="the block is wider than the output",
                holds=lambda v: (
                    v["product_pixels"] * v["product_strips"]
                    <= np.where(self._joined(v), joined_width(self.geometry), width)
                ),
            ),
            Constraint(
                reason="joined rows are a single row, in whole tiles",
                holds=lambda v: (
                    ~self._joined(v)
                    | (v["product_rows"] == 1) & (v["product_pixels"] == self.product.rows)
                ),
            ),
        )

    def _orders(self) -> tuple[str, ...]:
        """The orders of blocks. Panels pay if neither inputs nor weights fit a part of L2."""
        inputs = min(self.data_parts.values()) * self.input_bytes
        weights = min(self.weight_parts.values()) * self._weight_bytes
        panels = min(inputs, weights) > self.info.l2_bytes / 2
        return ("channels", "positions", *([PANELS] if panels else []))

    @property
    def _weight_bytes(self) -> int:
        """Bytes of a part of the weights."""
        itemsize = np.dtype(self.product.weights).itemsize
        return self.geometry.oc * self.runs.steps * self.runs.depth * itemsize

    def _streamed(
        self, values: Values, blocks: Numbers, positions: Numbers, in_panel: Numbers
    ) -> Numbers:
        """Bytes for a block of outputs that are read from beyond L2, shape (n,).

        Args:
            values: The configurations.
            blocks: Number of blocks of output channels, shape (n,).
            positions: Number of positions of blocks of outputs, shape (n,).
            in_panel: Number of positions of a panel that is copied, shape (n,).
        """
        cache, order = self.info.l2_bytes / 2, values["product_outermost"]
        inputs = by_algorithm(values, self.data_parts) * self.input_bytes
        weights = by_algorithm(values, self.weight_parts) * self._weight_bytes
        of_position, of_block = inputs / positions, weights / blocks
        panel = panel_positions(of_position, self.info.l2_bytes)
        by_panel = values["product_input"] == BY_PANEL
        by_order = {
            "channels": np.where(
                by_panel,
                of_block / in_panel * (weights > cache),
                of_position * (inputs > cache),
            ),
            "positions": of_block * (weights > cache),
            PANELS: of_position / blocks + of_block / panel,
        }
        return np.select([order == name for name in by_order], list(by_order.values()))

    def _joined(self, values: Values) -> NDArray[np.bool_]:
        """Whether the rows of each of n configurations are joined, shape (n,)."""
        if not self.can_join:
            return np.zeros(len(values["product_rows"]), np.bool_)
        return np.asarray(values["product_positions"] == "image")

    def estimate(self, values: Values) -> TileEstimates:
        g, product, runs = self.geometry, self.product, self.runs
        pixels, strips, rows, vectors = as_floats(values, *BLOCK_KNOBS)
        columns, tiles, channels = pixels * strips, strips * rows, vectors * product.columns
        joined = self._joined(values)
        down = np.where(joined, 1.0, np.ceil(g.out[0] / rows))
        across = np.ceil(np.where(joined, joined_width(g), g.out[1]) / columns)
        by_panel = values["product_input"] == BY_PANEL
        parts = by_algorithm(values, self.data_parts)
        both = parts, by_algorithm(values, self.weight_parts)
        panel = panel_pixels(g, product, self.info, columns, both)
        panels, in_panel = np.ceil(g.out[1] / panel), np.ceil(panel / columns)
        across = np.where(by_panel, panels * in_panel, across)
        blocks = np.ceil(g.oc / channels)
        tasks = g.batch * down * across * blocks
        products = tasks * tiles * vectors * runs.steps
        in_rows = (rows - 1) * g.stride[0] + (g.kernel[0] - 1) * g.dilation[0] + 1
        in_columns = (columns - 1) * g.stride[1] + (g.kernel[1] - 1) * g.dilation[1] + 1
        staged = self.input_bytes / np.dtype(product.data).itemsize
        return TileEstimates(
            registers=tiles * vectors + FACTORS,
            loads=1.0 + 1.0 / (tiles * vectors),
            rows_used=pixels / product.rows,
            waste=down * rows * across * columns * blocks * channels / (g.out[0] * g.out[1] * g.oc),
            tasks=tasks,
            imbalance=self.imbalance(np.where(by_panel, g.batch * panels, tasks)),
            steps=np.full(len(tasks), float(runs.steps)),
            input_bytes=parts * in_rows * in_columns * g.ic * np.dtype(product.data).itemsize,
            weight_bytes=by_algorithm(values, self.weight_parts)
            * (channels * runs.steps * runs.depth * np.dtype(product.weights).itemsize),
            copied=np.where(values["product_input"] == IN_PLACE, 0.0, parts * staged / products),
            streamed=self._streamed(values, blocks, tasks / blocks, in_panel),
        )

    def guessed_cost(self, values: Values) -> Numbers:
        """A relative cost to order first guesses, of shape (n,); lower is better.

        It is the estimated number of cycles over the least number of tile products. Products, loads
        of
        tiles and reads from L3 overlap, so only the longest counts.
        """
        e, product = self.estimate(values), self.product
        products = by_algorithm(values, self.products)
        tiles = values["product_strips"] * values["product_rows"]
        vectors = values["product_vectors"]
        multiplied = (tiles * vectors).astype(np.float64) * self.runs.steps
        inner = products * product.cost * np.maximum(1.0, LOAD_SHARE * e.loads)
        far = e.streamed / self.info.l3_bytes_per_cycle
        outputs = tiles * values["product_pixels"] * vectors
        ends = (TILE_CYCLES + FINISH_CYCLES * outputs) / multiplied
        # A core has copied only a part of the inputs, and reads the rest from the other cores. A
        # core only reads the inputs of its panels, and its copy stays in L2.
        others = (values["product_outermost"] == "channels") * (self.info.cores - 1.0)
        copying = np.where(values["product_input"] == BY_PANEL, 1.0, COPY_COST + others)
        copies = copying * e.copied / self.info.l3_bytes_per_cycle
        work = e.waste / e.rows_used * e.imbalance
        cycles = work * (np.maximum(inner, far / multiplied) + ends) + copies
        return np.asarray(cycles / self._unit)

    @property
    def _unit(self) -> float:
        """Cycles of a tile product in the unit of the costs of other algorithms."""
        if TILE_PRODUCTS in self.products:
            return 1.0
        product = self.product
        vectors = product.rows * product.columns * product.depth / self.info.lanes(FLOAT32)
        return vectors / self.info.fma_per_cycle
