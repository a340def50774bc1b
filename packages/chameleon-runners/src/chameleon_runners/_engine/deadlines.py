"""Time limits that are derived from earlier times, so that slow candidates cost little time."""

from __future__ import annotations

import math
import statistics

from chameleon_runners._timing_options import TimingOptions

_LEAST_BUILDS = 8
_BUILD_FACTOR = 20.0
_CHECK_FACTOR = 4.0


class Deadlines:
    """The time limits of one task's builds and runs, in seconds."""

    def __init__(self, options: TimingOptions) -> None:
        self._options = options
        self._builds: list[float] = []
        self._longest_run = 0.0

    def built(self, seconds: float) -> None:
        """Record the duration of a successful build."""
        self._builds.append(seconds)
        # Only the latest builds count.
        del self._builds[:-64]

    def ran(self, seconds: float) -> None:
        """Record the duration of a successful check and timing."""
        self._longest_run = max(self._longest_run, seconds)

    @property
    def build(self) -> float:
        """The time limit of a build in seconds."""
        if len(self._builds) < _LEAST_BUILDS:
            return self._options.build_timeout
        limit = _BUILD_FACTOR * statistics.median(self._builds)
        return min(self._options.build_timeout, max(self._options.build_floor, limit))

    def run(self, best_seconds: float) -> float:
        """The time limit in seconds for checking and timing a kernel."""
        if not math.isfinite(best_seconds):
            return self._options.run_timeout
        limit = self._options.run_factor * best_seconds + _CHECK_FACTOR * self._longest_run
        return min(self._options.run_timeout, max(self._options.run_floor, limit))
