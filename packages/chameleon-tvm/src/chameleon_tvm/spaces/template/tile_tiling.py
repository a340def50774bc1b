"""The tile products of a convolution, and the design space of their loops, as arrays.

A tile of data is up to 16 neighbouring outputs of a row. They read the padded input where it lies,
one row of the tile for each, the convolution's stride apart. Nothing is rearranged (no im2col,
Chellapilla et al., "High Performance Convolutional Neural Networks for Document Processing", 2006).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from chameleon_core.space import Choice, Constraint, Values
from numpy.typing import NDArray

from chameleon_tvm.arrays import contiguous
from chameleon_tvm.device.targets import TargetInfo
from chameleon_tvm.instructions.tiles import TileProduct
from chameleon_tvm.spaces.template.algorithms import KNOB
from chameleon_tvm.spaces.template.estimates import COPIED, TILE_CYCLES, Numbers, Tiling
from chameleon_tvm.spaces.template.geometry import Geometry
from chameleon_tvm.spaces.template.tiling import tile_sizes

TILED = "tiles"
"""Name of the algorithm."""

BLOCK_KNOBS = ("product_pixels", "product_strips", "product_rows", "product_vectors")
"""Configurations that differ in none of these run the same inner loops."""

LOAD_SHARE = 0.5
"""A tile is loaded in this share of the time that a product takes."""
FINISH_CYCLES = 8.0
"""Cycles of storing a vector of sums, making it an output and storing that."""


@attrs.frozen(kw_only=True)
class TileBlock:
    """The results that stay in registers from the first tap to the last, and how they are found.

    Attributes:
        pixels: outputs of a row in one tile.
        strips: tiles beside each other in a row.
        rows: output rows.
        vectors: tiles of output channels.
        copy: whether the input is copied and padded first; else it is read in place.
        channels_outermost: whether output channels are the outermost loop.
    """

    pixels: int
    strips: int
    rows: int
    vectors: int
    copy: bool
    channels_outermost: bool

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> TileBlock:
        """A decoded configuration as a block."""
        return cls(
            pixels=values["product_pixels"],
            strips=values["product_strips"],
            rows=values["product_rows"],
            vectors=values["product_vectors"],
            copy=values["product_input"] == "copy",
            channels_outermost=values["product_outermost"] == "channels",
        )

    @property
    def columns(self) -> int:
        """Output columns."""
        return self.pixels * self.strips

    @property
    def tiles(self) -> int:
        """Tiles of data."""
        return self.rows * self.strips


@attrs.frozen(kw_only=True)
class Runs:
    """The input of one output, as pieces that a tile product takes at a time.

    Pieces of a run are equal: nothing beyond it is read, which might be infinite or NaN.

    Attributes:
        rows: of the filter.
        count: runs of neighbouring elements in each: one if the taps of a row are neighbours,
            or else one for each tap.
        pieces: of a run.
        depth: elements of a piece.
    """

    rows: int
    count: int
    pieces: int
    depth: int

    @classmethod
    def of(cls, geometry: Geometry, product: TileProduct) -> Runs:
        """Those of a convolution of one group whose channels ``filled_channels`` are."""
        g = geometry
        neighbours = g.dilation[1] == 1 or g.kernel[1] == 1
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
        """Products that are added up."""
        return self.rows * self.count * self.pieces


def filled_channels(geometry: Geometry, product: TileProduct) -> int:
    """Input channels, zeros among them, with which a convolution takes fewest products.

    Args:
        geometry: the convolution, of one group.
        product: what multiplies.
    """
    most = geometry.ic + product.depth
    step = _depths(product)[0]
    every = range(-(-geometry.ic // step) * step, most + 1, step)
    return min(every, key=lambda ic: (Runs.of(attrs.evolve(geometry, ic=ic), product).steps, ic))


def _depths(product: TileProduct) -> Sequence[int]:
    """The depths that a piece may have."""
    least = product.pack if product.shorter else product.depth
    return range(least, product.depth + 1, product.pack)


def applies(geometry: Geometry) -> bool:
    """Whether a convolution can be computed so: of one group and two spatial axes at most."""
    return geometry.groups == 1 and not geometry.outer


def flattened(geometry: Geometry) -> Geometry:
    """The same convolution with its map as one row, if each output reads its own pixel alone."""
    g = geometry
    own = g.kernel == (1, 1) and g.stride == (1, 1) and g.size == g.out and not any(g.padded)
    if not own:
        return g
    row = (1, g.size[0] * g.size[1])
    return attrs.evolve(g, size=row, out=row)


def pack_tiles(
    weights: NDArray[Any], geometry: Geometry, block: TileBlock, product: TileProduct
) -> NDArray[Any]:
    """(O, I, rows, columns) weights as a tile product reads them.

    Args:
        weights: of one group, of fewer channels if the geometry's are filled up.
        geometry: the convolution.
        block: the point of the design space.
        product: what multiplies.

    Returns:
        Along one axis: blocks of output channels, products that are added up, tiles of channels,
        and rows of a register. The last block is moved back to end with the channels, as its
        outputs are.
    """
    runs = Runs.of(geometry, product)
    oc, ic = weights.shape[:2]
    width = block.vectors * product.columns
    channels = max(oc, width)
    last = weights.reshape(oc, ic, *geometry.kernel).transpose(0, 2, 3, 1)
    whole = np.pad(last, ((0, channels - oc), (0, 0), (0, 0), (0, geometry.ic - ic)))
    ordered = whole.reshape(channels, -1)
    starts = np.minimum(np.arange(math.ceil(channels / width)) * width, channels - width)
    groups = runs.depth // product.pack
    tiles = ordered[starts[:, None] + np.arange(width)].reshape(
        len(starts), block.vectors, product.columns, runs.steps, groups, product.pack
    )
    return contiguous(tiles.transpose(0, 3, 1, 4, 2, 5)).reshape(-1)


@attrs.frozen(kw_only=True)
class TileEstimates:
    """Estimates for n configurations, without building them; every field has shape (n,).

    Attributes:
        registers: tiles that are held.
        loads: tiles loaded for each product.
        rows_used: share of a tile's rows that have a pixel.
        waste: computed over needed outputs.
        tasks: blocks of results.
        imbalance: time of the busiest core over that of a fair share.
        steps: products that a sum is made of.
        input_bytes: inputs that a block reads.
        weight_bytes: weights that a block reads.
        copied: bytes written while copying the input, for each product of a whole tile.
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


