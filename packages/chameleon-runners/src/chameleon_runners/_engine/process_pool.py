"""A pool of workers that are processes of this machine, and how such a process is started."""

from __future__ import annotations

import contextlib
import os
import resource
import selectors
import sys
import threading
import time
from collections import deque

import attrs
import structlog
from chameleon_core.plugin_api import TargetError

from chameleon_runners._engine.worker_process import PipeEnd, WorkerProcess
from chameleon_runners._engine.workers import (
    EndReason,
    Listener,
    StoppedError,
    Worker,
    WorkerEvent,
    WorkerPool,
)
from chameleon_runners._environment import worker_environment
from chameleon_runners._worker.protocol import Message

_log = structlog.get_logger()

_START_ATTEMPTS = 4


@attrs.define(kw_only=True, eq=False)
class Starter:
    """Starts the workers of one runner, and counts failed starts.

    Attributes:
        threads: the number of threads that a kernel runs with.
        blas_threads: the number of threads of OpenBLAS, NumPy's library for matrix products.
            Workers that compute references need 1, because more threads spin afterwards on cores
            where kernels are timed.
        memory_bytes: the memory limit of each worker in bytes.
        start_timeout: the longest start of a worker in seconds.
    """

    threads: int
    blas_threads: int
    cores: list[int]
    memory_bytes: int
    start_timeout: float
    _failed: int = attrs.field(default=0, init=False)

    def start(self, *, preload: str | None) -> WorkerProcess:
        """Start a worker process."""
        environment = worker_environment(
            threads=self.threads, blas_threads=self.blas_threads, cores=self.cores
        )
        worker = WorkerProcess(environment=environment, memory_bytes=self.memory_bytes)
        message: Message = {
            "command": "init",
            "sys_path": [entry or str(os.getcwd()) for entry in sys.path],  # noqa: PTH109
            "memory_bytes": self.memory_bytes,
            "preload": preload,
        }
        worker.submit("init", message, self.start_timeout)
        return worker

    def handle_start_reply(
        self, worker: WorkerProcess, reply: Message | None, *, closed: bool
    ) -> None:
        """Handle a worker's reply to its first command, and end a worker that is not ready."""
        if reply is not None and reply["status"] == "ok":
            self._failed = 0
            return
        end = worker.kill(EndReason.DIED)
        reason = reply["message"] if reply is not None else end.explain()
        self._failed += 1
        _log.warning("worker_start_failed", reason=reason, attempt=self._failed)
        if self._failed >= _START_ATTEMPTS and not closed:
            raise TargetError(
                f"worker processes end before they are ready: {reason}",
                hint="see that this Python imports chameleon_runners, and raise memory_mib or "
                "start_timeout of the runner if it does",
            )


class WakePipe:
    """A pipe by which another thread or a signal handler wakes the thread that runs the pool."""

    def __init__(self) -> None:
        self._read: PipeEnd | None
        self._write: PipeEnd | None
        self._read, self._write = map(PipeEnd, os.pipe())
        os.set_blocking(self._read.number, False)
        os.set_blocking(self._write.number, False)

    def fileno(self) -> int:
        """The reading end of the pipe, for ``select``; -1 if it is closed."""
        return -1 if self._read is None else self._read.number

    def wake(self) -> None:
        """Make the reading end ready."""
        if (end := self._write) is not None:
            with contextlib.suppress(OSError):
                os.write(end.number, b"!")

    def clear(self) -> None:
        """Empty the pipe."""
        if (end := self._read) is not None:
            with contextlib.suppress(OSError):
                os.read(end.number, 1024)

    def close(self) -> None:
        """Close both ends."""
        self._read = self._write = None


_DESCRIPTORS = 8192
_WATCH_SECONDS = 0.25
_WATCHED = 8
"""The number of workers whose memory is checked every ``_WATCH_SECONDS``, in turns."""


