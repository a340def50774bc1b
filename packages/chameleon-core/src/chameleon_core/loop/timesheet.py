"""Whose wall-clock it was, where several tasks are under way at once."""

from __future__ import annotations

from collections.abc import Callable, Hashable


class Timesheet:
    """Shares every second out equally among what goes on in it.

    So what all of them are given adds up to the time that has passed, and one that goes on alone
    gets all of it.

    Args:
        now: the clock, in seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._mark = now()
        self._shares: dict[Hashable, float] = {}

    def start(self, key: Hashable) -> None:
        """Something begins."""
        self._share_out()
        self._shares[key] = 0.0

    def take(self, key: Hashable) -> float:
        """Its seconds since it began, or since this was last asked."""
        self._share_out()
        share, self._shares[key] = self._shares[key], 0.0
        return share

    def stop(self, key: Hashable) -> float:
        """It ends: as ``take``."""
        share = self.take(key)
        del self._shares[key]
        return share

    def _share_out(self) -> None:
        now = self._now()
        passed, self._mark = now - self._mark, now
        for key in self._shares:
            self._shares[key] += passed / len(self._shares)
