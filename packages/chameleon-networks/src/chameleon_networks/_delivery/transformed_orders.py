"""Finds the order of packed weights that are a linear transform of each filter, as Winograd's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chameleon_networks._compile.sequence.repacking import Order, Pack

_APART = 1e-4
"""Distance of the transforms of a filter at two points, relative to the largest one."""

_AXES = 2
"""Number of the axes of channels, which come before those of a filter."""


def transformed_order(pack: Pack, shape: Sequence[int]) -> Order | None:
    """Find the order in which a function packs transformed filters; None if it is no such order.

    The columns of the order are pairs of an input channel and a point of the transform.

    Args:
        pack: The function. Its results have zeros where they hold no weight.
        shape: The shape of logical weights: output channels, input channels, spatial axes.
    """
    channels, filters = shape[:_AXES], shape[_AXES:]
    # A random filter has another number at each point.
    kernel = np.random.default_rng(0).uniform(1.0, 2.0, filters)

    def packed(numbers: NDArray[np.float64]) -> NDArray[Any]:
        return pack(np.multiply.outer(numbers, kernel).astype(np.float32)).reshape(-1)

    unit = packed(np.ones(channels))
    places = np.flatnonzero(unit)
    if not filters or len(places) == 0:
        return None
    known = np.unique(unit[places])
    starts = np.diff(known, prepend=-np.inf) > _APART * np.abs(known).max()
    numbers = np.cumsum(starts) - 1
    count = int(numbers[-1]) + 1
    points = numbers[np.searchsorted(known, unit[places])]
    found = []
    for axis in range(_AXES):
        own = np.zeros(channels)
        own[(slice(None), 0) if axis == 0 else (0, slice(None))] = np.arange(channels[axis]) + 1
        found.append(np.rint(packed(own)[places] / unit[places]).astype(np.int64) - 1)
    rows, columns = found
    is_row, is_column = (rows >= 0) & (points == 0), columns >= 0
    pairs = columns[is_column] * count + points[is_column]
    by_pair = np.argsort(pairs)
    if not np.array_equal(pairs[by_pair], np.arange(channels[1] * count)):
        return None
    if not np.array_equal(np.unique(rows[is_row]), np.arange(channels[0])):
        return None
    column_places = places[is_column][by_pair]
    return Order(
        rows=rows[is_row],
        row_places=places[is_row],
        column_places=column_places - column_places[0],
        parts=(0,),
    )
