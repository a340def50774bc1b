"""Selects assignments of dtypes to operators on the Pareto front of error and seconds.

A partial assignment has dtypes for the first operators only.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MAX_PARTIAL_ASSIGNMENTS = 20_000
"""Most partial assignments that are kept at a time."""

INTERVALS = 64
"""Number of intervals of the error. If fronts are too long, each interval keeps its fastest
assignments."""


@attrs.frozen(kw_only=True)
class Assignment:
    """A dtype for each operator of a network, with the error and the seconds that follow.

    Attributes:
        types: The index of each operator's dtype in the list of dtypes; 0 is float32.
        error: The sum of the errors that the operators add.
        seconds: Seconds of all operators and conversions.
    """

    types: tuple[int, ...]
    error: float
    seconds: float


def spread_evenly(front: Sequence[Assignment], most: int) -> list[Assignment]:
    """Select at most ``most`` assignments of a front, spread evenly from slowest to fastest."""
    if len(front) <= most:
        return list(front)
    seconds = np.array([assignment.seconds for assignment in front])
    wanted = np.linspace(seconds[0], seconds[-1], most)
    places = {int(np.abs(seconds - goal).argmin()) for goal in wanted}
    return [front[index] for index in sorted({0, len(front) - 1, *places})]


def pareto_front(assignments: Sequence[Assignment]) -> list[Assignment]:
    """Select the Pareto-optimal assignments, sorted by rising error and falling seconds."""
    front: list[Assignment] = []
    for row in sorted(assignments, key=lambda row: (row.error, row.seconds, row.types)):
        if not front or row.seconds < front[-1].seconds:
            front.append(row)
    return front


def pareto_rows(states: NDArray[np.intp], errors: Floats, seconds: Floats) -> NDArray[np.intp]:
    """The indices of the Pareto-optimal partial assignments of each state, without ties."""
    order = np.lexsort((seconds, errors, states))
    starts = np.flatnonzero(np.diff(states[order], prepend=-1))
    rows = []
    for group in np.split(order, starts[1:]):
        least = np.minimum.accumulate(seconds[group])
        rows.append(group[np.append(True, seconds[group][1:] < least[:-1])])
    return np.concatenate(rows)


def thin(
    rows: NDArray[np.intp], states: NDArray[np.intp], errors: Floats, seconds: Floats, *, most: int
) -> NDArray[np.intp]:
    """Select about ``most`` assignments: the fastest of each state in intervals of the error."""
    row_errors = errors[rows]
    # Geometric intervals suit every bound; an error of 0 has its own interval.
    positive = row_errors[row_errors > 0.0]
    edges = (
        np.geomspace(positive.min(), positive.max(), INTERVALS) if len(positive) else row_errors[:1]
    )
    intervals = np.searchsorted(edges, row_errors, side="right")
    order = np.lexsort((seconds[rows], intervals, states))
    starts_cell = np.diff(states[order], prepend=-1) | np.diff(intervals[order], prepend=-1)
    order = order[np.flatnonzero(starts_cell)]
    if len(order) > most:
        # There are still too many: keep the fastest rows of each interval, whatever their states.
        by_interval = order[np.lexsort((seconds[rows[order]], intervals[order]))]
        _, starts = np.unique(intervals[by_interval], return_index=True)
        rank = np.arange(len(by_interval)) - np.repeat(
            starts, np.diff(np.append(starts, len(by_interval)))
        )
        order = by_interval[rank < max(1, most // (INTERVALS + 1))]
    return rows[order]
