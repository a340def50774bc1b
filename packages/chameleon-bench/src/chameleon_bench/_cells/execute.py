"""Runs the cells of a suite that have no result yet.

A cell is one run of one pipeline on one task with one seed. Cells that replay recorded tables run
in parallel worker processes, one per core, each with one thread. Cells that measure hardware (live
cells) run one at a time.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import attrs
from chameleon_core.api import Interruption, Registry
from chameleon_core.plugin_api import RunFolderError
from chameleon_system.api import (
    ChildEndedError,
    ChildProcess,
    Closeable,
    Conversation,
    unused_path,
    usable_cores,
)

from chameleon_bench._cells.running import CellResult, run_cell
from chameleon_bench._suites.suite import CELLS, Cell, Suite

Ended = Callable[[Cell, str | None], None]
"""Called with each cell that ends and the reason of its failure, or None."""

INSTALLED = "chameleon_core.api:Registry.default"
"""The function from which a worker gets its plugins, as ``"module:function"``."""

_MODULE = "chameleon_bench._cells.worker"
_ONE_THREAD = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "TVM_NUM_THREADS",
)
_POLL_SECONDS = 0.2
_END_SECONDS = 2.0


class _Worker:
    """One worker process, and the cell that it is running."""

    def __init__(self, registry: str, number: int) -> None:
        self.cell: Cell | None = None
        self.child = ChildProcess(
            _MODULE,
            environment={**os.environ, **dict.fromkeys(_ONE_THREAD, "1")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.conversation = Conversation(self.child)
        self._first = {"sys_path": sys.path, "registry": registry, "number": number}
        self._told = False

    def begin(self, cell: Cell) -> None:
        """Send a cell to the worker process, which runs it."""
        if not self._told:
            self._told = True
            self.conversation.tell(self._first)
        self.conversation.tell(cell.to_json())
        self.cell = cell


class Workers(Closeable):
    """Runs cells in parallel worker processes, as a context manager."""

    def __init__(self, count: int | None = None, registry: str = INSTALLED) -> None:
        self._count = count or len(usable_cores())
        self._registry = registry
        self._workers: list[_Worker] = []
        self._numbers = 0

    def close(self) -> None:
        """End all processes."""
        for worker in self._workers:
            worker.conversation.close()  # the end of its input ends the process
        for worker in self._workers:
            worker.child.reap(_END_SECONDS)

    def run(self, cells: Sequence[Cell], interruption: Interruption, ended: Ended) -> None:
        """Run cells; each cell writes its own result."""
        waiting = list(reversed(cells))
        for _ in range(min(self._count, len(cells)) - len(self._workers)):
            self._workers.append(self._started())
        while waiting or any(worker.cell is not None for worker in self._workers):
            if interruption.requested:
                for worker in self._workers:
                    worker.child.kill()
                interruption.check()
            for index, worker in enumerate(self._workers):
                if worker.cell is None and waiting:
                    self._begin(index, waiting.pop())
            for worker in self._ready():
                self._receive(worker, ended)

    def _started(self) -> _Worker:
        self._numbers += 1
        return _Worker(self._registry, self._numbers - 1)

    def _begin(self, position: int, cell: Cell) -> None:
        """Give a cell to a worker, or to a new one in its place if the worker has ended."""
        try:
            self._workers[position].begin(cell)
        except ChildEndedError:
            self._workers[position].child.kill()
            self._workers[position] = self._started()
            self._workers[position].begin(cell)

    def _ready(self) -> list[_Worker]:
        """The workers that answered or ended within a short wait; empty if none did."""
        with selectors.DefaultSelector() as selector:
            for worker in self._workers:
                if worker.cell is not None:
                    selector.register(worker.conversation, selectors.EVENT_READ, worker)
            return [key.data for key, _ in selector.select(_POLL_SECONDS)]

    def _receive(self, worker: _Worker, ended: Ended) -> None:
        cell = worker.cell
        if cell is None:
            return
        try:
            answer = worker.conversation.answer(0.0)
        except TimeoutError:
            return  # the answer is not complete yet
        except ChildEndedError:
            status = worker.child.reap(_END_SECONDS)
            answer = {"failure": f"its process died with exit code {status}"}
            CellResult.failed(cell, answer["failure"]).write(cell.result)
            self._workers[self._workers.index(worker)] = self._started()
        worker.cell = None
        if answer.get("failure") and worker.child.log:
            sys.stderr.write(worker.child.log + "\n")
        worker.child.clear_log()
        if "unwritten" in answer:
            hint = "free space or restore access, and run it again"
            raise RunFolderError(answer["unwritten"], hint=hint)
        ended(cell, answer["failure"])


@attrs.frozen(kw_only=True)
class Execution:
    """The options with which a suite is run.

    Attributes:
        registry: The registry of plugins for live cells; None for the installed plugins.
        workers: The number of processes for replayed cells; None for one per core.
        retry: Whether to run cells again that failed in an earlier call.
        interruption: The object that holds a request to stop, if any.
        ended: A function that is called with each cell that ends. Its second argument is the reason
            of a failure, or None.
    """

    registry: Registry | None = None
    worker_registry: str = INSTALLED
    workers: int | None = None
    retry: bool = False
    interruption: Interruption = attrs.field(factory=Interruption)
    ended: Ended = lambda _cell, _failure: None

    def run(self, suite: Suite) -> None:
        """Run every cell that has no result yet."""
        cells = [cell for cell in suite.cells() if self._is_open(cell)]
        replayed = [cell for cell in cells if not cell.measures_hardware]
        if replayed:
            with Workers(self.workers, self.worker_registry) as workers:
                workers.run(replayed, self.interruption, self.ended)
        registry = self.registry or Registry.default()
        for cell in cells:
            if cell.measures_hardware:
                self.interruption.check()
                result = run_cell(cell, registry=registry, interruption=self.interruption)
                self.ended(cell, result.failure)

    def _is_open(self, cell: Cell) -> bool:
        result = CellResult.read(cell)
        return result is None or (self.retry and result.failure is not None)


def results(suite: Suite) -> dict[Cell, CellResult]:
    """The results of all cells that have ended, by cell."""
    read = ((cell, CellResult.read(cell)) for cell in suite.cells())
    return {cell: result for cell, result in read if result is not None}


def move_aside(suite: Suite) -> Path | None:
    """Move the cells of earlier runs of a suite to another folder, so that all run again.

    Returns:
        The new place, or None if there are no cells.
    """
    cells = suite.output / CELLS
    if not cells.exists():
        return None
    aside = unused_path(suite.output, "earlier-{}")
    with RunFolderError.on_os_error(f"cannot move {cells}", hint="restore access to its folder"):
        aside.mkdir()
        try:
            shutil.move(cells, aside / CELLS)
        except OSError:
            with contextlib.suppress(OSError):  # the folder may have some of the cells
                aside.rmdir()
            raise
    return aside


def outdated(suite: Suite) -> dict[Cell, CellResult]:
    """Results that other versions of the distributions gave, by cell."""
    read = ((cell, CellResult.of_other_versions(cell)) for cell in suite.cells())
    return {cell: result for cell, result in read if result is not None}
