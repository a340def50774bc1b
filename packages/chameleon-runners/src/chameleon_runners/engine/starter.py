"""Starts worker processes with their environment and first command."""

from __future__ import annotations

import os
import sys

import attrs
import structlog
from chameleon_core.errors import TargetError

from chameleon_runners.engine.worker_process import WorkerProcess
from chameleon_runners.engine.workers import EndReason
from chameleon_runners.environment import worker_environment
from chameleon_runners.worker.protocol import Message

_log = structlog.get_logger()

_START_ATTEMPTS = 4


@attrs.define(kw_only=True, eq=False)
class Starter:
    """Starts the workers of one runner, and counts failed starts.

    Attributes:
        threads: The number of threads that a kernel runs with.
        blas_threads: The number of threads of OpenBLAS, NumPy's library for matrix products. It may
            be above 1 only if the workers compute no references. After computing a reference, these
            threads spin for a while, on cores where a kernel may be timed next.
        cores: The usable cores.
        memory_bytes: The memory limit of each worker in bytes.
        start_timeout: The longest start of a worker in seconds.
    """

    threads: int
    blas_threads: int
    cores: list[int]
    memory_bytes: int
    start_timeout: float
    _failed: int = attrs.field(default=0, init=False)

    def start(self, *, preload: str | None) -> WorkerProcess:
        """Start a worker process. Its reply to the first command, ``init``, says that it is ready.

        Args:
            preload: ``"module:Class"`` of the stage that the worker should import early, or None.
        """
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

    def started(self, worker: WorkerProcess, reply: Message | None, *, closed: bool) -> None:
        """Handle a worker's reply to its first command, and end a worker that is not ready.

        Args:
            worker: The worker.
            reply: The worker's reply; None if it ended.
            closed: Whether the pool was closed meanwhile.

        Raises:
            TargetError: Several workers in a row ended before they were ready.
        """
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
