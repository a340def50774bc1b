"""The options of timing: how often a kernel runs, when timing ends, and which repeats count.

A repeat is one timing of a kernel. Other programs make a repeat slower, never faster, and a short
repeat is less likely to be disturbed. So kernels get many short repeats, of which the few fastest
that agree count. If a thread lost its core during a repeat, it counts only if fewer than three
others do.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Self

import attrs
from chameleon_core.plugin_api import Kernel

from chameleon_runners._timing_options import TimingOptions

_AGREEING = 3
"""The number of repeats that must agree before the fastest is trusted; they give the result."""

_SLOWER = 1.1
"""Kernels slower than the best by more than this factor get only three repeats."""

_MUCH_SLOWER = 10.0
"""Kernels slower than the best by more than this factor cannot be fast kernels with noise."""

_RETRIES = 3
_PAUSE_SECONDS = 0.004
"""The pause in seconds before a kernel that seems slow is timed again.

It is longer than the time for which a scheduler runs another process.
"""

_LONG_RUN = 0.05
"""Seconds of one run above which a kernel gets the fewest repeats: long runs average noise."""


@attrs.frozen(kw_only=True)
class TimingPolicy:
    """The options of timing a kernel.

    Attributes:
        repeat_seconds: the seconds that the runs of one repeat fill together.
        turn_seconds: the seconds that the repeats of a candidate's turn fill together.
        min_repeats: the least number of repeats of a kernel near the best.
        max_repeats: the number of repeats after which timing ends.
        spread: the relative difference within which the three fastest repeats agree.
        slow_factor: the factor over the best time above which a kernel gets only one short repeat.
        cold_bytes: the bytes that are touched between runs; 0 leaves the caches warm.
    """

    repeat_seconds: float
    min_repeats: int
    max_repeats: int
    spread: float
    slow_factor: float
    turn_seconds: float = 0.006
    cold_bytes: int = 0

    @classmethod
    def of(cls, options: TimingOptions) -> Self:
        """The policy for a runner's options."""
        chosen = {name: getattr(options, name) for name in attrs.fields_dict(cls)}
        repeats = max(options.max_repeats, options.min_repeats)
        return cls(
            **{**chosen, "max_repeats": repeats, "cold_bytes": options.cold_bytes or 0},
        )

    def runs_per_repeat(self, run_seconds: float) -> int:
        """The number of consecutive runs that one repeat of a kernel should have."""
        return max(1, math.ceil(self.repeat_seconds / max(run_seconds, 1e-9)))

    def repeats_per_turn(self, repeat_seconds: float) -> int:
        """The number of repeats that one turn of a kernel should have."""
        return max(1, round(self.turn_seconds / max(repeat_seconds, self.repeat_seconds)))


@attrs.frozen(kw_only=True)
class Timing:
    """The result of timing one kernel.

    Attributes:
        seconds: mean seconds per run of each repeat that counts.
        number: the number of runs per repeat.
    """

    seconds: tuple[float, ...]
    number: int


def no_switches() -> int:
    """A count of thread switches that is always 0, for devices that do not report switches."""
    return 0


@attrs.define(eq=False)
class Repeats:
    """The repeats of one kernel; disturbed repeats are separate.

    Attributes:
        kernel: a kernel that has run at least once.
        switches: returns how often a thread of the kernel has lost its core so far.
        undisturbed: mean seconds per run of repeats during which no thread lost its core.
        disturbed: mean seconds per run of all other repeats. Repeats that are taken together are
            disturbed if one of them is.
    """

    _kernel: Kernel
    _number: int
    _cold_bytes: int
    _switches: Callable[[], int] = attrs.field(kw_only=True)
    undisturbed: list[float] = attrs.field(factory=list, init=False)
    disturbed: list[float] = attrs.field(factory=list, init=False)

    def __len__(self) -> int:
        return len(self.undisturbed) + len(self.disturbed)

    def take(self, count: int) -> None:
        """Time ``count`` repeats together."""
        before = self._switches()
        seconds = self._kernel.repeats(self._number, count, cold_bytes=self._cold_bytes)
        (self.disturbed if self._switches() > before else self.undisturbed).extend(seconds)


