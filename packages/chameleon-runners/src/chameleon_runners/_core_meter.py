"""How long other programs used the cores during a timing, as the operating system counts it.

Two readings of ``/proc/stat`` are compared, which takes 20 microseconds on two cores. The file has
the time that each core was busy, and the time that the host of a virtual machine took from the
core. The time that this process and its worker computed is subtracted. In addition, a process can
read how often one of its threads lost a core before its work was done.
"""

from __future__ import annotations

import contextlib
import os
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import attrs

ROOT = Path("/")

_BUSY = (0, 1, 2, 5, 6)
"""Columns of ``/proc/stat`` for busy time: user, nice, system, interrupts and soft interrupts."""

_STOLEN = 7


@attrs.frozen(kw_only=True)
class CoreTimes:
    """Times of some cores since the machine started, in seconds, summed over the cores.

    Attributes:
        busy: the time in which the cores computed.
        stolen: the time in which the cores had work, but the host of the virtual machine ran
            something else.
    """

    busy: float
    stolen: float


def core_times(cores: Sequence[int], root: Path = ROOT) -> CoreTimes | None:
    """Read the times of some cores; None if the system does not report them for every core.

    Args:
        cores: ids of the cores.
        root: the folder that contains ``proc``.
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
    """Count how often threads of this process lost a core before their work was done."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def own_seconds(pid: int | None) -> float | None:
    """The CPU time in seconds that this process has used, plus that of another process.

    The result is None if the other process has ended.

    Args:
        pid: the id of the other process, or None if it has ended.
    """
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
        read: a function that returns the ``CoreTimes`` of the cores, or None if they are unknown.
        now: a function that returns the wall-clock time in seconds.
        own: a function that returns the CPU time in seconds that Chameleon itself has used. This
            time is no disturbance, so it is subtracted. The argument is the id of a worker process,
            and the result is the CPU time of the current process plus that of the worker. It is
            None if the worker has ended.

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
        """The seconds in which other processes used the cores, a part of ``seconds``.

        The system counts in ticks of the clock, so the value is not exact.
        """
        return max(0.0, self._others)

    @contextlib.contextmanager
    def interval(self, timed: int | None) -> Iterator[None]:
        """A context in which a worker times a kernel.

        The meter adds the time in which other programs use the cores during the context. The CPU
        time of this process and of the worker is not counted.

        Args:
            timed: the id of the worker process, or None if it has ended. Nothing is counted if the
                worker has ended, or ends in the context.
        """
        before, began, own_before = self._read(self._cores), self._now(), self._own(timed)
        yield
        after, ended, own_after = self._read(self._cores), self._now(), self._own(timed)
        if before is None or after is None or own_before is None or own_after is None:
            return
        self.seconds += (ended - began) * len(self._cores)
        self.stolen += after.stolen - before.stolen
        self._others += after.busy - before.busy - (own_after - own_before)
