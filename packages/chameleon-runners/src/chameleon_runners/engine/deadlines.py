"""Deadlines derived from what was seen so far, so that hopeless candidates cost little."""

from __future__ import annotations

import math
import statistics

from chameleon_runners.timing_options import TimingOptions

_ENOUGH = 8
_BUILD_FACTOR = 20.0
_CHECK_FACTOR = 4.0


class Deadlines:
    """Time-outs of one task, in seconds, counted from the start of the work.

    Args:
        options: the runner's options, which bound them.
    """

    def __init__(self, options: TimingOptions) -> None:
        self._options = options
        self._builds: list[float] = []
        self._longest_run = 0.0

    def built(self, seconds: float) -> None:
        """A build took so long and succeeded."""
        self._builds.append(seconds)
        # What counts is what builds take now; a run of thousands keeps a window.
        del self._builds[:-64]

    def ran(self, seconds: float) -> None:
        """Checking and timing a kernel took so long and succeeded."""
        self._longest_run = max(self._longest_run, seconds)

    @property
    def build(self) -> float:
        """For a build: far above the usual, once it is known what is usual."""
        if len(self._builds) < _ENOUGH:
            return self._options.build_timeout
        usual = _BUILD_FACTOR * statistics.median(self._builds)
        return min(self._options.build_timeout, max(self._options.build_floor, usual))

    def run(self, best_seconds: float) -> float:
        """For checking and timing a kernel, from the best cost so far."""
        if not math.isfinite(best_seconds):
            return self._options.run_timeout
        hopeless = self._options.run_factor * best_seconds + _CHECK_FACTOR * self._longest_run
        return min(self._options.run_timeout, max(self._options.run_floor, hopeless))