class ProcessPool(WorkerPool):
    """A pool of worker processes, for all of which one thread waits."""

    def __init__(self, starter: Starter) -> None:
        super().__init__()
        _raise_descriptor_limit()
        self._starter = starter
        self._workers: dict[Worker, tuple[WorkerProcess, Listener]] = {}
        self._rotation: deque[WorkerProcess] = deque()
        self._last_watch = 0.0
        # No worker may start after ``close`` has listed the workers.
        self._lock = threading.RLock()
        self._selector = selectors.DefaultSelector()
        self._waking = WakePipe()
        self._selector.register(self._waking, selectors.EVENT_READ, None)

    @property
    def workers(self) -> list[WorkerProcess]:
        """The workers that are alive, as far as the pool knows."""
        return [worker for worker, _ in self._workers.values()]

    def now(self) -> float:
        return time.monotonic()

    def start_worker(self, listener: Listener, *, preload: str | None = None) -> Worker:
        with self._lock:
            self._require_open()
            worker = self._starter.start(preload=preload)
            if self.closed:
                # A signal handler in this thread closed the pool, without this worker.
                worker.kill(EndReason.DEADLINE)
                raise StoppedError
            self._workers[worker] = (worker, listener)
            self._selector.register(worker.replies, selectors.EVENT_READ, worker)
            self._rotation.append(worker)
            self._expect_answer(worker)
        return worker

    def submit(self, worker: Worker, then: Listener, message: Message, timeout: float) -> None:
        if worker not in self._workers:
            # The worker ended while it was idle.
            self.enqueue(then, WorkerEvent(worker=worker, end=worker.end))
            return
        worker, _ = self._workers[worker]
        worker.submit(then, message, timeout)
        self._expect_answer(worker)

    def _expect_answer(self, worker: WorkerProcess) -> None:
        if worker.work is not None:
            self._expect(worker, worker.work)

    def end_worker(self, worker: Worker) -> None:
        self.forget_events(worker)
        if worker in self._workers:
            worker, _ = self._workers[worker]
            worker.kill(EndReason.DEADLINE)
            self._forget(worker)

    def _forget(self, worker: WorkerProcess) -> None:
        self._workers.pop(worker, None)
        with contextlib.suppress(KeyError, ValueError, OSError, RuntimeError):
            self._selector.unregister(worker.replies)

    def wait(self, until: float | None) -> None:
        ready: list[tuple[selectors.SelectorKey, int]] = []
        # A signal handler or another thread may close the selector.
        with contextlib.suppress(OSError, ValueError, KeyError):
            ready = self._selector.select(self._seconds_to_wait(_WATCH_SECONDS, until))
        for key, _ in ready:
            if key.data is None:
                self._waking.clear()
            else:
                self._poll_worker(key.data)
        for worker, _ in self._overdue():
            self._poll_worker(worker)
        now = time.monotonic()
        if now - self._last_watch > _WATCH_SECONDS:
            self._last_watch = now
            self._watch()

    def _watch(self) -> None:
        """Check the memory of a few silent workers."""
        for _ in range(min(_WATCHED, len(self._rotation))):
            worker = self._rotation.popleft()
            if worker.alive:
                self._rotation.append(worker)
                # The memory of a paused worker does not grow.
                if not worker.paused:
                    self._poll_worker(worker)

    def pid_of(self, worker: Worker) -> int | None:
        """The process id of a worker, or None if the worker has ended."""
        return self._workers[worker][0].pid if worker in self._workers else None

    def is_alive(self, worker: Worker) -> bool:
        self._poll_worker(worker)
        return worker.alive

    def pause_idle(self, active: Worker | None = None) -> None:
        """Pause all idle workers except ``active``, each until its next command.

        Their threads would keep spinning on cores where another worker times a kernel.
        """
        for worker in self.workers:
            if worker is not active:
                worker.pause()

    def _poll_worker(self, worker: Worker) -> None:
        if worker not in self._workers:
            return
        worker, listener = self._workers[worker]
        work = worker.work
        reply = worker.poll()
        if reply is None and worker.alive:
            return
        if not worker.alive:
            self._forget(worker)
        if work is not None and work.tag == "init":
            self._started(worker, reply, listener)
            return
        seconds = time.monotonic() - work.started if work is not None else 0.0
        listener = listener if work is None else work.tag
        self.enqueue(
            listener, WorkerEvent(worker=worker, reply=reply, end=worker.end, seconds=seconds)
        )

    def _started(self, worker: WorkerProcess, reply: Message | None, listener: Listener) -> None:
        try:
            self._starter.handle_start_reply(worker, reply, closed=self.closed)
        finally:
            if worker.end is not None:
                self._forget(worker)
            start_reply = reply if worker.alive else None
            self.enqueue(listener, WorkerEvent(worker=worker, reply=start_reply, end=worker.end))

    def wake(self) -> None:
        self._waking.wake()

    def close(self) -> None:
        with self._lock:
            if self.closed:
                return
            self.closed = True
        self.wake()
        for worker in self.workers:
            worker.kill(EndReason.DEADLINE)
        self._selector.close()
        self._waking.close()


def _raise_descriptor_limit() -> None:
    """Raise this process's limit of open files, since each worker needs three."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
