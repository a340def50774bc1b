"""Copying an input into the padded, channel-blocked form the inner loops like best."""

from __future__ import annotations

from chameleon_tvm.operators.specs import channel_block, physical_shape
from chameleon_tvm.quick_tvm import tirx
from chameleon_tvm.spaces.template import emit
from chameleon_tvm.spaces.template.emit import Expr, Stmt
from chameleon_tvm.spaces.template.geometry import Geometry


class Input:
    """The input of a convolution, where it is and copied.

    Args:
        geometry: the convolution.
        block: input channels of a block of the copy.
        lanes: elements the inner loops load at once.

    Attributes:
        data: the function's parameter. NHWC has width and channels as one axis, so that taps
            that follow each other in a row are contiguous.
        staged: the copy, of shape (n, channel block, padded row, padded column x channel).
    """

    def __init__(self, geometry: Geometry, block: int, *, lanes: int = 1) -> None:
        g = geometry
        self.geometry = g
        self.block = block
        self.lanes = lanes
        h, w = g.size
        self.channels = g.ic * g.groups
        if g.layout == "NHWC":
            shape: tuple[int, ...] = (g.batch, h, w * self.channels)
        else:
            shape = physical_shape((g.batch, self.channels, h, w), g.layout)
        self.data = emit.buffer("data", shape)
        rows, columns = g.staged_size
        self.blocks = self.channels // block
        self.staged = emit.buffer("staged", (g.batch, self.blocks, rows, columns * block))

    def in_place(self, n: Expr, channel: Expr, row: Expr, column: Expr) -> Expr:
        """The element at a row and column of the padded input that lie in the input itself."""
        top, left = self.geometry.pads
        return emit.load(self.data, self._place(n, channel, row - top, column - left), self.lanes)

    def copied(self, n: Expr, block: Expr, row: Expr, column: Expr, c: Expr) -> Expr:
        """The element of the copy at a row and column of the padded input."""
        return emit.load(self.staged, [n, block, row, column * self.block + c], self.lanes)

    def copy(self) -> Stmt:
        """Copy everything, parallel over rows."""
        g = self.geometry
        rows, columns = g.staged_size
        top, left = g.pads
        inside = max(0, min(g.size[1], columns - left))

        def row(index: Expr) -> Stmt:
            n, block, y = emit.split(index, (g.batch, self.blocks, rows))
            copied = emit.sequence(
                [
                    *self._blank(n, block, y, 0, left),
                    self._copy_row(n, block, y, inside),
                    *self._blank(n, block, y, left + inside, columns - left - inside),
                ]
            )
            if top == 0 and rows <= g.size[0]:
                return copied
            blank = emit.sequence(self._blank(n, block, y, 0, columns))
            return emit.choose([(tirx.all(y >= top, y < g.size[0] + top), copied)], blank)

        return emit.parallel("row", g.batch * self.blocks * rows, row)

    def _blank(self, n: Expr, block: Expr, y: Expr, start: int, count: int) -> list[Stmt]:
        if count <= 0:
            return []

        def clear(z: Expr) -> Stmt:
            return emit.store(self.staged, [n, block, y, start * self.block + z], emit.zero())

        return [emit.loop("z", count * self.block, clear)]

    def _copy_row(self, n: Expr, block: Expr, y: Expr, inside: int) -> Stmt:
        top, left = self.geometry.pads
        size = self.block

        def element(x: Expr, c: Expr) -> Stmt:
            value = emit.load(self.data, self._place(n, block * size + c, y - top, x))
            return emit.store(self.staged, [n, block, y, (x + left) * size + c], value)

        if self.geometry.layout == "NHWC" and size == self.channels:
            return emit.loop("xc", inside * size, lambda xc: element(0, xc))
        return emit.loop("x", inside, lambda x: emit.loop("c", size, lambda c: element(x, c)))

    def _place(self, n: Expr, c: Expr, y: Expr, x: Expr) -> list[Expr]:
        """Where an element is, for a channel counted over all groups."""
        layout = self.geometry.layout
        if layout == "NHWC":
            return [n, y, x * self.channels + c]
        if layout == "NCHW":
            return [n, c, y, x]
        size = channel_block(layout)
        return [n, tirx.floordiv(c, size), y, x, tirx.floormod(c, size)]
