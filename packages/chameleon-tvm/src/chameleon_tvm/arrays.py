"""Moves of arrays that can be recorded: what NumPy's own names for them would lose."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray


def contiguous(array: NDArray[Any]) -> NDArray[Any]:
    """The array without gaps, in C's order; itself if it is so.

    ``np.ascontiguousarray`` makes a plain array of a subclass, such as one whose moves are
    recorded for a delivered operator.
    """
    return array if array.flags.c_contiguous else array.copy()