def counted_repeats(
    undisturbed: Sequence[float], disturbed: Sequence[float] = (), *, quantile: float = 0.0
) -> tuple[float, ...]:
    """The repeats that count: three of the fastest, and others that are as fast, in their order.

    Args:
        undisturbed: the repeats during which no thread lost its core.
        disturbed: repeats that count if there are too few others.
        quantile: the share of repeats that are too fast to count.
    """
    repeats = undisturbed if len(undisturbed) >= _AGREEING else (*undisturbed, *disturbed)
    first = min(int(quantile * len(repeats)), max(0, len(repeats) - _AGREEING))
    counted = sorted(repeats)[first : first + _AGREEING]
    return tuple(seconds for seconds in repeats if counted[0] <= seconds <= counted[-1])


def has_converged(repeats: Sequence[float], spread: float) -> bool:
    """Whether the three fastest repeats of a kernel nearly agree."""
    if len(repeats) < _AGREEING:
        return False
    fastest = sorted(repeats)[:_AGREEING]
    return fastest[-1] <= fastest[0] * (1.0 + spread)


def probe_runs(kernel: Kernel, policy: TimingPolicy) -> int:
    """The number of runs per repeat of a kernel that has run before, from one timing."""
    cold = policy.cold_bytes
    seconds = kernel.time(1, cold_bytes=cold)
    if seconds < policy.repeat_seconds:
        seconds = min(seconds, kernel.time(1, cold_bytes=cold))
    return policy.runs_per_repeat(seconds)


def time_kernel(
    kernel: Kernel,
    policy: TimingPolicy,
    best_seconds: float,
    switches: Callable[[], int] = no_switches,
) -> Timing:
    """Time a kernel that has run at least once."""
    cold = policy.cold_bytes
    # The first run warms up caches and threads. There are two probes because one may be disturbed.
    kernel.time(1, cold_bytes=cold)
    probe = min(kernel.time(1, cold_bytes=cold) for _ in range(2))
    number = policy.runs_per_repeat(probe)
    if probe > policy.slow_factor * best_seconds:
        short = max(1, number // 4)
        seconds = kernel.time(short, cold_bytes=cold)
        if seconds < _MUCH_SLOWER * best_seconds:
            seconds = _retime(kernel, policy, seconds, short, best_seconds)
        if min(probe, seconds) > policy.slow_factor * best_seconds:
            return Timing(seconds=(seconds,), number=short)
    repeats = Repeats(kernel, number, cold, switches=switches)
    while len(repeats) < policy.max_repeats and not _has_enough_repeats(
        repeats, policy, best_seconds
    ):
        missing = [policy.min_repeats - len(repeats), policy.max_repeats - len(repeats)]
        count = min(_AGREEING, *(some for some in missing if some > 0))
        # If one repeat is disturbed, all repeats taken with it are lost, so they are taken one by
        # one.
        repeats.take(1 if repeats.disturbed else count)
    return Timing(seconds=counted_repeats(repeats.undisturbed, repeats.disturbed), number=number)


def _retime(
    kernel: Kernel, policy: TimingPolicy, seconds: float, number: int, best_seconds: float
) -> float:
    """The shortest time of some repeats with pauses, until one of them is not slow."""
    for _ in range(_RETRIES):
        if seconds <= policy.slow_factor * best_seconds:
            break
        time.sleep(_PAUSE_SECONDS)
        seconds = min(seconds, kernel.time(number, cold_bytes=policy.cold_bytes))
    return seconds


def _has_enough_repeats(repeats: Repeats, policy: TimingPolicy, best_seconds: float) -> bool:
    if not len(repeats):
        return False
    fastest = min((*repeats.undisturbed, *repeats.disturbed))
    slow = fastest > _SLOWER * best_seconds or fastest > _LONG_RUN
    if slow and len(repeats) >= min(_AGREEING, policy.min_repeats):
        return True
    return len(repeats) >= policy.min_repeats and has_converged(repeats.undisturbed, policy.spread)
