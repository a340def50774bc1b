"""Knobs, legality, features and first guesses of convolutions of tile products, as arrays."""

from __future__ import annotations

import math

import attrs
import numpy as np
from chameleon_core.space import Choice, Constraint, DesignSpace, FeatureBlock, Values
from numpy.typing import NDArray

from chameleon_tvm.device.targets import TargetInfo
from chameleon_tvm.instructions.tiles import TileProduct
from chameleon_tvm.spaces.template.algorithms import KNOB
from chameleon_tvm.spaces.template.estimates import Numbers
from chameleon_tvm.spaces.template.geometry import Geometry
from chameleon_tvm.spaces.template.guesses import COPIED, TILE_CYCLES, first_guesses
from chameleon_tvm.spaces.template.tile_block import Runs
from chameleon_tvm.spaces.template.tiling import tile_sizes

TILED = "tiles"
"""Name of the algorithm."""

BLOCK_KNOBS = ("product_pixels", "product_strips", "product_rows", "product_vectors")
"""Configurations that differ in none of these run the same inner loops."""

LOAD_SHARE = 0.5
"""A tile is loaded in this share of the time that a product takes."""
FINISH_CYCLES = 8.0
"""Cycles of storing a vector of sums, making it an output and storing that."""
_PREFIX = "product_"
"""Of the names of knobs and features, since direct convolutions have some of the same."""

FEATURE_GROUPS = tuple(
    (f"product {name}", tuple(f"{_PREFIX}{column}" for column in columns))
    for name, columns in (
        ("tile", ("registers", "loads", "rows_used", "waste")),
        ("parallel loop", ("tasks", "imbalance")),
        ("innermost loop", ("steps",)),
        ("input", ("input_bytes", "copied")),
        ("weights", ("weight_bytes",)),
    )
)
"""Which loop or buffer each analytical feature tells of."""


@attrs.frozen(kw_only=True)
class TileEstimates:
    """What is known of n configurations without building them; every field has shape (n,).

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


class TileTiling:
    """The design space of a convolution of tile products.

    Args:
        geometry: its sizes.
        info: the target.
        product: what multiplies.
        in_place: whether the input may be read where it is.
    """

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
                name="product_rows",
                options=tuple(n for n in several if n <= geometry.out[0])[:3],
            ),
            Choice(name="product_vectors", options=tuple(n for n in several if n <= channels)[:3]),
            Choice(name="product_input", options=("copy", "in_place") if in_place else ("copy",)),
            Choice(name="product_outermost", options=("channels", "positions")),
        )

    def space(self) -> DesignSpace:
        """The design space with its first guesses."""
        names = tuple(f"{_PREFIX}{field.name}" for field in attrs.fields(TileEstimates))
        bare = DesignSpace(self.knobs, constraints=self.constraints())
        return DesignSpace(
            self.knobs,
            constraints=self.constraints(),
            features=FeatureBlock(names=names, compute=self.features, groups=FEATURE_GROUPS),
            guessed_cost=self.guessed_cost,
            first_guesses=first_guesses(bare, self.guessed_cost, tile_knobs=BLOCK_KNOBS),
        )

    def constraints(self) -> tuple[Constraint, ...]:
        """What a legal configuration meets."""
        held, width = self.product.registers, self.geometry.out[1]
        return (
            Constraint(
                reason=f"the block needs more than {held} tiles",
                holds=lambda v: self.estimate(v).registers <= held,
            ),
            Constraint(
                reason="the block is wider than the output",
                holds=lambda v: v["product_pixels"] * v["product_strips"] <= width,
            ),
        )

    def estimate(self, values: Values) -> TileEstimates:
        """What is known of n configurations without building them."""
        g, product, runs = self.geometry, self.product, self.runs
        pixels, strips, rows, vectors = (values[name].astype(np.float64) for name in BLOCK_KNOBS)
        columns, tiles, channels = pixels * strips, strips * rows, vectors * product.columns
        down, across = np.ceil(g.out[0] / rows), np.ceil(g.out[1] / columns)
        blocks = np.ceil(g.oc / channels)
        tasks = g.batch * down * across * blocks
        cores = self.info.cores
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
            imbalance=np.ceil(tasks / cores) * cores / tasks,
            steps=np.full(len(tasks), float(runs.steps)),
            input_bytes=in_rows * in_columns * g.ic * np.dtype(product.data).itemsize,
            weight_bytes=channels * runs.steps * runs.depth * np.dtype(product.weights).itemsize,
            copied=np.where(values["product_input"] == "copy", staged / products, 0.0),
        )

    def features(self, values: Values) -> NDArray[np.float64]:
        """Analytical features, magnitudes as logarithms; shape (n, fields of the estimates)."""
        estimates = self.estimate(values)
        large = {"tasks", "steps", "input_bytes", "weight_bytes"}
        columns = [
            np.log2(getattr(estimates, field.name))
            if field.name in large
            else getattr(estimates, field.name)
            for field in attrs.fields(TileEstimates)
        ]
        return np.stack(np.broadcast_arrays(*columns), axis=1)

    def guessed_cost(self, values: Values) -> Numbers:
        """Guessed cycles of a core for each product of whole tiles that is needed; shape (n,).

        Products and loads overlap, and so do weights that arrive from L3 as a block reads them;
        what is done once for a block adds to it.
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
