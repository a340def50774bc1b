"""The sizes of convolutions and tiles, padding at borders, and packed weights."""

from __future__ import annotations

import math
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from chameleon_tvm._arrays import contiguous


@attrs.frozen(kw_only=True)
class OuterAxis:
    """A spatial axis outside height and width, such as depth.

    Tiles have an extent of 1 along this axis. ``size`` and ``out`` are the extents of input and
    output, ``pad`` is the number of zeros before the input.
    """

    size: int
    out: int
    kernel: int
    stride: int = 1
    dilation: int = 1
    pad: int = 0

    @property
    def independent(self) -> bool:
        """Whether each output index reads only the same input index, as along a batch axis."""
        return self.kernel == 1 and self.size == self.out and not self.padded

    @property
    def padded(self) -> bool:
        """Whether a tap of any output falls outside the input."""
        return self.pad > 0 or self.padded_extent - self.pad > self.size

    @property
    def padded_extent(self) -> int:
        """Extent of the padded input, without indices that no output reads."""
        return (self.out - 1) * self.stride + (self.kernel - 1) * self.dilation + 1

    @property
    def inside_fraction(self) -> float:
        """The fraction of all products along this axis whose input is not padding."""
        at = np.arange(self.out)[:, None] * self.stride - self.pad
        taps = at + np.arange(self.kernel) * self.dilation
        return float(((taps >= 0) & (taps < self.size)).mean())


@attrs.frozen(kw_only=True)
class Geometry:
    """The sizes of a convolution. Pairs are height and width; channels are those of one group.

    Attributes:
        ic: Input channels of a group.
        oc: Output channels of a group.
        pads: Zeros at the top and at the left. Those at the bottom and right follow.
        layout: Layout of the input, named as if height and width were the only spatial axes.
        out_layout: Layout of the output, named in the same way.
        lanes: Number of elements of a vector register.
        outer: Spatial axes before height and width, outermost first.
    """

    batch: int
    groups: int
    ic: int
    oc: int
    size: tuple[int, int]
    out: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)
    pads: tuple[int, int] = (0, 0)
    layout: str
    out_layout: str
    lanes: int
    outer: tuple[OuterAxis, ...] = ()

    @property
    def taps(self) -> int:
        """Number of taps of a filter."""
        return math.prod((*(axis.kernel for axis in self.outer), *self.kernel))

    @property
    def planes(self) -> int:
        """The product of the input's extents along all spatial axes except height and width."""
        return math.prod(axis.size for axis in self.outer)

    @property
    def out_planes(self) -> int:
        """The product of the output's extents along all spatial axes except height and width."""
        return math.prod(axis.out for axis in self.outer)

    @property
    def padded_size(self) -> tuple[int, int]:
        """Height and width of the padded input, without rows and columns that no output reads."""
        height, width = (axis.padded_extent for axis in self.plane)
        return height, width

    @property
    def padded(self) -> tuple[bool, bool]:
        """Whether any tap lies outside the input, vertically and horizontally."""
        vertical, horizontal = (axis.padded for axis in self.plane)
        return vertical, horizontal

    @property
    def plane(self) -> list[OuterAxis]:
        """Height and width with all of their sizes."""
        numbers = (self.size, self.out, self.kernel, self.stride, self.dilation, self.pads)
        return [
            OuterAxis(size=size, out=out, kernel=kernel, stride=stride, dilation=dilation, pad=pad)
            for size, out, kernel, stride, dilation, pad in zip(*numbers, strict=True)
        ]


@attrs.frozen(kw_only=True)
class Tile:
    """A decoded configuration of a register-tiled template.

    Attributes:
        rows: Output rows of a tile.
        columns: Output columns of a tile.
        vectors: Vectors of output channels of a tile.
        channels: Input channels of a block.
        copy: Whether the input is copied, padded and blocked, instead of read in place.
        channels_outermost: Whether the outermost loop is over output channels, so that weights stay
            in cache, instead of positions, so that inputs do.
        unroll: Input channels per iteration of the innermost loop.
    """

    rows: int
    columns: int
    vectors: int
    channels: int
    copy: bool
    channels_outermost: bool
    unroll: int = 1


