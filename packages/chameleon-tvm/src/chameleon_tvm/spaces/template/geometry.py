"""Sizes of a convolution, tiles of a template, borders and packed weights."""

from __future__ import annotations

import math

import attrs
import numpy as np
from numpy.typing import NDArray


@attrs.frozen(kw_only=True)
class Geometry:
    """A convolution's sizes; channels are those of one group.

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
        layout: of the input.
        out_layout: of the output.
        lanes: elements of a vector register.
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
    """For every tile of a row, which class of border it belongs to.

    Tiles of one class have the same taps outside the input, left and right, so one piece of
    code serves them all; class numbers count from 0 in order of appearance.
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
    weights: NDArray[np.float32], geometry: Geometry, tile: Tile
) -> NDArray[np.float32]:
    """(O, I, H, W) weights in the order the inner loops read them.

    Returns:
        Shape (groups * blocks, taps and input channels, output channels of a block).
    """
    block = tile.vectors * geometry.lanes
    kh, kw = geometry.kernel
    grouped = weights.reshape(geometry.groups, geometry.oc, geometry.ic, kh, kw)
    if geometry.oc < block:
        missing = block - geometry.oc
        grouped = np.pad(grouped, ((0, 0), (0, missing), (0, 0), (0, 0), (0, 0)))
    extent = grouped.shape[1]
    blocks = math.ceil(extent / block)
    taken = grouped
    if extent % block:
        starts = np.minimum(np.arange(blocks) * block, extent - block)
        taken = grouped[:, starts[:, None] + np.arange(block)]
    outer = geometry.ic // tile.channels
    taken = taken.reshape(geometry.groups, blocks, block, outer, tile.channels, kh, kw)
    ordered = taken.transpose(0, 1, 3, 5, 6, 4, 2)
    return np.ascontiguousarray(ordered).reshape(geometry.groups * blocks, -1, block)
