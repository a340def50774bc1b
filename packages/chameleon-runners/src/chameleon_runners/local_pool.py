"""The workers of one runner as a group: started when needed, replaced when they end."""

from __future__ import annotations

import contextlib
import select
import threading
import time
from collections.abc import Iterable
from typing import Any, Protocol

import attrs

from chameleon_runners.starter import Starter
from chameleon_runners.wake_pipe import WakePipe
from chameleon_runners.worker.protocol import Message
from chameleon_runners.worker_process import EndReason, WorkerEnd, WorkerProcess

_WATCH_SECONDS = 0.25


@attrs.frozen(kw_only=True, eq=False)
class Event:
    """A worker answered, or ended.

    Attributes:
        worker: which one.
        tag: what it was working on; None for one that ended while it was idle.
        reply: its answer, or None.
        end: how it ended, or None.
    """

    worker: WorkerProcess
    tag: Any
    reply: Message | None = None
    end: WorkerEnd | None = None


class Workers(Protocol):
    """Workers as whoever gives them work sees them: a whole pool, or one place of it."""

    cores: list[int]

    @property
    def size(self) -> int:
        """How many workers there are at most."""

    @property
    def workers(self) -> list[WorkerProcess]:
        """The workers that live."""

    @property
    def closed(self) -> bool:
        """Whether the workers were told to end for good."""

    def at(self, place: int) -> WorkerProcess | None:
        """The living worker at a place, or None."""

    def position(self, worker: WorkerProcess) -> int:
        """The worker's place in the whole pool."""

    def fill(self, count: int) -> None:
        """Start workers until there are ``count`` (at most ``size``)."""

    def wait(self, among: Iterable[WorkerProcess] | None = None) -> list[Event]:
        """Wait for events, at most a quarter of a second."""

    def quiet(self, worker: WorkerProcess | None = None) -> None:
        """Stop every idle worker, but for one that is about to be timed, until it has work."""

    def wake(self) -> None:
        """Make ``wait`` return soon."""


class LocalPool:
    """Starts workers and waits for them.

    Args:
        size: how many workers there are at most.
        threads: threads a kernel runs with.
        blas_threads: threads of OpenBLAS; more than one only where no references are computed.
        cores: usable cores.
        memory_bytes: memory limit of each worker.
        start_timeout: longest start in seconds.
        preload: ``"module:Class"`` of the stage that workers are going to be asked for.
    """

    def __init__(
        self,
        *,
        size: int,
        threads: int,
        blas_threads: int,
        cores: list[int],
        memory_bytes: int,
        start_timeout: float,
        preload: str | None = None,
    ) -> None:
        self.size = size
        self.cores = cores
        self._preload = preload
        self._starter = Starter(
            threads=threads,
            blas_threads=blas_threads,
            cores=cores,
            memory_bytes=memory_bytes,
            start_timeout=start_timeout,
        )
        self._workers: list[WorkerProcess | None] = [None] * size
        self._closed = False
        # A worker is either started before ``close`` looks for workers, or not at all.
        self._starting = threading.RLock()
        self._waking = WakePipe()

    @property
    def workers(self) -> list[WorkerProcess]:
        """The workers that live."""
        return [worker for worker in self._workers if worker is not None and worker.alive]

    @property
    def closed(self) -> bool:
        """Whether the workers were told to end for good."""
        return self._closed

    def at(self, place: int) -> WorkerProcess | None:
        """The living worker at a place, or None."""
        worker = self._workers[place]
        return worker if worker is not None and worker.alive else None

    def position(self, worker: WorkerProcess) -> int:
        """The worker's place in the pool, from which its core for building follows."""
        return self._workers.index(worker)

    def fill(self, count: int) -> None:
        """Start workers until there are ``count`` (at most ``size``).

        Raises:
            TargetError: workers end before they are ready, again and again.
        """
        for place in range(min(count, self.size)):
            with self._starting:
                worker = self._workers[place]
                if (worker is None or not worker.alive) and not self._closed:
                    self._workers[place] = self._start()

    def _start(self) -> WorkerProcess:
        worker = self._starter.start(preload=self._preload)
        if self._closed:
            # By a signal handler, in this very thread: nobody else knows this worker.
            worker.kill(EndReason.DEADLINE)
        return worker

    def wait(self, among: Iterable[WorkerProcess] | None = None) -> list[Event]:
        """Wait for events, at most a quarter of a second.

        Starting workers are dealt with here; the caller sees them idle afterwards.

        Args:
            among: the workers to watch; all of them where None.
        """
        watched = list(self.workers if among is None else among)
        descriptors = [worker.replies for worker in watched if worker.alive]
        now = time.monotonic()
        limits = [w.work.deadline - now for w in watched if w.work is not None]
        timeout = max(0.0, min([_WATCH_SECONDS, *limits]))
        # Poll rather than select, which knows no descriptor above 1023.
        poll = select.poll()
        for descriptor in (*descriptors, self._waking.fileno()):
            poll.register(descriptor, select.POLLIN)
        with contextlib.suppress(OSError, ValueError):
            ready = poll.poll(1000.0 * timeout)
            if any(descriptor == self._waking.fileno() for descriptor, _ in ready):
                self._waking.clear()
        events = []
        for worker in watched:
            tag = worker.work.tag if worker.work is not None else None
            reply = worker.poll()
            if tag == "init" and (reply is not None or not worker.alive):
                self._starter.started(worker, reply, closed=self._closed)
            elif reply is not None or not worker.alive:
                events.append(Event(worker=worker, tag=tag, reply=reply, end=worker.end))
        return events

    def quiet(self, worker: WorkerProcess | None = None) -> None:
        """Stop every idle worker, but for one that is about to be timed, until it has work."""
        for other in self.workers:
            if other is not worker and other.initialised:
                other.pause()

    def wake(self) -> None:
        """Make ``wait`` return soon; may be called from a signal handler."""
        self._waking.wake()

    def close(self) -> None:
        """End all workers. Safe to call twice, and while another call waits."""
        with self._starting:
            if self._closed:
                return
            self._closed = True
        self.wake()
        for worker in self._workers:
            if worker is not None:
                worker.kill(EndReason.DIED if worker.end else EndReason.DEADLINE)
        self._waking.close()
