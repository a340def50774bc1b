"""The output of a convolution: applies the epilogue to a tile of sums and stores it."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import attrs
import numpy as np
from numpy.typing import NDArray

from chameleon_tvm import _emit as emit
from chameleon_tvm._emit import Buffer, Expr, Stmt
from chameleon_tvm._late_tvm import tirx
from chameleon_tvm._operators.layouts import channel_block, physical_index, physical_shape
from chameleon_tvm._operators.matmul_specs import BatchMatmulSpec
from chameleon_tvm._operators.spec import FusedSpec
from chameleon_tvm._spaces.template.epilogues import epilogue_of
from chameleon_tvm._spaces.template.geometry import Geometry, Tile

CACHE_LINE = 64
"""Bytes of a cache line."""


@attrs.frozen(kw_only=True, eq=False)
class TilePosition:
    """The position of a tile of outputs, and the registers of its sums.

    Attributes:
        outer: Position along each outer axis.
        sums: Registers of the tile's sums, in order of rows, columns and vectors of channels.
        valid: Whether each tap of each column is inside the input, shape (columns, kernel width).
    """

    n: Expr
    outer: tuple[Expr, ...]
    group: Expr
    block: Expr
    y: Expr
    x: Expr
    sums: tuple[Buffer, ...]
    valid: NDArray[np.bool_]


class Output:
    """The output of a convolution, and the code that writes tiles to it.

    Attributes:
        out: The function's parameter, in which planes of outer axes form one tall image.
        block: Output channels of a tile.
        channels: Output channels of a group, or ``block`` if a group has fewer. Only those of the
            group are written.
    """

    def __init__(
        self,
        geometry: Geometry,
        tile: Tile,
        spec: FusedSpec | BatchMatmulSpec | None = None,
        *,
        sums: str = "float32",
    ) -> None:
        g = geometry
        self.geometry = g
        self.tile = tile
        self.block = tile.vectors * g.lanes
        self.channels = max(g.oc, self.block)
        height, width = g.out
        image = (g.batch, g.oc * g.groups, g.out_planes * height, width)
        shape = physical_shape(image, g.out_layout)
        self.epilogue = epilogue_of(spec, g.groups * self.channels, shape, sums=sums)
        self.out = emit.buffer("out", shape, dtype=self.epilogue.out_dtype)
        # Without a residual, the epilogue can be computed on vectors before they are stored.
        self.finishes_vectors = self.epilogue.residual is None
        dtype = self.epilogue.out_dtype if self.finishes_vectors else "float32"
        elements = tile.rows * tile.columns * self.block
        self.spilled = emit.buffer("spilled", (elements,), dtype=dtype)

    def write(self, at: TilePosition) -> Stmt:
        """Return the statement that applies the epilogue to a tile's sums and stores them."""
        written = self._store(at)
        return written if self.stores_vectors else emit.allocate(self.spilled, written)

    def _store(self, at: TilePosition) -> Stmt:
        first = emit.tile_start(at.block, self.block, self.channels)
        return (self._store_vectors if self.stores_vectors else self._store_elements)(at, first)

    @property
    def stores_vectors(self) -> bool:
        """Whether vectors of channels can be stored whole, in their order."""
        g, size = self.geometry, channel_block(self.geometry.out_layout)
        aligned = size == g.oc or (size and size % g.lanes == 0 and g.oc % g.lanes == 0)
        return g.oc >= self.block and (g.out_layout == "NHWC" or bool(aligned))

    def _store_vectors(self, at: TilePosition, first: Expr) -> Stmt:
        lanes = self.geometry.lanes

        def vector(yi: Expr, xi: Expr, v: int) -> Stmt:
            index = self._indices(at, first + v * lanes, yi, xi)
            channel = at.group * self.channels + first + v * lanes
            value = self.epilogue.apply(self._sum_vector(at, yi, xi, v), channel, index, lanes)
            return self._guard(at, xi, emit.store(self.out, index, value, lanes))

        return self._for_each_vector(vector)

    def _store_elements(self, at: TilePosition, first: Expr) -> Stmt:
        """Write elements one by one from memory, since a variable cannot index registers."""
        lanes = self.geometry.lanes

        def spill(yi: Expr, xi: Expr, v: int) -> Stmt:
            channel = at.group * self.channels + first + v * lanes
            value = self.epilogue.add_bias(self._sum_vector(at, yi, xi, v), channel, lanes)
            value = self.epilogue.finish(value, (), lanes) if self.finishes_vectors else value
            return emit.store(self.spilled, [self._spill_index(yi, xi, v)], value, lanes)

        return emit.sequence([self._for_each_vector(spill), self._store_spilled(at, first)])

    def _for_each_vector(self, body: Callable[[Expr, Expr, int], Stmt]) -> Stmt:
        """A statement for each vector of a tile: straight-line code on registers."""
        t = self.tile
        places = itertools.product(range(t.rows), range(t.columns), range(t.vectors))
        return emit.sequence([body(*position) for position in places])

    def _sum_vector(self, at: TilePosition, yi: Expr, xi: Expr, v: int) -> Expr:
        """The vector of sums number ``v`` at a row and column of a tile."""
        return emit.read(at.sums[(yi * self.tile.columns + xi) * self.tile.vectors + v])

    def _spill_index(self, yi: Expr, xi: Expr, v: int) -> Expr:
        """The position of a vector in the memory that holds a tile."""
        return (yi * self.tile.columns + xi) * self.block + v * self.geometry.lanes

    def _store_spilled(self, at: TilePosition, first: Expr) -> Stmt:
        """Write spilled sums (finished or only biased) in order of rows, columns and channels."""
        g, tile = self.geometry, self.tile

        def element(o: Expr, yi: Expr, xi: Expr) -> Stmt:
            value = emit.load(self.spilled, [(yi * tile.columns + xi) * self.block + o])
            index = self._indices(at, first + o, yi, xi)
            value = value if self.finishes_vectors else self.epilogue.finish(value, index, 1)
            return self._guard(at, xi, emit.store(self.out, index, value))

        # The loop that is contiguous in the output is the innermost one.
        channels = {"o": min(self.block, g.oc)}
        pixels = {"yi": tile.rows, "xi": tile.columns}
        if g.out_layout == "NCHW":
            return emit.loops(channels | pixels, element)
        return emit.loops(pixels | channels, lambda yi, xi, o: element(o, yi, xi))

    def _indices(self, at: TilePosition, o: Expr, yi: Expr, xi: Expr) -> list[Expr]:
        """Indices of an element of a tile; ``o`` is a channel of the tile's group."""
        g = self.geometry
        outs = [axis.out for axis in g.outer]
        row, x = self._position(at, yi, xi)
        n, y = at.n, emit.join((*at.outer, row), (*outs, g.out[0]))
        if channel_block(g.out_layout) == g.oc:
            return [n, at.group, y, x, o]
        return physical_index((n, at.group * g.oc + o, y, x), g.out_layout)

    def _position(self, at: TilePosition, yi: Expr, xi: Expr) -> tuple[Expr, Expr]:
        """The row and the column of the output at a row and a column of a tile."""
        return at.y + yi, at.x + xi

    def _guard(self, at: TilePosition, xi: Expr, store: Stmt) -> Stmt:
        """A statement that stores the output at a column of a tile, if there is such an output."""
        del at, xi  # each column has an output
        return store


