"""Measures the wall-clock seconds of the steps of some work."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator


class Stopwatch:
    """Measures the wall-clock seconds of the steps of some work, which run one at a time.

    Attributes:
        step: The step that was begun last.
    """

    def __init__(self, first: str, since: float | None = None) -> None:
        self.step = first
        self._since = time.monotonic() if since is None else since
        self._seconds: dict[str, float] = {}

    def begin(self, step: str) -> None:
        """End the current step, and begin another; times of steps with equal names are added."""
        now = time.monotonic()
        self._seconds[self.step] = self._seconds.get(self.step, 0.0) + now - self._since
        self.step, self._since = step, now

    @contextlib.contextmanager
    def during(self, step: str) -> Iterator[None]:
        """A context whose time counts for another step, after which the present step continues."""
        before = self.step
        self.begin(step)
        try:
            yield
        finally:
            self.begin(before)

    def until_now(self) -> dict[str, float]:
        """Wall-clock seconds of each step so far, the current one included, by name."""
        self.begin(self.step)
        return dict(self._seconds)
