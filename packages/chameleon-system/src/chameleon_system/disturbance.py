"""How long others used the cores while something was timed, as the operating system counts it.

Two readings tell it, and take 20 microseconds together on two cores. ``/proc/stat`` says how long
each core was busy, and how long the host of a virtual machine kept it for others. The time that
this process and its worker used is subtracted. And a process knows how often it lost a core before
one of its threads had done.
"""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import attrs

from chameleon_system.thread_limit import ROOT

_BUSY = (0, 1, 2, 5, 6)
"""Columns of ``/proc/stat``: user, nice, system, interrupts, and those that are put off."""

_STOLEN = 7


@attrs.frozen(kw_only=True)
class CoreTimes:
    """Seconds of some cores since the machine started, summed over them.

    Attributes:
        busy: they computed.
        stolen: they would have, and their host ran something else.
    """

    busy: float
    stolen: float


def core_times(cores: Sequence[int], root: Path = ROOT) -> CoreTimes | None:
    """Read the times of some cores; None if the system does not tell them of all.

    Args:
        cores: their ids.
        root: the folder that ``proc`` is in.
    """
    try:
        lines = (root / "proc/stat").read_text(errors="replace").splitlines()
        ticks = {
            words[0]: [int(word) for word in words[1:9]]
            for words in map(str.split, lines)
            if words and words[0].startswith("cpu")
        }
        rows = [ticks[f"cpu{core}"] for core in cores]
        busy = sum(row[column] for row in rows for column in _BUSY)
        stolen = sum(row[_STOLEN] for row in rows)
    except (OSError, ValueError, LookupError):
        return None
    second = os.sysconf("SC_CLK_TCK")
    return CoreTimes(busy=busy / second, stolen=stolen / second)


def involuntary_switches() -> int:
    """How often a thread of this process lost its core before it had done."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def own_seconds(pid: int | None) -> float | None:
    """Seconds that this process and another one have computed; None if that has ended.

    Args:
        pid: of the other one; None for one that has ended.
    """
    if pid is None:
        return None
    try:
        # The clock that clock_getcpuclockid(3) names on Linux, in nanoseconds and not in ticks.
        return time.process_time() + time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return None


class CoreMeter:
    """Adds up, over many intervals, how long others used some cores.

    Args:
        cores: their ids.
        read: gives ``CoreTimes`` of them, or None.
        now: wall-clock in seconds.
        own: seconds that this process and another one have computed, or None if that has ended.

    Attributes:
        seconds: length of all intervals, times the number of cores.
        stolen: seconds of that in which the host ran something else.
    """

    def __init__(
        self,
        cores: Sequence[int],
        *,
        read: Callable[[Sequence[int]], CoreTimes | None] = core_times,
        now: Callable[[], float] = time.monotonic,
        own: Callable[[int | None], float | None] = own_seconds,
    ) -> None:
        self._cores = tuple(cores)
        self._read = read
        self._now = now
        self._own = own
        self._others = 0.0
        self.seconds = 0.0
        self.stolen = 0.0

    @property
    def others(self) -> float:
        """Seconds in which other processes used the cores; a count in ticks may be a little off."""
        return max(0.0, self._others)

    @contextlib.contextmanager
    def interval(self, timed: int | None) -> Iterator[None]:
        """An interval in which another process runs on the cores, beside this one.

        Args:
            timed: its id. Nothing counts if it ends meanwhile, or has ended (None).
        """
        before, began, own_before = self._read(self._cores), self._now(), self._own(timed)
        yield
        after, ended, own_after = self._read(self._cores), self._now(), self._own(timed)
        if before is None or after is None or own_before is None or own_after is None:
            return
        self.seconds += (ended - began) * len(self._cores)
        self.stolen += after.stolen - before.stolen
        self._others += after.busy - before.busy - (own_after - own_before)
