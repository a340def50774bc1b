"""Checks whether the cores that kernels run on are separate physical cores at the moment.

For seconds, the host of a virtual machine may run two virtual cores on the two hardware threads of
one physical core. No system file shows this. A kernel that keeps both busy then takes 1.8 to 2
times as long, in every repeat. A host moves a virtual core when it wakes up, so cores that slow
each other down sleep for some milliseconds.
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

from chameleon_system._closeable import Closeable
from chameleon_system._thread_limit import allowed_cores, usable_threads

_LIMIT = 1.35
"""If probes on all cores at once take more than this many times as long as a single one, cores
share a physical core. Measured ratios were 1.6 to 2 on two threads of one core, and 1.0 to 1.2 on
two cores."""

_ITERATIONS = 400
"""Number of iterations of the key derivation that is a probe. It takes 0.2 ms on a core of 2023,
ten times as long as waking a thread."""

_RESTS = (0.001, 0.002, *[0.004] * 40)
"""Seconds of sleep after each failed probe, until a probe succeeds."""

_SKIPS = 50
"""The number of waits without a probe after sleeping did not help. This happens if both threads of
a physical core belong to the process."""


def usable_cores() -> list[int]:
    """Ids of the cores that this process may compute on, at most as many as its CPU quota."""
    return allowed_cores()[: usable_threads()]


class Probe(Protocol):
    """Times one computation on several cores at once, to see if they slow each other down."""

    def seconds(self, count: int) -> float:
        """The longest seconds of one computation that runs on the first ``count`` cores at once."""

    def close(self) -> None:
        """Release the threads; ``seconds`` returns infinity from then on."""


def _compute() -> float:
    """Time a computation in registers, in seconds; it releases Python's global lock."""
    started = time.perf_counter()
    hashlib.pbkdf2_hmac("sha512", b"password", b"chameleon", _ITERATIONS)
    return time.perf_counter() - started


class ThreadProbe:
    """A probe with one sleeping thread per core, which is bound to that core."""

    def __init__(self, cores: Sequence[int]) -> None:
        self._answers: queue.SimpleQueue[float] = queue.SimpleQueue()
        self._wake = [threading.Semaphore(0) for _ in cores]
        self._closed = False
        for core, wake in zip(cores, self._wake, strict=True):
            threading.Thread(
                target=self._serve, args=(core, wake), name=f"probe-{core}", daemon=True
            ).start()

    def _serve(self, core: int, wake: threading.Semaphore) -> None:
        if hasattr(os, "sched_setaffinity"):
            with contextlib.suppress(OSError):
                os.sched_setaffinity(threading.get_native_id(), {core})
        while True:
            wake.acquire()
            if self._closed:
                # Send an answer, so that no caller waits for ever.
                self._answers.put(math.inf)
                return
            self._answers.put(_compute())

    def seconds(self, count: int) -> float:
        if self._closed:
            return math.inf
        for wake in self._wake[:count]:
            wake.release()
        return max(self._answers.get() for _ in range(count))

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            for wake in self._wake:
                wake.release()


class CoreWatch(Closeable):
    """Waits until the cores that kernels run on do not slow each other down.

    Args:
        cores: ids of the cores that run a kernel. With fewer than two, the watch never waits.
        make_probe: makes the probe for some cores.
        rest: sleeps for a number of seconds.
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
        self._time_alone = 0.0
        self._skip = 0
        self.rests = 0

    def wait(self) -> bool:
        """Sleep until the cores are separate physical cores; return whether a probe says so.

        If a series of sleeps does not help, the next calls return False without sleeping.
        """
        if len(self._cores) < 2:  # noqa: PLR2004 - a single core shares with no other
            return True
        if self._skip > 0:
            self._skip -= 1
            return False
        for seconds in _RESTS:
            if self.cores_are_separate():
                return True
            self.rests += 1
            self._rest(seconds)
        self._skip = _SKIPS
        return False

    def cores_are_separate(self) -> bool:
        """Whether one computation takes as long on all cores at once as on one."""
        if len(self._cores) < 2:  # noqa: PLR2004
            return True
        if self._probe is None:
            self._probe = self._make_probe(self._cores)
        probe = self._probe
        together = probe.seconds(len(self._cores))
        if together <= _LIMIT * self._time_alone:
            return True
        # Heat and other cores change a core's speed, so its time alone is measured again.
        now = min(probe.seconds(1), probe.seconds(1))
        self._time_alone = min(self._time_alone, now) if self._time_alone > 0.0 else now
        together = min(together, probe.seconds(len(self._cores)))
        return together <= _LIMIT * now

    def close(self) -> None:
        """End the threads of the probe. A second call does nothing."""
        if self._probe is not None:
            self._probe.close()
