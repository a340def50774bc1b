"""Worker processes for replayed cells: one per core, each single-threaded, used again and again."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import connection
from typing import Any, Self

import attrs
import structlog
from chameleon_core.cores import usable_cores
from chameleon_core.errors import ChameleonError
from chameleon_core.loop.interruption import Interruption, RunInterrupted
from chameleon_core.plugins.factory import load_factory

from chameleon_bench.cells.core_claims import claim_core
from chameleon_bench.suites.suite import Cell

log = structlog.get_logger()

INSTALLED = "chameleon_core.plugins.registry:default_registry"
"""The function that a worker gets its plugins from."""

_ONE_THREAD = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "TVM_NUM_THREADS",
)
_POLL_SECONDS = 0.2


@attrs.define
class _Worker:
    process: Any
    pipe: Any
    cell: Cell | None = None


class Workers:
    """Runs cells in parallel processes; a context manager.

    Args:
        count: processes; as many as there are cores where None.
        registry: ``"module:function"`` that makes the registry in a worker.
    """

    def __init__(self, count: int | None = None, registry: str = INSTALLED) -> None:
        self._count = count or len(usable_cores())
        self._registry = registry
        self._context = multiprocessing.get_context("spawn")
        self._workers: list[_Worker] = []
        self._started = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.pipe.close()  # what it waits for ends, and so does it
        for worker in self._workers:
            worker.process.join(_POLL_SECONDS * 10)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()

    def run(
        self,
        cells: Sequence[Cell],
        interruption: Interruption,
        ended: Callable[[Cell, str | None], None],
    ) -> None:
        """Run all cells; each writes its own result.

        Args:
            cells: what to run, in this order.
            interruption: asks to stop; the cells in flight are given up.
            ended: told of every cell and why it failed, or None.

        Raises:
            RunInterrupted: the suite was asked to stop.
            ChameleonError: a result cannot be written.
        """
        waiting = list(reversed(cells))
        for _ in range(min(self._count, len(cells)) - len(self._workers)):
            self._workers.append(self._start())
        while waiting or any(worker.cell is not None for worker in self._workers):
            if interruption.requested:
                self._stop()
                interruption.check()
            for worker in self._workers:
                if worker.cell is None and waiting:
                    worker.cell = waiting.pop()
                    worker.pipe.send(worker.cell.to_json())
            busy = {worker.pipe: worker for worker in self._workers if worker.cell is not None}
            for pipe in connection.wait(list(busy), timeout=_POLL_SECONDS):
                self._receive(busy[pipe], ended)

    def _receive(self, worker: _Worker, ended: Callable[[Cell, str | None], None]) -> None:
        cell, worker.cell = worker.cell, None
        if cell is None:
            return
        try:
            kind, words = worker.pipe.recv()
        except (EOFError, OSError):
            worker.process.join()
            words = f"its process died with exit code {worker.process.exitcode}"
            _write_failure(cell, words)
            self._workers[self._workers.index(worker)] = self._start()
            kind = "ended"
        if kind == "unwritten":
            raise ChameleonError(words, hint="free space or restore access, and run it again")
        ended(cell, words)

    def _stop(self) -> None:
        for worker in self._workers:
            worker.process.terminate()
            worker.process.join()

    def _start(self) -> _Worker:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(
            target=_work, args=(theirs, self._registry, self._started), daemon=True
        )
        self._started += 1
        with _environment(dict.fromkeys(_ONE_THREAD, "1")):
            process.start()
        theirs.close()
        return _Worker(process=process, pipe=ours)


def _write_failure(cell: Cell, words: str) -> None:
    from chameleon_bench.cells.running import CellResult  # noqa: PLC0415 - the workers' business

    CellResult(identity=cell.identity, failure=words).write(cell.result)


def _work(pipe: Any, registry: str, number: int) -> None:
    """Run the cells that come through a pipe until it is closed, or its other end dies."""
    # Ctrl-C goes to every process of the terminal; the parent says what becomes of this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "sched_setaffinity"):
        # Stages ask how many cores they may use; here it is one, and no two workers share it.
        cores = sorted(os.sched_getaffinity(0))
        core = claim_core(cores)
        os.sched_setaffinity(0, {cores[number % len(cores)] if core is None else core})
    from chameleon_bench.cells.running import run_cell  # noqa: PLC0415 - after the core is chosen

    made = load_factory(registry)()
    while True:
        try:
            cell = Cell.from_json(pipe.recv())
        except EOFError:
            return
        try:
            result = run_cell(cell, registry=made, interruption=Interruption())
            answer = ("ended", result.failure)
        except RunInterrupted as error:
            answer = ("ended", str(error))
        except ChameleonError as error:
            answer = ("unwritten", str(error))
        with contextlib.suppress(OSError):
            pipe.send(answer)


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Environment variables that a process started meanwhile inherits."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
