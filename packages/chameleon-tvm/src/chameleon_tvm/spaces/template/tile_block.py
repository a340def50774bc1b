"""What a tile product multiplies in a convolution: the runs of its input, and a block of tiles.

A tile of data is up to 16 neighbouring outputs of a row: they read the padded input where it lies,
one row of the tile for each, the convolution's stride apart. Nothing is rearranged (no im2col,
Chellapilla et al., "High Performance Convolutional Neural Networks for Document Processing", 2006).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from chameleon_tvm.arrays import contiguous
from chameleon_tvm.instructions.tiles import TileProduct
from chameleon_tvm.spaces.template.geometry import Geometry


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
        count: runs of neighbouring elements in each: one where the taps of a row are neighbours,
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
    """What a piece may have."""
    least = product.pack if product.shorter else product.depth
    return range(least, product.depth + 1, product.pack)


def applies(geometry: Geometry) -> bool:
    """Whether a convolution can be computed so: of one group and two spatial axes at most."""
    return geometry.groups == 1 and not geometry.outer


def flattened(geometry: Geometry) -> Geometry:
    """The same convolution with its map as one row, where each output reads its own pixel alone."""
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
        weights: of one group, of fewer channels where the geometry's are filled up.
        geometry: the convolution.
        block: the point of the design space.
        product: what multiplies.

    Returns:
        Of one axis: blocks of output channels, products that are added up, tiles of channels, and
        rows of a register. The last block is moved back to end with the channels, as its outputs
        are.
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
    taken = ordered[starts[:, None] + np.arange(width)].reshape(
        len(starts), block.vectors, product.columns, runs.steps, groups, product.pack
    )
    return contiguous(taken.transpose(0, 3, 1, 4, 2, 5)).reshape(-1)
