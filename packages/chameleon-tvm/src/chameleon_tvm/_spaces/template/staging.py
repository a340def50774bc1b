"""Copies the input of a convolution into the padded and blocked form of the inner loops."""

from __future__ import annotations

import math
from collections.abc import Sequence

from chameleon_tvm import _emit as emit
from chameleon_tvm._emit import Expr, Stmt
from chameleon_tvm._late_tvm import tirx
from chameleon_tvm._operators.specs import physical_index, physical_shape
from chameleon_tvm._spaces.template.arithmetic import FLOAT32, Arithmetic
from chameleon_tvm._spaces.template.geometry import Geometry


class Input:
    """The input of a convolution, in place and as a copy.

    Planes (height x width) of outer axes, such as depth, lie below each other, as if they were rows
    of one tall image. The copy contains the padding of height and width, around each plane. It does
    not contain the padding along outer axes, because kernels skip the taps there.

    Args:
        repeat: Number of times that the copy repeats each channel of the input. It is above 1 for
            depthwise convolutions with several filters per channel, and ``geometry`` counts the
            repeated channels.
        channels: Number of channels of the input in all groups; by default that of ``geometry``. If
            the input has fewer channels, the copy has one block for each group, padded with zeros.
        zero_point: Zero point of the data in float32; None if the data have none.
        pitch: Number of elements of the copy from a column to the next one; None for ``block``.

    Attributes:
        data: The function's parameter. In NHWC with ``rows``, width and channels are one axis, so
            that successive taps of a row are contiguous. Without ``rows``, the input may be some of
            the channels of a larger array.
        staged: The copy, of shape (part x n, channel block, plane x padded row, padded column x
            channel).
    """

    def __init__(
        self,
        geometry: Geometry,
        block: int,
        *,
        rows: bool,
        lanes: int = 1,
        repeat: int = 1,
        arithmetic: Arithmetic = FLOAT32,
        channels: int | None = None,
        zero_point: Expr | None = None,
        spare: int = 0,
        parts: int = 1,
        pitch: int | None = None,
    ) -> None:
        g = geometry
        self.geometry = g
        self.block = block
        self.pitch = block if pitch is None else pitch
        self.lanes = lanes
        self.repeat = repeat
        h, w = g.size
        self.arithmetic = arithmetic
        self.zero_point = zero_point
        self.channels = g.ic * g.groups // repeat if channels is None else channels
        self.one_axis = rows and g.layout == "NHWC"
        shape = physical_shape((g.batch, self.channels, g.planes * h, w), g.layout)
        if self.one_axis:
            shape = (g.batch, g.planes * h, w * self.channels)
        self.data = emit.buffer("data", shape, dtype=arithmetic.data.storage_dtype)
        height, columns = g.staged_size
        self.blocks = math.ceil(g.ic * g.groups / block)
        self.staged = emit.buffer(
            "staged",
            (parts * g.batch, self.blocks, g.planes * height, columns * self.pitch + spare),
            dtype=arithmetic.read,
        )

    def in_place(
        self, n: Expr, channel: Expr, outer: Sequence[Expr], row: Expr, column: Expr
    ) -> Expr:
        """Read an element of the unpadded input by the element's position in the padded input.

        The position must not be in the padding.
        """
        top, left = self.geometry.pads
        y = self._row(outer, row - top, self.geometry.size[0])
        return emit.load(self.data, self._place(n, channel, y, column - left), self.lanes)

    def copied(
        self, n: Expr, block: Expr, outer: Sequence[Expr], row: Expr, last: tuple[Expr, Expr]
    ) -> Expr:
        """Read an element of the padded copy of the input."""
        y = self._row(outer, row, self.geometry.staged_size[0])
        column, c = last
        return emit.load(self.staged, [n, block, y, column * self.pitch + c], self.lanes)

    def copy(self) -> Stmt:
        """Statement that makes the whole copy, parallel over rows."""
        g = self.geometry
        rows, _ = g.staged_size
        count = g.batch * self.blocks * g.planes * rows
        if count == 1 and not self.arithmetic.as_they_are:
            # Templates that need no copy have the choice of reading in place instead.
            return self._copied_row(0)
        return emit.parallel("row", count, self._copied_row)

    def _copied_row(self, index: Expr) -> Stmt:
        """Statement that makes one row of the copy, padding included."""
        g = self.geometry
        rows, columns = g.staged_size
        top, left = g.pads
        inside = max(0, min(g.size[1], columns - left))
        n, block, plane, y = emit.split(index, (g.batch, self.blocks, g.planes, rows))
        at = [n, block, emit.join((plane, y), (g.planes, rows))]
        copied = emit.sequence(
            [
                *self._blank(at, 0, left * self.pitch),
                *self._copy_row(at, emit.join((plane, y - top), (g.planes, g.size[0])), inside),
                *self._blank(
                    at, (left + inside) * self.pitch, (columns - left - inside) * self.pitch
                ),
            ]
        )
        if top == 0 and rows <= g.size[0]:
            return copied
        blank = emit.sequence(self._blank(at, 0, columns * self.pitch))
        return emit.choose([(tirx.all(y >= top, y < g.size[0] + top), copied)], blank)

    def _blank(self, at: list[Expr], start: Expr, count: int) -> list[Stmt]:
        """Statements that write padding into a row of the copy."""
        if count <= 0:
            return []

        return [emit.loop("z", count, lambda z: self._clear([*at, start + z]))]

    def _clear(self, place: list[Expr]) -> Stmt:
        """Statement that writes padding to a place of the copy."""
        return emit.store(self.staged, place, self.arithmetic.blank(self.zero_point))

    def _write(self, place: list[Expr], value: Expr) -> Stmt:
        """Statement that writes an element of the input to a place of the copy."""
        return emit.store(self.staged, place, self.arithmetic.converted(value, self.zero_point))

    def _copy_row(self, at: list[Expr], y: Expr, inside: int) -> list[Stmt]:
        """Statements that copy row ``y`` of the input's tall image."""
        _, left = self.geometry.pads
        n, block, _ = at
        size = self.block
        # Channels of a block that the input has.
        there = min(size, self.channels * self.repeat // min(self.blocks, self.geometry.groups))

        def element(x: Expr, c: Expr) -> Stmt:
            channel = block * there + c
            if self.repeat > 1:
                channel = tirx.floordiv(channel, self.repeat)
            value = emit.load(self.data, self._place(n, channel, y, x))
            return self._write([*at, (x + left) * self.pitch + c], value)

        def pixel(x: Expr) -> Stmt:
            rest = self._blank(at, (x + left) * self.pitch + there, size - there)
            return emit.sequence([emit.loop("c", there, lambda c: element(x, c)), *rest])

        if inside <= 0:
            return []
        if self.one_axis and size == self.channels == self.pitch:
            return [emit.loop("xc", inside * size, lambda xc: element(0, xc))]
        return [emit.loop("x", inside, pixel)]

    def _row(self, outer: Sequence[Expr], y: Expr, rows: int) -> Expr:
        """Index in the tall image of a row of a plane."""
        sizes = [axis.size for axis in self.geometry.outer]
        return emit.join((*outer, y), (*sizes, rows))

    def _place(self, n: Expr, c: Expr, y: Expr, x: Expr) -> list[Expr]:
        """Indices of an element of the tall image; ``c`` counts channels over all groups."""
        if self.one_axis:
            return [n, y, x * self.channels + c]
        return physical_index((n, c, y, x), self.geometry.layout)
