"""Finishing a tile of sums and writing it to the output in its layout."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from chameleon_tvm.instructions.conversions import rounding, widening
from chameleon_tvm.operators.activations import activate
from chameleon_tvm.operators.spec import FusedSpec, TypedSpec
from chameleon_tvm.operators.specs import BatchMatmulSpec, channel_block, physical_shape
from chameleon_tvm.quick_tvm import tirx
from chameleon_tvm.spaces.template import emit
from chameleon_tvm.spaces.template.emit import Buffer, Expr, Stmt
from chameleon_tvm.spaces.template.geometry import Geometry, Tile
from chameleon_tvm.spaces.template.quantized_epilogue import (
    QuantizedProductEpilogue,
    QuantizedVectorEpilogue,
)
from chameleon_tvm.spaces.template.tile_position import TilePosition
from chameleon_tvm.spaces.template.vector_epilogue import VectorEpilogue
from chameleon_tvm.types import HALVES, STORAGE


class HalfVectorEpilogue(VectorEpilogue):
    """What is done to sums of float32 before they are stored as bfloat16, float16 or float32.

    Args:
        spec: the operator, with or without an epilogue of its own.
        channels: how many numbers a bias has, padded; it is packed as float32.
        shape: of the output, and of the residual.
    """

    def __init__(self, spec: TypedSpec, channels: int, shape: Sequence[int]) -> None:
        super().__init__(spec if isinstance(spec, FusedSpec) else None, channels, shape)
        self._written = STORAGE[spec.output_dtype]
        self.out_type = self._written.storage_dtype
        if self.residual is not None:
            self.residual = emit.buffer("residual", shape, dtype=self.out_type)

    def last(self, sums: Expr, place: Sequence[Expr], lanes: int) -> Expr:
        if self.residual is not None:
            added = emit.load(self.residual, place, lanes)
            sums = sums + widening(self._written, added, lanes)
        return rounding(self._written, activate(sums, self.activation), lanes)


def epilogue_of(
    spec: FusedSpec | BatchMatmulSpec | None,
    channels: int,
    shape: Sequence[int],
    *,
    sums: str = "float32",
) -> VectorEpilogue:
    """The epilogue of an operator.

    Args:
        spec: the operator; None for one that has none.
        channels: how many numbers a bias has, padded.
        shape: of the output, and of the residual.
        sums: element type of the sums.
    """
    if spec is not None and spec.dtype in HALVES:
        return HalfVectorEpilogue(spec, channels, shape)
    if isinstance(spec, BatchMatmulSpec):
        product = QuantizedProductEpilogue(spec, channels, shape)
        return product if spec.quantized else VectorEpilogue(None, channels, shape)
    if spec is not None and spec.quantized:
        return QuantizedVectorEpilogue(spec, channels, shape, sums=sums)
    return VectorEpilogue(spec, channels, shape)


class Output:
    """The output of a convolution and how a tile gets there.

    Args:
        geometry: the convolution.
        tile: the point of the design space.
        spec: the operator, for its epilogue; None for one that has none.
        sums: element type of the sums.

    Attributes:
        out: the function's parameter; planes of outer axes lie below each other.
        block: output channels of a tile.
        channels: output channels of a group, at least ``block`` (the rest is not written).
        epilogue: bias, residual and activation.
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
        self.out = emit.buffer("out", shape, dtype=self.epilogue.out_type)

    def write(self, at: TilePosition) -> Stmt:
        """Store a tile's sums."""
        first = emit.within(at.block, self.block, self.channels)
        return (self._store_vectors if self.whole else self._store_elements)(at, first)

    @property
    def whole(self) -> bool:
        """Whether vectors of channels lie in the output as they are."""
        g, size = self.geometry, channel_block(self.geometry.out_layout)
        aligned = size == g.oc or (size and size % g.lanes == 0 and g.oc % g.lanes == 0)
        return g.oc >= self.block and (g.out_layout == "NHWC" or bool(aligned))

    def _store_vectors(self, at: TilePosition, first: Expr) -> Stmt:
        tile, lanes = self.tile, self.geometry.lanes
        statements = []
        for position in range(tile.rows * tile.columns):
            yi, xi = divmod(position, tile.columns)
            for v in range(tile.vectors):
                value = emit.load(at.sums[position * tile.vectors + v], [0], lanes)
                place = self._place(at, first + v * lanes, yi, xi)
                channel = at.group * self.channels + first + v * lanes
                value = self.epilogue.whole(value, channel, place, lanes)
                statements.append(emit.store(self.out, place, value, lanes))
        return emit.sequence(statements)

    def _store_elements(self, at: TilePosition, first: Expr) -> Stmt:
        """Write one by one, through memory: registers cannot be indexed by a variable."""
        g, tile = self.geometry, self.tile
        vectors = tile.rows * tile.columns * tile.vectors
        # All that needs no other element of the output is done while there still are vectors.
        early = self.epilogue.residual is None
        kept = self.epilogue.out_type if early else "float32"
        spilled = emit.buffer("spilled", (vectors * g.lanes,), dtype=kept)
        spill = []
        for v, total in enumerate(at.sums):
            channel = at.group * self.channels + first + v % tile.vectors * g.lanes
            value = self.epilogue.biased(emit.load(total, [0], g.lanes), channel, g.lanes)
            value = self.epilogue.last(value, (), g.lanes) if early else value
            spill.append(emit.store(spilled, [v * g.lanes], value, g.lanes))

        rest = self._elements_of(spilled, at, first, early=early)
        return emit.local(spilled, emit.sequence([*spill, rest]))

    def _elements_of(self, spilled: Buffer, at: TilePosition, first: Expr, *, early: bool) -> Stmt:
        """Write what is in memory, in order of rows, columns and channels.

        Args:
            spilled: finished or biased sums.
            at: where the tile is.
            first: its first channel.
            early: whether they are finished.
        """
        g, tile = self.geometry, self.tile

        def element(o: Expr, yi: Expr, xi: Expr) -> Stmt:
            value = emit.load(spilled, [(yi * tile.columns + xi) * self.block + o])
            place = self._place(at, first + o, yi, xi)
            value = value if early else self.epilogue.last(value, place, 1)
            return emit.store(self.out, place, value)

        # The loop that is contiguous in the output is the innermost one.
        extents = {"o": min(self.block, g.oc), "yi": tile.rows, "xi": tile.columns}
        order = ("o", "yi", "xi") if g.out_layout == "NCHW" else ("yi", "xi", "o")

        def nest(names: tuple[str, ...], chosen: dict[str, Expr]) -> Stmt:
            if not names:
                return element(chosen["o"], chosen["yi"], chosen["xi"])
            name, *rest = names
            return emit.loop(
                name, extents[name], lambda at: nest(tuple(rest), {**chosen, name: at})
            )

        return nest(order, {})

    def _place(self, at: TilePosition, o: Expr, yi: Expr, xi: Expr) -> list[Expr]:
        """Where an element of a tile is, for a channel of the tile's group."""
        g = self.geometry
        outs = [axis.out for axis in g.outer]
        n, y, x = at.n, emit.join((*at.outer, at.y + yi), (*outs, g.out[0])), at.x + xi
        channel = at.group * g.oc + o
        if g.out_layout == "NHWC":
            return [n, y, x, channel]
        if g.out_layout == "NCHW":
            return [n, channel, y, x]
        size = channel_block(g.out_layout)
        if size == g.oc:
            return [n, at.group, y, x, o]
        return [n, tirx.floordiv(channel, size), y, x, tirx.floormod(channel, size)]


