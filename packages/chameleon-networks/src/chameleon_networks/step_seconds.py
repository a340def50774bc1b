"""How long the steps of something took, one after the other."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator


class StepSeconds:
    """The seconds of each step of some work, and its step now.

    Args:
        first: name of the step that it is in.
        since: when that step began, by ``time.monotonic``, which processes of one machine share;
            now if None.
    """

    def __init__(self, first: str, since: float | None = None) -> None:
        self._step = first
        self._since = time.monotonic() if since is None else since
        self._seconds: dict[str, float] = {}

    @property
    def step(self) -> str:
        """The step that was begun last."""
        return self._step

    def begin(self, step: str) -> None:
        """End the step before and begin another; one that comes again gets its seconds added."""
        now = time.monotonic()
        self._seconds[self._step] = self._seconds.get(self._step, 0.0) + now - self._since
        self._step, self._since = step, now

    @contextlib.contextmanager
    def during(self, step: str) -> Iterator[None]:
        """A step in the middle of another, which goes on afterwards."""
        before = self._step
        self.begin(step)
        try:
            yield
        finally:
            self.begin(before)

    def until_now(self) -> dict[str, float]:
        """Wall-clock seconds of each step, in their order, the one that goes on included."""
        self.begin(self._step)
        return dict(self._seconds)