class StoredOutput(Output):
    """An ``Output`` whose tiles are in memory, with the ``buffers`` that the code needs."""

    def __init__(self, geometry: Geometry, tile: Tile, spec: FusedSpec, sums: Buffer) -> None:
        super().__init__(geometry, tile, spec, sums=str(sums.dtype))
        self.buffers = [sums] if self.stores_vectors else [sums, self.spilled]

    def write(self, at: TilePosition) -> Stmt:
        return self._store(at)

    def prefetch(self, at: TilePosition, pixel: Expr) -> Stmt:
        """Prefetch what ``write`` stores and reads for a pixel of a tile.

        Pixels are far apart in memory, so the CPU does not prefetch the next one by itself.
        """
        if not self.stores_vectors:
            return emit.sequence([])
        yi, xi = emit.split(pixel, (self.tile.rows, self.tile.columns))
        first = emit.tile_start(at.block, self.block, self.channels)
        residual, item = self.epilogue.residual, np.dtype(str(self.out.dtype)).itemsize
        statements = []
        for channel in range(0, self.block, CACHE_LINE // item):
            index = self._indices(at, first + channel, yi, xi)
            statements.append(emit.prefetch(self.out, index, write=True))
            if residual is not None:
                statements.append(emit.prefetch(residual, index))
        return emit.sequence(statements)

    def _for_each_vector(self, body: Callable[[Expr, Expr, int], Stmt]) -> Stmt:
        tile = self.tile

        def pixel(yi: Expr, xi: Expr) -> Stmt:
            return emit.sequence([body(yi, xi, v) for v in range(tile.vectors)])

        return emit.loops({"yi": tile.rows, "xi": tile.columns}, pixel)

    def _sum_vector(self, at: TilePosition, yi: Expr, xi: Expr, v: int) -> Expr:
        return emit.load(at.sums[0], [self._spill_index(yi, xi, v)], self.geometry.lanes)


class JoinedOutput(StoredOutput):
    """A ``StoredOutput`` whose tiles are parts of one row that all rows of the image form."""

    def _position(self, at: TilePosition, yi: Expr, xi: Expr) -> tuple[Expr, Expr]:
        del yi  # the tile is a row
        width = self.geometry.padded_size[1]
        return tirx.floordiv(at.x + xi, width), tirx.floormod(at.x + xi, width)

    def _guard(self, at: TilePosition, xi: Expr, store: Stmt) -> Stmt:
        _, column = self._position(at, 0, xi)
        return emit.when(column < self.geometry.out[1], store)
