"""Checks whether the cores that kernels run on are separate physical cores at the moment.

The cores of a virtual machine are threads of its host, which moves them between hardware threads.
For seconds at a time, two of them may be the two hardware threads of one physical core. A kernel
that keeps both busy then takes 1.8 to 2 times as long, in every repeat. No system file of the
virtual machine shows this. But it can be measured: the same computation takes longer on all cores
at once than on a single core. It can also be changed: a host moves a virtual core that wakes up
from a sleep, but not a busy one. So the cores are probed before a kernel is timed. If the cores
slow each other down, all of them sleep for some milliseconds.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from chameleon_system._closing import Closing

_LIMIT = 1.35
"""If probes on all cores at once take more than this many times as long as a single one, cores
share a physical core. Measured ratios were 1.6 to 2 on two threads of one core, and 1.0 to 1.2 on
two cores."""

_ITERATIONS = 400
"""Number of iterations of the key derivation that is a probe. It takes 0.2 ms on a core of 2023,
ten times as long as waking a thread."""

_RESTS = (0.001, 0.002, *[0.004] * 40)
"""Seconds of sleep after each failed probe, until a probe succeeds."""

_RARELY = 50
"""If sleeping does not help, only one of this many timings is preceded by a probe. This happens if
both threads of a physical core belong to the process."""


class Probe(Protocol):
    """Times a short computation that runs on several cores at once.

    If the time grows with the number of cores, the cores slow each other down.
    """

    def seconds(self, count: int) -> float:
        """Run the probe's short computation on several cores at once, once on each core.

        The result is the longest time on any of the cores, in seconds. If it is longer than the
        time on one core, the cores slow each other down.

        The time is infinity if the probe is closed, or if another thread closes it during the call.

        Args:
            count: the number of cores, counted from the first.
        """

    def close(self) -> None:
        """Release the probe's threads. A second call does nothing."""


def _compute() -> float:
    """Time a computation in registers, in seconds. It runs without Python's global lock."""
    started = time.perf_counter()
    hashlib.pbkdf2_hmac("sha512", b"password", b"chameleon", _ITERATIONS)
    return time.perf_counter() - started


class ThreadProbe:
    """Times one computation on several cores at once, to see if they slow each other down.

    It has one sleeping thread per core, which is bound to that core.

    Args:
        cores: ids of the cores.
    """

    def __init__(self, cores: Sequence[int]) -> None:
        self._answers: queue.SimpleQueue[float] = queue.SimpleQueue()
        self._asked = [threading.Semaphore(0) for _ in cores]
        self._closed = False
        for core, asked in zip(cores, self._asked, strict=True):
            threading.Thread(
                target=self._serve, args=(core, asked), name=f"probe-{core}", daemon=True
            ).start()

    def _serve(self, core: int, asked: threading.Semaphore) -> None:
        if hasattr(os, "sched_setaffinity"):
            with contextlib.suppress(OSError):
                os.sched_setaffinity(threading.get_native_id(), {core})
        while True:
            asked.acquire()
            if self._closed:
                # Send an answer, so that no caller waits for ever.
                self._answers.put(math.inf)
                return
            self._answers.put(_compute())

    def seconds(self, count: int) -> float:
        if self._closed:
            return math.inf
        for asked in self._asked[:count]:
            asked.release()
        return max(self._answers.get() for _ in range(count))

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            for asked in self._asked:
                asked.release()


class CoreWatch(Closing):
    """Waits until the cores that kernels run on do not slow each other down.

    Args:
        cores: ids of the cores that run a kernel. With fewer than two, the watch never waits.
        make_probe: a function that makes the probe for some cores.
        rest: a function that sleeps for a number of seconds.
    """

    def __init__(
        self,
        cores: Sequence[int],
        *,
        make_probe: Callable[[Sequence[int]], Probe] = ThreadProbe,
        rest: Callable[[float], object] = time.sleep,
    ) -> None:
        self._cores = tuple(cores)
        self._make_probe = make_probe
        self._rest = rest
        self._probe: Probe | None = None
        self._alone = 0.0
        self._skip = 0
        self.rests = 0

    def wait(self) -> bool:
        """Sleep, at most a few times, until the cores are separate physical cores.

        The cores of a virtual machine may share a physical core for some time. A virtual core that
        wakes up may continue on another physical core of the host. If a series of sleeps does not
        help, the next calls return False without sleeping.

        Returns:
            Whether the cores are separate physical cores, as far as a probe can tell.
        """
        if len(self._cores) < 2:  # noqa: PLR2004 - a single core shares with no other
            return True
        if self._skip > 0:
            self._skip -= 1
            return False
        for seconds in _RESTS:
            if self.apart():
                return True
            self.rests += 1
            self._rest(seconds)
        self._skip = _RARELY
        return False

    def apart(self) -> bool:
        """Whether the cores are separate physical cores at the moment, as a probe measures.

        They are if a computation takes as long on all of them at once as on one.
        """
        if len(self._cores) < 2:  # noqa: PLR2004
            return True
        if self._probe is None:
            self._probe = self._make_probe(self._cores)
        probe = self._probe
        together = probe.seconds(len(self._cores))
        if together <= _LIMIT * self._alone:
            return True
        # Heat and other cores change a core's speed, so its time alone is measured again.
        now = min(probe.seconds(1), probe.seconds(1))
        self._alone = min(self._alone, now) if self._alone > 0.0 else now
        together = min(together, probe.seconds(len(self._cores)))
        return together <= _LIMIT * now

    def close(self) -> None:
        """End the threads of the probe. A second call does nothing."""
        if self._probe is not None:
            self._probe.close()
