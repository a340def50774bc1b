"""The speed of the cores during timings, and times at the usual speed.

The host of a virtual machine may run two virtual cores on one physical core for minutes. Every
kernel then takes about twice as long, and so does the known work of ``Kernel.clock``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

SAME = 1.2
"""Factor between two speeds up to which they count as the same. Readings of the clock differ by
this factor on a busy machine, although the fastest repeats of a kernel do not."""

SLOWEST = 0.4
"""The lowest speed, relative to the usual one, at which times are scaled. Two threads of a physical
core are at most half as fast as two cores. During a slower reading, a thread had lost its core."""

_SETTLED = 20
"""Number of readings from which the usual speed follows."""


def are_same(speed: float, other: float) -> bool:
    """Whether two speeds are the same, except for noise."""
    return max(speed, other) <= SAME * min(speed, other)


def usual_share(speeds: Sequence[float]) -> float:
    """The factor by which the repeats of a kernel are scaled to the usual speed of the cores.

    Other programs make a reading of the clock slower, never faster. So the second fastest reading
    counts, as the fastest repeats of a kernel do.

    Args:
        speeds: readings of the clock during the repeats, relative to the usual speed.
    """
    speed = second_fastest(speeds) if speeds else 1.0
    return 1.0 if are_same(speed, 1.0) else speed


def second_fastest(speeds: Sequence[float]) -> float:
    """The second largest of some speeds, or the only one."""
    return sorted(speeds)[-2:][0]


class SpeedLog:
    """The readings of clocks around the timings of a runner.

    The usual speed is that of the first readings, and then stays the same, so that all times of the
    runner are comparable.

    Attributes:
        timed_again: the number of timings that were repeated because the speed changed.
    """

    def __init__(self) -> None:
        self._first: dict[str, list[float]] = {}
        self._present = 1.0
        self._counts: dict[str, Counter[str]] = {}
        self.timed_again = 0

    def speeds(self, clock: Sequence[Any] | None) -> tuple[float, ...] | None:
        """The speeds before and after a timing, relative to the usual speed.

        Args:
            clock: the reply of a worker: the name of the instructions, and their rates before and
                after the timing. None without a clock.

        Returns:
            The speeds; none without a clock. None if the speed changed during the timing, or if a
            thread had lost its core.
        """
        if clock is None:
            return ()
        name, before, after = clock
        first = self._first.setdefault(name, [])
        if len(first) < _SETTLED:
            first += [before, after]
        usual = second_fastest(first)
        counts = self._counts.setdefault(name, Counter())
        counts[f"{max(before, after) / 1e9:.2g}"] += 1
        if min(before, after) < SLOWEST * usual or not are_same(before, after):
            return None
        self._present = usual_share((before / usual, after / usual))
        return before / usual, after / usual

    def at_present(self, usual_seconds: float) -> float:
        """The present time of a kernel in seconds, from its time at the usual speed."""
        return usual_seconds / self._present

    @property
    def counts(self) -> Mapping[str, Mapping[str, int]]:
        """By instructions and rate in 10**9 operations per second: the number of timings."""
        return self._counts
