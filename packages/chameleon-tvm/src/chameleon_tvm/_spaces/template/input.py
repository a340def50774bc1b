"""The input of a convolution, and its copy in the padded and blocked form of the inner loops."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from chameleon_tvm import _emit as emit
from chameleon_tvm._emit import Expr, Stmt
from chameleon_tvm._late_tvm import tirx
from chameleon_tvm._open_axes import BATCH, INPUT_HEIGHT, INPUT_WIDTH, extent_of
from chameleon_tvm._operators.layouts import physical_index, physical_shape
from chameleon_tvm._spaces.template.arithmetic import FLOAT32_ARITHMETIC, Arithmetic
from chameleon_tvm._spaces.template.geometry import Geometry


class Input:
    """The input of a convolution, in place and as a copy.

    Planes (height x width) of outer axes lie below each other, as rows of one tall image. The copy
    contains the padding of height and width, but not that of outer axes, whose taps are skipped.

    Args:
        block: Input channels of a block of the copy.
        rows: Whether a loop may run over the channels of several neighbouring columns.
        lanes: Number of elements of a load.
        repeat: Number of copies of each channel, for depthwise convolutions with several filters
            per channel. ``geometry`` counts all copies.
        channels: Number of channels of the input in all groups, if ``geometry`` pads them.
        overread: Number of elements beyond the end of a row that the kernel may read.
        parts: Number of parts of the copy, each of the size of all images.
        pitch: Number of elements of the copy from a column to the next one; None for ``block``.

    Attributes:
        data: The function's parameter. In NHWC with ``rows``, width and channels are one axis.
        axes: The names of the open axes that rows and columns may be.
        copy_buffer: Shape (part x n, channel block, plane x padded row, padded column x channel).
    """

    def __init__(
        self,
        geometry: Geometry,
        block: int,
        *,
        rows: bool,
        lanes: int = 1,
        repeat: int = 1,
        arithmetic: Arithmetic = FLOAT32_ARITHMETIC,
        channels: int | None = None,
        zero_point: Expr | None = None,
        overread: int = 0,
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
        self.axes = INPUT_HEIGHT, INPUT_WIDTH
        self.arithmetic = arithmetic
        self.zero_point = zero_point
        self.channels = g.ic * g.groups // repeat if channels is None else channels
        self.one_axis = rows and g.layout == "NHWC"
        shape = physical_shape((g.batch, self.channels, g.planes * h, w), g.layout)
        if self.one_axis:
            shape = (g.batch, g.planes * h, w * self.channels)
        self.data = emit.buffer("data", shape, dtype=arithmetic.data.storage_dtype)
        height, columns = g.padded_size
        self.blocks = math.ceil(g.ic * g.groups / block)
        self.copy_buffer = emit.buffer(
            "staged",
            (parts * g.batch, self.blocks, g.planes * height, columns * self.pitch + overread),
            dtype=arithmetic.input_dtype,
        )

    def load_in_place(
        self, n: Expr, channel: Expr, outer: Sequence[Expr], row: Expr, column: Expr
    ) -> Expr:
        """Read the unpadded input at a position of the padded input, not in the padding."""
        top, left = self.geometry.pads
        y = self._tall_row(outer, row - top, self.geometry.size[0])
        return emit.load(self.data, self._indices(n, channel, y, column - left), self.lanes)

    def load_copy(
        self, n: Expr, block: Expr, outer: Sequence[Expr], row: Expr, last: tuple[Expr, Expr]
    ) -> Expr:
        """Read an element of the padded copy of the input."""
        y = self._tall_row(outer, row, self.geometry.padded_size[0])
        column, c = last
        return emit.load(self.copy_buffer, [n, block, y, column * self.pitch + c], self.lanes)

    def make_copy(self) -> Stmt:
        """Make the whole copy, parallel over rows."""
        count = math.prod(self._row_extents)
        if emit.is_number(count, 1) and not self.arithmetic.reads_storage_dtype:
            # No parallel loop is needed for one row of a copy that the template needs for its
            # arithmetic.
            return self._make_row(0)
        return self._each_row(count)

    @property
    def _row_extents(self) -> tuple[Expr, int, int, Expr]:
        """Images, channel blocks, planes and rows of the copy."""
        g = self.geometry
        rows, _ = g.padded_size
        called = extent_of(self.axes[0], g.size[0])
        if not isinstance(called, int):
            rows = tirx.min(rows, g.pads[0] + called)
        return extent_of(BATCH, g.batch), self.blocks, g.planes, rows

    def _each_row(self, count: Expr) -> Stmt:
        """Make all rows of the copy."""
        return emit.parallel("row", count, self._make_row)

    def _make_row(self, index: Expr) -> Stmt:
        """Make one row of the copy, padding included."""
        g = self.geometry
        rows, columns = g.padded_size
        top, left = g.pads
        columns_inside = max(0, min(g.size[1], columns - left))
        n, block, plane, y = emit.split(index, self._row_extents)
        row_indices = [n, block, emit.join((plane, y), (g.planes, rows))]
        load_copy = emit.sequence(
            [
                *self._pad(row_indices, 0, left * self.pitch),
                *self._copy_row(
                    row_indices, emit.join((plane, y - top), (g.planes, g.size[0])), columns_inside
                ),
                *self._pad(
                    row_indices,
                    (left + columns_inside) * self.pitch,
                    (columns - left - columns_inside) * self.pitch,
                ),
            ]
        )
        if top == 0 and rows <= g.size[0]:
            return load_copy
        blank = emit.sequence(self._pad(row_indices, 0, columns * self.pitch))
        return emit.branch([(tirx.all(y >= top, y < g.size[0] + top), load_copy)], blank)

    def _pad(self, row_indices: list[Expr], start: Expr, count: int) -> list[Stmt]:
        """Write padding into a row of the copy."""
        if count <= 0:
            return []

        return [emit.loop("z", count, lambda z: self._store_padding([*row_indices, start + z]))]

    def _store_padding(self, place: list[Expr]) -> Stmt:
        """Write padding to a place of the copy."""
        return emit.store(self.copy_buffer, place, self.arithmetic.padding(self.zero_point))

    def _store_element(self, place: list[Expr], value: Expr) -> Stmt:
        """Write an element of the input to a place of the copy."""
        return emit.store(self.copy_buffer, place, self.arithmetic.convert(value, self.zero_point))

    def _copy_row(self, row_indices: list[Expr], y: Expr, columns_inside: int) -> list[Stmt]:
        """Copy row ``y`` of the input's tall image."""
        _, left = self.geometry.pads
        n, block, _ = row_indices
        size = self.block
        # The number of channels of a block that exist in the input.
        present = min(size, self.channels * self.repeat // min(self.blocks, self.geometry.groups))

        def element(x: Expr, c: Expr, lanes: int = 1) -> Stmt:
            channel = block * present + c
            if self.repeat > 1:
                channel = tirx.floordiv(channel, self.repeat)
            value = emit.load(self.data, self._indices(n, channel, y, x), lanes)
            return self._store_element([*row_indices, (x + left) * self.pitch + c], value)

        def pixel(x: Expr) -> Stmt:
            channels = self._copy_channels(present, partial(element, x))
            rest = self._pad(row_indices, (x + left) * self.pitch + present, size - present)
            return emit.sequence([*channels, *rest])

        if columns_inside <= 0:
            return []
        called = extent_of(self.axes[1], self.geometry.size[1])
        columns: Expr = columns_inside
        if not isinstance(called, int):
            columns = tirx.min(columns_inside, called)
        if self.one_axis and size == self.channels == self.pitch:
            return [emit.loop("xc", columns * size, lambda xc: element(0, xc))]
        return [emit.loop("x", columns, pixel)]

    def _copy_channels(self, count: int, element: Callable[..., Stmt]) -> list[Stmt]:
        """Copy the channels of a pixel; ``element`` takes a channel."""
        return [emit.loop("c", count, element)]

    def _tall_row(self, outer: Sequence[Expr], y: Expr, rows: int) -> Expr:
        """Index in the tall image of a row of a plane."""
        sizes = [axis.size for axis in self.geometry.outer]
        return emit.join((*outer, y), (*sizes, rows))

    def _indices(self, n: Expr, c: Expr, y: Expr, x: Expr) -> list[Expr]:
        """Indices of an element of the tall image; ``c`` counts channels over all groups."""
        if self.one_axis:
            return [n, y, x * self.channels + c]
        return physical_index((n, c, y, x), self.geometry.layout)
