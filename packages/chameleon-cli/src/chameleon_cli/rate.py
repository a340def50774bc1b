"""How fast candidates are measured, and how long the rest of them takes."""

from __future__ import annotations

import math
import time
from collections import deque


class Rate:
    """Candidates per second over the last ones, and what they say about the time left.

    Args:
        seconds_left: when the budget's wall-clock ends the run at the latest, or None.
        window: how many candidates the rate is taken over.
    """

    def __init__(self, seconds_left: float | None = None, window: int = 256) -> None:
        self._times: deque[float] = deque([time.monotonic()], maxlen=window)
        self._end = None if seconds_left is None else self._times[0] + seconds_left

    def tick(self) -> None:
        """One more was measured."""
        self._times.append(time.monotonic())

    @property
    def per_second(self) -> float:
        """Candidates per second; 0 before the first."""
        span = self._times[-1] - self._times[0]
        return (len(self._times) - 1) / span if span > 0 else 0.0

    def left(self, count: int | None) -> str:
        """The time that so many more take, or that the budget leaves, as ``3:20``.

        Args:
            count: None where only the wall-clock ends the run.
        """
        if not self.per_second or (count is None and self._end is None):
            return "-"
        expected = math.inf if count is None else count / self.per_second
        if self._end is not None:
            expected = max(0.0, min(expected, self._end - self._times[-1]))
        minutes, seconds = divmod(round(expected), 60)
        return f"{minutes}:{seconds:02d}"
