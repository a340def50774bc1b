"""Estimates how much code it takes to skip products with padding (see ``borders``)."""

from __future__ import annotations

from typing import Any

import numpy as np

from chameleon_tvm._spaces.sketch.borders import MAX_PIECES
from chameleon_tvm._spaces.sketch.nest import Axis, Extents, Nest, product

_MIDDLE = 3
"""Number of tiles from which an axis has a first, a middle and a last tile."""


def pieces_of_borders(nest: Nest, extents: list[Extents]) -> tuple[Any, Any]:
    """The copies of the innermost loops that it takes to skip products with padding.

    The second result says whether the copies contain no condition. Both have shape (n,) or (1,).
    """
    start = nest.levels[-1]
    split_from = nest.levels[-2] if len(nest.levels) > 1 else start
    tile = nest.tile(start, extents)
    pieces: Any = np.ones(1)
    clean: Any = np.ones(1, bool)
    for axis, window in _windows(nest):
        width = tile[axis.name]
        tiles = axis.extent / width
        copies = window.extent + np.minimum(tiles, _MIDDLE) - 1
        pieces = pieces * np.where(width > 1, copies, 1)
        # The window's loop must be inside all loops of its axis, except that of the tile.
        late = _product_of(nest, extents, window, 0, split_from) == 1
        alone = _product_of(nest, extents, axis, nest.first_reduction_part, start) == 1
        clean = clean & ((width == 1) | late | alone)
        if axis.name == nest.parts[-1].axis.name:
            clean = clean & (width == 1)
    return pieces, clean & (pieces <= MAX_PIECES) & ~_fused_lanes(nest, extents)


def _fused_lanes(nest: Nest, extents: list[Extents]) -> Any:
    """Whether vectors extend over the next loop, which then cannot be split at the border."""
    whole = extents[-1] == nest.parts[-1].axis.extent
    fits = extents[-1] * extents[-2] <= float(nest.max_vector or 1)
    return whole & fits & (extents[-2] > 1)


def _windows(nest: Nest) -> list[tuple[Axis, Axis]]:
    """Pairs of a spatial and a reduction axis on which one index of an input depends."""
    windows: dict[str, tuple[Axis, Axis]] = {}
    axes = {axis.name: axis for axis in nest.axes}
    for access in nest.accesses:
        for dimension in access.strides if not access.written else ():
            spatial = [axes[name] for name in dimension if not axes[name].reduction]
            summed = [a for a in map(axes.__getitem__, dimension) if a.reduction and a.extent > 1]
            if len(spatial) == 1 and len(summed) == 1:
                windows[spatial[0].name] = (spatial[0], summed[0])
    return list(windows.values())


def _product_of(nest: Nest, extents: list[Extents], axis: Axis, start: int, end: int) -> Any:
    parts = zip(nest.parts[start:end], extents[start:end], strict=True)
    return product(extent for part, extent in parts if part.axis.name == axis.name)
