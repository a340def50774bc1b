"""The clock policy: how often a kernel runs, when enough is known, which repeats count.

Noise on a shared machine is one-sided: another process, a neighbour on the same host, an interrupt.
A disturbed repeat is slower, never faster, and the shorter a repeat, the likelier it falls between
two disturbances. So repeats are short, single runs if a run takes a millisecond. There are many, at
several moments, and the few fastest that agree count. A repeat during which one of our threads lost
its core is known to be disturbed. It counts only if fewer than three are not, and agrees with none.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Self

import attrs
from chameleon_core.stages import Kernel

from chameleon_runners.timing_options import TimingOptions

_AGREEING = 3
"""Repeats that must agree before the fastest is believed, and that count in the end."""

_FAR = 1.1
"""Kernels this much slower than the best are known precisely enough after three repeats."""

_ABSURD = 10.0
"""Kernels this much slower than the best are not merely disturbed."""

_LOOKS = 3
_PAUSE_SECONDS = 0.004
"""A kernel that seems slow is looked at so often again, with pauses longer than what a scheduler
gives another process at a time: whoever is called hopeless is never timed again."""

_LONG_RUN = 0.05
"""Seconds of one run above which kernels get the fewest repeats: they average by themselves."""


@attrs.frozen(kw_only=True)
class TimingPolicy:
    """How kernels are timed.

    Attributes:
        repeat_seconds: a repeat averages over as many runs as fill this many seconds.
        turn_seconds: what the repeats of one turn take together.
        min_repeats: repeats of a kernel near the best, at least.
        max_repeats: repeats at most.
        spread: how close repeats have to be to the fastest to agree with it (relative).
        slow_factor: one short repeat is enough for kernels slower than the best by this.
        cold_bytes: bytes touched between runs; 0 leaves caches hot.
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
        """The policy that a runner's options ask for."""
        chosen = {name: getattr(options, name) for name in attrs.fields_dict(cls)}
        return cls(**{**chosen, "max_repeats": max(options.max_repeats, options.min_repeats)})

    def runs_per_repeat(self, run_seconds: float) -> int:
        """Back-to-back runs that make one repeat of a kernel of ``run_seconds``."""
        return max(1, math.ceil(self.repeat_seconds / max(run_seconds, 1e-9)))

    def repeats_per_turn(self, repeat_seconds: float) -> int:
        """Repeats of ``repeat_seconds`` each that a kernel makes when it is its turn."""
        return max(1, round(self.turn_seconds / max(repeat_seconds, self.repeat_seconds)))


@attrs.frozen(kw_only=True)
class Timing:
    """The result of timing one kernel.

    Attributes:
        seconds: mean seconds of each repeat that counts.
        number: runs in each repeat.
    """

    seconds: tuple[float, ...]
    number: int


def no_switches() -> int:
    """Count switches of threads that nothing is known of."""
    return 0


@attrs.define(eq=False)
class Repeats:
    """Repeats of one kernel, those that were disturbed apart from the others.

    Attributes:
        kernel: has run once already.
        number: runs in each repeat.
        cold_bytes: as for ``Kernel.repeats``.
        switches: counts how often a thread of the kernel lost its core.
        calm: mean seconds of each repeat during which that never happened.
        disturbed: those of the others, and of what was taken at once with one of them.
    """

    _kernel: Kernel
    _number: int
    _cold_bytes: int
    _switches: Callable[[], int] = attrs.field(kw_only=True)
    calm: list[float] = attrs.field(factory=list, init=False)
    disturbed: list[float] = attrs.field(factory=list, init=False)

    def __len__(self) -> int:
        return len(self.calm) + len(self.disturbed)

    def take(self, count: int) -> None:
        """Take some more at once."""
        before = self._switches()
        seconds = self._kernel.repeats(self._number, count, cold_bytes=self._cold_bytes)
        (self.disturbed if self._switches() > before else self.calm).extend(seconds)


def undisturbed(calm: Sequence[float], disturbed: Sequence[float] = ()) -> tuple[float, ...]:
    """The three fastest repeats (and those as fast) in the order they were taken.

    Args:
        calm: repeats that nothing is known to have disturbed.
        disturbed: others, which count if there are too few calm ones.
    """
    repeats = calm if len(calm) >= _AGREEING else (*calm, *disturbed)
    limit = sorted(repeats)[:_AGREEING][-1]
    return tuple(seconds for seconds in repeats if seconds <= limit)


def settled(repeats: Sequence[float], spread: float) -> bool:
    """Whether enough repeats agree with the fastest one."""
    if len(repeats) < _AGREEING:
        return False
    fastest = sorted(repeats)[:_AGREEING]
    return fastest[-1] <= fastest[0] * (1.0 + spread)


def probe_runs(kernel: Kernel, policy: TimingPolicy) -> int:
    """Runs that make one repeat of a kernel that has run once already."""
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
    """Time a kernel that has run once already.

    Args:
        kernel: the kernel.
        policy: the clock policy.
        best_seconds: the best cost so far; a kernel clearly slower is given little time.
        switches: as for ``Repeats``.

    Returns:
        The repeats that count; a single short one for a kernel slower than the best by
        ``policy.slow_factor``.
    """
    cold = policy.cold_bytes
    # The first run is discarded: caches, branch predictors and sleeping threads. Two probes,
    # because one alone may have been disturbed and would end the timing of a good kernel.
    kernel.time(1, cold_bytes=cold)
    probe = min(kernel.time(1, cold_bytes=cold) for _ in range(2))
    number = policy.runs_per_repeat(probe)
    if probe > policy.slow_factor * best_seconds:
        short = max(1, number // 4)
        seconds = kernel.time(short, cold_bytes=cold)
        if seconds < _ABSURD * best_seconds:
            seconds = _looked_at_again(kernel, policy, seconds, short, best_seconds)
        if min(probe, seconds) > policy.slow_factor * best_seconds:
            return Timing(seconds=(seconds,), number=short)
    repeats = Repeats(kernel, number, cold, switches=switches)
    while len(repeats) < policy.max_repeats and not _enough(repeats, policy, best_seconds):
        missing = [policy.min_repeats - len(repeats), policy.max_repeats - len(repeats)]
        count = min(_AGREEING, *(some for some in missing if some > 0))
        # Taken at once, calm repeats would not be told from a disturbed one among them.
        repeats.take(1 if repeats.disturbed else count)
    return Timing(seconds=undisturbed(repeats.calm, repeats.disturbed), number=number)


def _looked_at_again(
    kernel: Kernel, policy: TimingPolicy, seconds: float, number: int, best_seconds: float
) -> float:
    """The fastest of some repeats with pauses, until one is not that of a slow kernel."""
    for _ in range(_LOOKS):
        if seconds <= policy.slow_factor * best_seconds:
            break
        time.sleep(_PAUSE_SECONDS)
        seconds = min(seconds, kernel.time(number, cold_bytes=policy.cold_bytes))
    return seconds


def _enough(repeats: Repeats, policy: TimingPolicy, best_seconds: float) -> bool:
    if not len(repeats):
        return False
    fastest = min((*repeats.calm, *repeats.disturbed))
    hurried = fastest > _FAR * best_seconds or fastest > _LONG_RUN
    if hurried and len(repeats) >= min(_AGREEING, policy.min_repeats):
        return True
    return len(repeats) >= policy.min_repeats and settled(repeats.calm, policy.spread)