class StoredOutput(Output):
    """The same for a tile whose sums are in memory, in order of rows, columns and channels.

    Args:
        geometry: the convolution.
        tile: the point of the design space.
        spec: the operator, for its epilogue.
        sums: where they are, of one axis.

    Attributes:
        buffers: what writing takes room in, ``sums`` among it; to be allocated around it.
    """

    def __init__(self, geometry: Geometry, tile: Tile, spec: FusedSpec, sums: Buffer) -> None:
        super().__init__(geometry, tile, spec, sums=str(sums.dtype))
        self.sums = sums
        self.early = self.epilogue.residual is None
        self.buffers = [sums]
        if not self.whole:
            kept = self.epilogue.out_type if self.early else "float32"
            self.spilled = emit.buffer("spilled", sums.shape, dtype=kept)
            self.buffers.append(self.spilled)

    def _store_vectors(self, at: TilePosition, first: Expr) -> Stmt:
        def vector(yi: Expr, xi: Expr, v: int) -> Stmt:
            value, channel = self._vector(at, first, (yi, xi, v))
            place = self._place(at, first + v * self.geometry.lanes, yi, xi)
            value = self.epilogue.whole(value, channel, place, self.geometry.lanes)
            return emit.store(self.out, place, value, self.geometry.lanes)

        return self._every(vector)

    def _store_elements(self, at: TilePosition, first: Expr) -> Stmt:
        lanes = self.geometry.lanes

        def spill(yi: Expr, xi: Expr, v: int) -> Stmt:
            value, channel = self._vector(at, first, (yi, xi, v))
            value = self.epilogue.biased(value, channel, lanes)
            value = self.epilogue.last(value, (), lanes) if self.early else value
            return emit.store(self.spilled, [self._index(yi, xi, v)], value, lanes)

        rest = self._elements_of(self.spilled, at, first, early=self.early)
        return emit.sequence([self._every(spill), rest])

    def _every(self, body: Callable[[Expr, Expr, int], Stmt]) -> Stmt:
        """Loops over rows and columns, and the vectors of each."""
        tile = self.tile

        def pixel(yi: Expr, xi: Expr) -> Stmt:
            return emit.sequence([body(yi, xi, v) for v in range(tile.vectors)])

        return emit.loop(
            "yi",
            tile.rows,
            lambda yi: emit.loop("xi", tile.columns, lambda xi: pixel(yi, xi)),
        )

    def _vector(
        self, at: TilePosition, first: Expr, place: tuple[Expr, Expr, int]
    ) -> tuple[Expr, Expr]:
        """A vector of sums, and its first channel among those of the packed constants."""
        lanes = self.geometry.lanes
        channel = at.group * self.channels + first + place[2] * lanes
        return emit.load(self.sums, [self._index(*place)], lanes), channel

    def _index(self, yi: Expr, xi: Expr, v: int) -> Expr:
        return (yi * self.tile.columns + xi) * self.block + v * self.geometry.lanes
