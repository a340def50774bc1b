"""Sizes of a convolution, tiles of a template, borders and packed weights."""

from __future__ import annotations

import math
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from chameleon_tvm.arrays import contiguous


@attrs.frozen(kw_only=True)
class OuterAxis:
    """A spatial axis outside height and width, such as depth.

    Tiles have an extent of 1 along it, and taps in its padding are never computed.

    Attributes:
        size: of the input.
        out: of the output.
        kernel: of the filter.
        stride: steps.
        dilation: distance between taps.
        pad: zeros before; those after follow.
    """

    size: int
    out: int
    kernel: int
    stride: int = 1
    dilation: int = 1
    pad: int = 0

    @property
    def independent(self) -> bool:
        """Whether each place depends on its own input alone, as images of a batch do."""
        return self.kernel == 1 and self.size == self.out and not self.padded

    @property
    def padded(self) -> bool:
        """Whether some tap falls outside the input."""
        staged = (self.out - 1) * self.stride + (self.kernel - 1) * self.dilation + 1
        return self.pad > 0 or staged - self.pad > self.size

    @property
    def inside(self) -> float:
        """Fraction of all taps that fall inside the input."""
        at = np.arange(self.out)[:, None] * self.stride - self.pad
        taps = at + np.arange(self.kernel) * self.dilation
        return float(((taps >= 0) & (taps < self.size)).mean())