def tap_patterns(geometry: Geometry, columns: int) -> NDArray[np.int64]:
    """Number each tile in a row of outputs by its taps outside the input; shape (tiles,).

    Tiles with equal numbers share one piece of code. Numbers are in order of appearance.
    """
    width = geometry.out[1]
    starts = np.minimum(np.arange(math.ceil(width / columns)) * columns, width - columns)
    valid = valid_taps(geometry, starts, columns).reshape(len(starts), -1)
    _, first, inverse = np.unique(valid, axis=0, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse.reshape(-1)]


def valid_taps(geometry: Geometry, starts: NDArray[np.int64], columns: int) -> NDArray[np.bool_]:
    """Whether each tap reads the input, not padding; shape (tiles, tile columns, kernel width)."""
    x = (starts[:, None] + np.arange(columns)) * geometry.stride[1] - geometry.pads[1]
    taps = x[:, :, None] + np.arange(geometry.kernel[1]) * geometry.dilation[1]
    return np.asarray((taps >= 0) & (taps < geometry.size[1]))


def overlapping_blocks(extent: int, block: int) -> NDArray[np.int64]:
    """Indices of an axis in blocks, of shape (blocks, block); the last block ends with the axis."""
    starts = np.minimum(np.arange(math.ceil(extent / block)) * block, extent - block)
    return starts[:, None] + np.arange(block)


def pack_weights(
    weights: NDArray[Any], geometry: Geometry, tile: Tile, depth: int = 1
) -> NDArray[Any]:
    """Arrange weights (O, I, spatial axes) in the order in which the inner loops read them.

    The shape is (groups * blocks, taps * input channels / depth, channels of a block * depth).
    """
    block = tile.vectors * geometry.lanes
    grouped = weights.reshape(geometry.groups, geometry.oc, weights.shape[1], geometry.taps)
    if weights.shape[1] < geometry.ic:
        missing = geometry.ic - weights.shape[1]
        grouped = np.pad(grouped, ((0, 0), (0, 0), (0, missing), (0, 0)))
    if geometry.oc < block:
        missing = block - geometry.oc
        grouped = np.pad(grouped, ((0, 0), (0, missing), (0, 0), (0, 0)))
    extent = grouped.shape[1]
    blocks = math.ceil(extent / block)
    blocked = grouped
    if extent % block:
        blocked = grouped[:, overlapping_blocks(extent, block)]
    outer = geometry.ic // tile.channels
    inner = (tile.channels // depth, depth)
    blocked = blocked.reshape(geometry.groups, blocks, block, outer, *inner, geometry.taps)
    ordered = blocked.transpose(0, 1, 3, 6, 4, 2, 5)
    return contiguous(ordered).reshape(geometry.groups * blocks, -1, block * depth)


def taps_as_channels_pay(geometry: Geometry, depth: int) -> bool:
    """Whether a kernel should treat the adjacent taps of a filter's row as channels of one tap.

    An instruction's ``depth`` channels may then begin in one tap and end in the next.
    """
    adjacent = geometry.groups == 1 and (geometry.dilation[1] == 1 or geometry.kernel[1] == 1)
    return adjacent and geometry.ic % depth != 0


def rows_as_channels(weights: NDArray[Any]) -> NDArray[Any]:
    """Turn each row of a filter into input channels, so that the filter has one column.

    Weights (O, I, outer axes, rows, columns) become (O, columns * I, outer axes, rows, 1).
    """
    moved = np.moveaxis(weights, -1, 1)
    oc, taps, ic, *rest = moved.shape
    return moved.reshape(oc, taps * ic, *rest, 1)


def groups_per_vector(geometry: Geometry) -> int:
    """Number of groups to merge into one with block-diagonal weights, so that it fills a vector."""
    most = geometry.lanes // geometry.oc
    return max(m for m in range(1, max(1, most) + 1) if geometry.groups % m == 0)


def block_diagonal(weights: NDArray[Any], groups: int, merged: int) -> NDArray[Any]:
    """Weights of merged groups with zeros between them; shape (O, ``merged`` * I, spatial axes)."""
    if merged == 1:
        return weights
    oc, ic, *kernel = weights.shape
    grouped = weights.reshape(groups // merged, merged, oc // groups, ic, *kernel)
    shape = (groups // merged, merged, oc // groups, merged, ic, *kernel)
    result = np.zeros_like(weights, order="C", shape=shape)
    for group in range(merged):
        result[:, group, :, group] = grouped[:, group]
    return result.reshape(oc, merged * ic, *kernel)
