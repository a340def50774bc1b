"""Which of some points nothing else is better than in every respect."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def non_dominated(values: NDArray[np.floating[Any]]) -> NDArray[np.intp]:
    """The points that no other point dominates (the Pareto front of minimisation).

    A point dominates another one where it is at most as large in every quantity and smaller in one.
    Of equal points all are kept.

    Args:
        values: one row a point and one column a quantity, shape (n, quantities); all finite.

    Returns:
        Rows of ``values``, by rising first quantity (equal ones by the next, and so on).
    """
    # A point is dominated, if at all, by one that precedes it in this order.
    order = np.lexsort(values.T[::-1])
    kept: list[int] = []
    for row in order:
        front = values[kept]
        dominated = (front <= values[row]).all(axis=1) & (front < values[row]).any(axis=1)
        if not dominated.any():
            kept.append(int(row))
    return np.array(kept, np.intp)


__all__ = ["non_dominated"]