@attrs.frozen(kw_only=True)
class Geometry:
    """A convolution's sizes; channels are those of one group.

    One of a single spatial axis has a height of 1.

    Attributes:
        batch: images.
        groups: groups.
        ic: input channels of a group.
        oc: output channels of a group.
        size: input height and width.
        out: output height and width.
        kernel: filter height and width.
        stride: steps down and right.
        dilation: distances between taps.
        pads: zeros at the top and at the left; those below and to the right follow.
        layout: of the input, named as though height and width were the only spatial axes.
        out_layout: of the output, likewise.
        lanes: elements of a vector register.
        outer: spatial axes before height and width, outermost first.
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
        """Taps of a filter."""
        return math.prod((*(axis.kernel for axis in self.outer), *self.kernel))

    @property
    def planes(self) -> int:
        """Planes of height and width of one image of the input."""
        return math.prod(axis.size for axis in self.outer)

    @property
    def out_planes(self) -> int:
        """Planes of height and width of one image of the output."""
        return math.prod(axis.out for axis in self.outer)

    @property
    def staged_size(self) -> tuple[int, int]:
        """Height and width of the padded input that the output depends on."""
        height, width = (
            (out - 1) * stride + (kernel - 1) * dilation + 1
            for out, stride, kernel, dilation in zip(
                self.out, self.stride, self.kernel, self.dilation, strict=True
            )
        )
        return height, width

    @property
    def padded(self) -> tuple[bool, bool]:
        """Whether some tap falls outside the input: vertically, horizontally."""
        vertical, horizontal = (
            before > 0 or staged - before > size
            for before, staged, size in zip(self.pads, self.staged_size, self.size, strict=True)
        )
        return vertical, horizontal


@attrs.frozen(kw_only=True)
class Tile:
    """A point of the design space, decoded.

    Attributes:
        rows: output rows of a tile.
        columns: output columns of a tile.
        vectors: vectors of output channels of a tile.
        channels: input channels of a block.
        copy: whether the input is first copied, padded and blocked; else it is read in place
            and taps in the padding are skipped.
        channels_outermost: whether output channels are the outermost parallel loop (a block of
            weights stays in cache) rather than positions (a tile of input does).
        unroll: input channels per iteration of the innermost loop.
    """

    rows: int
    columns: int
    vectors: int
    channels: int
    copy: bool
    channels_outermost: bool
    unroll: int = 1


def tap_patterns(geometry: Geometry, columns: int) -> NDArray[np.int64]:
    """The class of border that every tile of a row belongs to.

    Tiles of one class have the same taps outside the input, left and right, so one piece of code
    serves them all. Class numbers count from 0 in order of appearance.
    """
    width = geometry.out[1]
    starts = np.minimum(np.arange(math.ceil(width / columns)) * columns, width - columns)
    valid = valid_taps(geometry, starts, columns).reshape(len(starts), -1)
    _, first, inverse = np.unique(valid, axis=0, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse.reshape(-1)]


def valid_taps(geometry: Geometry, starts: NDArray[np.int64], columns: int) -> NDArray[np.bool_]:
    """Whether taps are inside the input, shape (tiles, columns of a tile, kernel width)."""
    x = (starts[:, None] + np.arange(columns)) * geometry.stride[1] - geometry.pads[1]
    taps = x[:, :, None] + np.arange(geometry.kernel[1]) * geometry.dilation[1]
    inside: NDArray[np.bool_] = (taps >= 0) & (taps < geometry.size[1])
    return inside


def pack_weights(
    weights: NDArray[Any], geometry: Geometry, tile: Tile, depth: int = 1
) -> NDArray[Any]:
    """(O, I, spatial axes) weights in the order the inner loops read them.

    Args:
        weights: of a group that may have fewer input channels than the geometry's; of the others
            they are zero.
        geometry: the convolution.
        tile: the point of the design space.
        depth: input channels that are multiplied together: their weights are neighbours.

    Returns:
        Shape (groups * blocks, taps and ``depth`` input channels, output channels of a block times
        ``depth``).
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
        starts = np.minimum(np.arange(blocks) * block, extent - block)
        blocked = grouped[:, starts[:, None] + np.arange(block)]
    outer = geometry.ic // tile.channels
    inner = (tile.channels // depth, depth)
    blocked = blocked.reshape(geometry.groups, blocks, block, outer, *inner, geometry.taps)
    ordered = blocked.transpose(0, 1, 3, 6, 4, 2, 5)
    return contiguous(ordered).reshape(geometry.groups * blocks, -1, block * depth)


def row_runs(geometry: Geometry, depth: int) -> Geometry | None:
    """The convolution itself if its rows of taps had better be channels of one tap.

    That is if ``depth`` input channels are multiplied together and do not divide those of a
    tap: they go on with the next tap's, which are its neighbours. None elsewhere.
    """
    neighbours = geometry.groups == 1 and (geometry.dilation[1] == 1 or geometry.kernel[1] == 1)
    return geometry if neighbours and geometry.ic % depth else None


def rows_as_channels(weights: NDArray[Any]) -> NDArray[Any]:
    """(O, I, outer axes, rows, columns) weights with the columns' taps as input channels.

    Returns:
        Shape (O, columns * I, outer axes, rows, 1), or without rows if there are none.
    """
    moved = np.moveaxis(weights, -1, 1)
    oc, taps, ic, *rest = moved.shape
    return moved.reshape(oc, taps * ic, *rest, 1)


def groups_per_vector(geometry: Geometry) -> int:
    """How many groups a vector of output channels holds, if one group does not fill it.

    Their weights are then block-diagonal. That takes no multiply-add more than a vector for each
    group, whose other lanes would compute nothing.
    """
    most = geometry.lanes // geometry.oc
    return max(m for m in range(1, max(1, most) + 1) if geometry.groups % m == 0)


def block_diagonal(weights: NDArray[Any], groups: int, together: int) -> NDArray[Any]:
    """Weights of a convolution that has several of the groups in one.

    Args:
        weights: (O, I, spatial axes), I being the input channels of a group.
        groups: groups before.
        together: groups in one, a divisor of ``groups``.

    Returns:
        Shape (O, ``together`` * I, spatial axes).
    """
    if together == 1:
        return weights
    oc, ic, *kernel = weights.shape
    grouped = weights.reshape(groups // together, together, oc // groups, ic, *kernel)
    shape = (groups // together, together, oc // groups, together, ic, *kernel)
    result = np.zeros_like(weights, order="C", shape=shape)
    for group in range(together):
        result[:, group, :, group] = grouped[:, group]
    return result.reshape(oc, together * ic, *kernel)
