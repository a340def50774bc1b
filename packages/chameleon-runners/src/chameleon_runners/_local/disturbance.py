"""The disturbance of timings: other programs, noise, and the speed of the cores.

The host of a virtual machine may run two virtual cores on one physical core for minutes. Every
kernel then takes about twice as long, and so does the known work of ``Kernel.clock``.
"""

from __future__ import annotations

import statistics
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from itertools import combinations

import attrs
from chameleon_core.plugin_api import Disturbance, Measurement

from chameleon_runners._core_meter import CoreMeter

Clock = tuple[str, Sequence[float]]
"""The name of a clock's instructions, and its readings in operations per second."""

RepeatTimings = tuple[float, float]
"""A candidate's cost in seconds when it was timed first, and when it was timed again."""

SAME = 1.4
"""Factor between two readings of a clock up to which the speed counts as the same. On a busy
machine, readings differ by this factor, although the fastest repeats of a kernel do not. A shared
core is slower by a factor of about 2."""

SLOWEST = 0.4
"""The lowest speed, relative to the usual one, at which times are scaled. Two threads of a physical
core are at most half as fast as two cores. During a slower reading, a thread had lost its core."""

SURVEY, SURVEY_PAUSE = 60, 0.01
"""Number of readings from which the usual speed follows, and the seconds between two of them. Some
hosts change between two speeds every tenth of a second."""

_SETTLED = 20
"""Number of readings from which the rate of a speed follows."""

_FREQUENT = 3
"""Number of readings from which a speed is no disturbance."""

_TOO_FAST = 0.25
"""The share of repeats that may have been timed at a higher speed than the usual one, if the cores
have one. The speed may change twice between two readings."""

_RECENT, _WAITING = 20, 0.1
"""Number of last timings, and the share of them that must have been at the usual speed if timings
are to wait for it."""


def _are_same(rate: float, other: float) -> bool:
    return max(rate, other) <= SAME * min(rate, other)


@attrs.define(eq=False)
class _Speed:
    """A speed at which the cores computed during some timings."""

    _readings: list[float] = attrs.field(factory=list)

    @property
    def rate(self) -> float:
        """Operations per second."""
        return statistics.median_high(self._readings)

    @property
    def is_frequent(self) -> bool:
        """Whether several readings have this speed."""
        return len(self._readings) >= _FREQUENT

    def add(self, rates: Sequence[float]) -> None:
        """Add readings, until the rate is settled."""
        if len(self._readings) < _SETTLED:
            self._readings += rates


def _speeds_of(readings: Sequence[float]) -> list[_Speed]:
    """The speeds of readings, between which nothing was read, the most frequent one first."""
    groups: list[list[float]] = []
    for rate in sorted(readings):
        if not groups or not _are_same(rate, groups[-1][-1]):
            groups.append([])
        groups[-1].append(rate)
    return [_Speed(group) for group in sorted(groups, key=len, reverse=True)]