class TileTiling(Tiling):
    """The design space of a convolution of tile products.

    Args:
        geometry: its sizes.
        info: the target.
        product: what multiplies.
        in_place: whether the input may be read where it is.
    """

    tile_knobs = BLOCK_KNOBS
    estimates = TileEstimates
    magnitudes = frozenset({"tasks", "steps", "input_bytes", "weight_bytes"})
    groups = (
        ("tile", ("registers", "loads", "rows_used", "waste")),
        ("parallel loop", ("tasks", "imbalance")),
        ("innermost loop", ("steps",)),
        ("input", ("input_bytes", "copied")),
        ("weights", ("weight_bytes",)),
    )
    prefix = "product"

    def __init__(
        self, geometry: Geometry, info: TargetInfo, product: TileProduct, *, in_place: bool
    ) -> None:
        self.geometry = geometry
        self.info = info
        self.product = product
        self.runs = Runs.of(geometry, product)
        width = geometry.out[1]
        sizes = tile_sizes(width, product.rows)
        # A tile of few pixels takes as long as a whole one.
        pixels = tuple(size for size in sizes if 2 * size >= max(sizes))
        channels = math.ceil(geometry.oc / product.columns)
        several = range(1, product.registers)
        self.knobs = (
            Choice(name=KNOB, options=(TILED,)),
            Choice(name="product_pixels", options=pixels),
            Choice(
                name="product_strips",
                options=tuple(n for n in several if n * min(pixels) <= width)[:3],
            ),
            Choice(
                name="product_rows", options=tuple(n for n in several if n <= geometry.out[0])[:3]
            ),
            Choice(name="product_vectors", options=tuple(n for n in several if n <= channels)[:3]),
            Choice(name="product_input", options=("copy", "in_place") if in_place else ("copy",)),
            Choice(name="product_outermost", options=("channels", "positions")),
        )

    def constraints(self) -> tuple[Constraint, ...]:
        most, width = self.product.registers, self.geometry.out[1]
        return (
            Constraint(
                reason=f"the block needs more than {most} tiles",
                holds=lambda v: self.estimate(v).registers <= most,
            ),
            Constraint(
                reason="the block is wider than the output",
                holds=lambda v: v["product_pixels"] * v["product_strips"] <= width,
            ),
        )

    def estimate(self, values: Values) -> TileEstimates:
        g, product, runs = self.geometry, self.product, self.runs
        pixels, strips, rows, vectors = (values[name].astype(np.float64) for name in BLOCK_KNOBS)
        columns, tiles, channels = pixels * strips, strips * rows, vectors * product.columns
        down, across = np.ceil(g.out[0] / rows), np.ceil(g.out[1] / columns)
        blocks = np.ceil(g.oc / channels)
        tasks = g.batch * down * across * blocks
        products = tasks * tiles * vectors * runs.steps
        in_rows = (rows - 1) * g.stride[0] + (g.kernel[0] - 1) * g.dilation[0] + 1
        in_columns = (columns - 1) * g.stride[1] + (g.kernel[1] - 1) * g.dilation[1] + 1
        staged = math.prod(g.staged_size) * g.batch * g.ic
        return TileEstimates(
            registers=tiles * vectors + tiles + vectors,
            loads=(tiles + vectors) / (tiles * vectors),
            rows_used=pixels / product.rows,
            waste=down * rows * across * columns * blocks * channels / (g.out[0] * g.out[1] * g.oc),
            tasks=tasks,
            imbalance=self.imbalance(tasks),
            steps=np.full(len(tasks), float(runs.steps)),
            input_bytes=in_rows * in_columns * g.ic * np.dtype(product.data).itemsize,
            weight_bytes=channels * runs.steps * runs.depth * np.dtype(product.weights).itemsize,
            copied=np.where(values["product_input"] == "copy", staged / products, 0.0),
        )

    def guessed_cost(self, values: Values) -> Numbers:
        """Guessed cycles of a core for each product of whole tiles that is needed; shape (n,).

        Products and loads overlap, and so do weights that arrive from L3 as a block reads them. The
        setup of a block adds to it.
        """
        e, product = self.estimate(values), self.product
        tiles = values["product_strips"] * values["product_rows"]
        vectors = values["product_vectors"]
        multiplied = (tiles * vectors).astype(np.float64) * self.runs.steps
        inner = product.cost * np.maximum(1.0, LOAD_SHARE * e.loads)
        shared = np.where(values["product_outermost"] == "channels", 0.0, e.weight_bytes)
        far = shared * (e.weight_bytes > self.info.l2_bytes / 2) / self.info.l3_bytes_per_cycle
        outputs = tiles * values["product_pixels"] * vectors
        ends = (TILE_CYCLES + FINISH_CYCLES * outputs) / multiplied
        copies = COPIED * e.copied / self.info.l3_bytes_per_cycle
        work = e.waste / e.rows_used * e.imbalance
        cost: Numbers = work * (np.maximum(inner, far / multiplied) + ends) + copies
        return cost
