"""How long other programs used the cores during a timing, as the operating system counts it.

Two readings of ``/proc/stat`` are compared, which takes 20 microseconds on two cores.
"""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import attrs

_BUSY = (0, 1, 2, 5, 6)
"""Columns of ``/proc/stat`` for busy time: user, nice, system, interrupts and soft interrupts."""

_STOLEN = 7


@attrs.frozen(kw_only=True)
class CoreTimes:
    """Times of some cores since the machine started, in seconds, summed over the cores.

    Attributes:
        busy: the time in which the cores computed.
        stolen: the time in which the host of the virtual machine ran something else although the
            cores had work.
    """

    busy: float
    stolen: float


def core_times(cores: Sequence[int], root: Path = Path("/")) -> CoreTimes | None:
    """Read the times of some cores; None if the system does not report them for every core."""
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


def count_involuntary_switches() -> int:
    """Count how often threads of this process lost a core before their work was done."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def own_seconds(pid: int | None) -> float | None:
    """CPU seconds of this process and of a worker process; None if the worker has ended."""
    if pid is None:
        return None
    try:
        # The clock that clock_getcpuclockid(3) names on Linux, in nanoseconds and not in ticks.
        return time.process_time() + time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return None


class CoreMeter:
    """Adds up, over many intervals, how long other programs used some cores.

    Args:
        cores: ids of the cores.
        read: returns the ``CoreTimes`` of the cores, or None if they are unknown.
        now: returns the wall-clock time in seconds.
        own: returns the CPU seconds of this process and of the worker with this id, or None if the
            worker has ended. They are no disturbance, so they are subtracted.

    Attributes:
        seconds: the length of all intervals in seconds, times the number of cores.
        stolen: the part of ``seconds`` in which the host of the virtual machine ran something else.
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
        """The seconds, a part of ``seconds``, in which other processes used the cores."""
        # The system counts in ticks of the clock, so the difference may be negative.
        return max(0.0, self._others)

    @contextlib.contextmanager
    def interval(self, timed: int | None) -> Iterator[None]:
        """A context whose disturbance is added, while the worker process ``timed`` times a kernel.

        If the worker has ended, or ends in the context, nothing is counted.
        """
        before, began, own_before = self._read(self._cores), self._now(), self._own(timed)
        yield
        after, ended, own_after = self._read(self._cores), self._now(), self._own(timed)
        if before is None or after is None or own_before is None or own_after is None:
            return
        self.seconds += (ended - began) * len(self._cores)
        self.stolen += after.stolen - before.stolen
        self._others += after.busy - before.busy - (own_after - own_before)