class SpeedLog:
    """The readings of clocks around the timings of a runner.

    The usual speed is the most frequent one of the run's first readings. It stays the same, so that
    all times are comparable. Instructions share the speeds if their readings agree. For example,
    AMX's tiles of a rented machine may be slow for the first second. If their times were scaled to
    that speed, no kernel with tiles would be comparable with others.

    Attributes:
        timed_again: the number of timings that were repeated because the speed changed.
    """

    def __init__(self) -> None:
        self._speeds: dict[str, list[_Speed]] = {}
        """By instructions. Instructions whose readings agree have the same list."""
        self._present = 1.0
        self._counts: dict[str, Counter[str]] = {}
        self._recent: deque[bool] = deque([True], maxlen=_RECENT)
        self.timed_again = 0

    def knows(self, clock: Clock) -> bool:
        """Whether the usual speed of a clock's instructions is known."""
        return bool(self._speeds.get(clock[0]))

    def matches(self, clock: Clock) -> bool:
        """Whether a reading agrees with a speed of other instructions, if there are any."""
        return not self._speeds or self._shared(clock[1]) is not None

    def _shared(self, readings: Sequence[float]) -> list[_Speed] | None:
        """The speeds of other instructions, if a reading has a frequent one of them."""
        for speeds in self._speeds.values():
            frequent = [speed.rate for speed in speeds if speed is speeds[0] or speed.is_frequent]
            if any(_are_same(reading, rate) for reading in readings for rate in frequent):
                return speeds
        return None

    def _speeds_for(self, name: str, readings: Sequence[float]) -> list[_Speed]:
        """The speeds of instructions, with those of others as soon as their readings agree."""
        own = self._speeds.get(name)
        if own is None:
            own = self._shared(readings) or _speeds_of(readings)
        elif not any(_are_same(readings[-1], speed.rate) for speed in own):
            others = [speeds for speeds in self._speeds.values() if speeds is not own]
            own = next((each for each in others if _are_same(readings[-1], each[0].rate)), own)
        self._speeds[name] = own
        return own

    def too_fast(self, clock: Clock | None) -> float:
        """The share of repeats that may have been timed at a higher speed than the usual one."""
        speeds: Sequence[_Speed] = () if clock is None else self._speeds[clock[0]]
        return _TOO_FAST if any(speed.rate > SAME * speeds[0].rate for speed in speeds) else 0.0

    def is_worth_waiting(self, relative: float | None) -> bool:
        """Whether to repeat a timing, since it was not at the usual speed, which comes back soon.

        Args:
            relative: the relative speed during the timing; None if it changed.
        """
        return relative != 1.0 and sum(self._recent) >= _WAITING * len(self._recent)

    def relative_speed(self, clock: Clock | None) -> float | None:
        """The speed of the cores during a timing, relative to the usual speed.

        Args:
            clock: the reply of a worker. The last of the readings was taken after the timing. None
                without a clock.

        Returns:
            The speed, 1 without a clock. None if the speed changed during the timing, or if a
            thread had lost its core.
        """
        if clock is None:
            return 1.0
        name, readings = clock
        before, after = readings[-2], readings[-1]
        speeds, counts = self._speeds_for(name, readings), self._counts.setdefault(name, Counter())
        # Two digits, since readings differ in the third.
        counts[f"{float(f'{max(before, after) / 1e9:.2g}'):g}"] += 1
        self._recent.append(False)
        if not _are_same(before, after) or min(before, after) < SLOWEST * speeds[0].rate:
            return None
        rate = max(before, after)
        speed = next((each for each in speeds if _are_same(rate, each.rate)), None)
        if speed is None:
            speed = _Speed()
            speeds.append(speed)
        speed.add([before, after])
        self._present = speed.rate / speeds[0].rate
        self._recent[-1] = speed is speeds[0]
        return self._present

    def mean_speed(self, clock: Clock) -> float:
        """The mean of the relative speeds before and after a timing during which it changed."""
        usual = self._speeds[clock[0]][0].rate
        return max(SLOWEST, statistics.fmean(clock[1][-2:]) / usual)

    def at_present(self, usual_seconds: float) -> float:
        """The present time of a kernel in seconds, from its time at the usual speed."""
        return usual_seconds / self._present

    @property
    def usual(self) -> Mapping[str, float]:
        """By instructions, the operations per second at the usual speed."""
        return {name: speeds[0].rate for name, speeds in self._speeds.items()}

    def resume(self, usual: Mapping[str, float]) -> None:
        """Use the usual speeds of an earlier process of the run."""
        self._speeds = {}
        for name, rate in usual.items():
            own = [_Speed([rate] * _SETTLED)]
            alike = (each for each in self._speeds.values() if each[0].rate == rate)
            self._speeds[name] = next(alike, own)

    @property
    def counts(self) -> Mapping[str, Mapping[str, int]]:
        """By instructions and rate in 10**9 operations per second: the number of timings."""
        return self._counts


class LocalDisturbance:
    """Counts how much other programs and noise disturb the timing of a runner.

    Attributes:
        meter: counts how long other programs used the cores.
        speed: the speeds of the cores during timings.
    """

    def __init__(self, meter: CoreMeter) -> None:
        self.meter = meter
        self.speed = SpeedLog()
        self._pairs = self._kept = 0

    def add_repeat_timings(self, candidates: Sequence[RepeatTimings]) -> None:
        """Add the fastest candidates of one batch, which were timed twice."""
        pairs, agreeing = count_same_order(candidates)
        self._pairs += pairs
        self._kept += agreeing

    @property
    def total(self) -> Disturbance:
        """The disturbance since the runner was made."""
        return Disturbance(
            core_seconds=self.meter.seconds,
            stolen_seconds=self.meter.stolen,
            others_seconds=self.meter.others,
            pairs=self._pairs,
            kept=self._kept,
            speeds={name: dict(counts) for name, counts in self.speed.counts.items()},
            usual_speeds=self.speed.usual,
            timed_again=self.speed.timed_again,
        )


def count_same_order(candidates: Sequence[RepeatTimings]) -> tuple[int, int]:
    """Count pairs of candidates, and those with the same order in both timings.

    ``candidates`` has the first and the second cost of each candidate, in seconds.
    """
    orders = [
        (first - other_first) * (again - other_again) > 0.0
        for (first, again), (other_first, other_again) in combinations(candidates, 2)
        if abs(again - other_again) > Measurement.TIE * min(again, other_again)
    ]
    return len(orders), sum(orders)
