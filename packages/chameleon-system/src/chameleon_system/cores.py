"""Whether the cores that kernels run on are whole cores at this moment.

A virtual machine's cores are threads of its host, which puts them where it likes. For seconds at a
time two of them may be the two hardware threads of one physical core. A kernel that keeps both busy
then takes 1.8 to 2 times as long, in every repeat, and the guest reads nothing of it. But it can be
measured: the same computation on one core alone and on all of them at once takes equally long, or
does not. And it can be helped: a host moves a virtual core that wakes up from a sleep, not one that
is busy. So before a kernel is timed its cores are probed. If they hinder each other, all of them
rest for some milliseconds.
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
from typing import Protocol, Self

from chameleon_system.thread_limit import allowed_cores, usable_threads

_LIMIT = 1.35
"""Cores whose probes take more than this many times as long together share a physical core. Two
threads of one core were measured to take 1.6 to 2 times as long, those of two cores 1.0 to 1.2."""

_ITERATIONS = 400
"""A probe is a key derivation of so many iterations. It takes 0.2 ms on a core of 2023, ten times
what waking a thread takes."""

_RESTS = (0.001, 0.002, *[0.004] * 40)
"""Seconds slept between probes, until one is good."""

_RARELY = 50
"""Where rests do not help, as on a real core both threads of which were asked for, only one
timing in so many is preceded by a probe."""


def usable_cores() -> list[int]:
    """Ids of the cores that this process computes on: no more than the time it is allowed fills."""
    return allowed_cores()[: usable_threads()]


class Probe(Protocol):
    """Runs the same short computation on some cores at once."""

    def seconds(self, count: int) -> float:
        """The longest time it took on any of the first ``count`` cores, in seconds.

        Infinity once it is closed, also by another thread while this one waits.
        """

    def close(self) -> None:
        """Give back what it holds. Safe to call twice."""


def _compute() -> float:
    """Seconds of a computation in registers, which runs without Python's global lock."""
    started = time.perf_counter()
    hashlib.pbkdf2_hmac("sha512", b"password", b"chameleon", _ITERATIONS)
    return time.perf_counter() - started


class ThreadProbe:
    """A sleeping thread of this process for each core, bound to it.

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
                # Whoever waits for this thread's answer must not wait for ever.
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


class CoreWatch:
    """Waits until the cores that kernels run on do not hinder each other.

    Args:
        cores: ids of the cores that run a kernel; with fewer than two there is nothing to watch.
        make_probe: makes what the cores are probed with.
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
        self._alone = 0.0
        self._skip = 0
        self.rests = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait(self) -> bool:
        """Return when the cores are whole cores, or when waiting for it does not help.

        Returns:
            Whether the cores are whole cores, as far as is known.
        """
        if len(self._cores) < 2:  # noqa: PLR2004 - one core has nobody to share with
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
        """Whether a computation takes as long on all cores at once as on one, right now."""
        if len(self._cores) < 2:  # noqa: PLR2004
            return True
        if self._probe is None:
            self._probe = self._make_probe(self._cores)
        probe = self._probe
        together = probe.seconds(len(self._cores))
        if together <= _LIMIT * self._alone:
            return True
        # A core slows down as it gets warm, or for a neighbour: what counts is this moment.
        now = min(probe.seconds(1), probe.seconds(1))
        self._alone = min(self._alone, now) if self._alone > 0.0 else now
        together = min(together, probe.seconds(len(self._cores)))
        return together <= _LIMIT * now

    def close(self) -> None:
        """End the threads of the probe. Safe to call twice."""
        if self._probe is not None:
            self._probe.close()
