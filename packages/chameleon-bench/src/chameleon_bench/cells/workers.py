"""Worker processes for replayed cells: one per core, each single-threaded, used again and again."""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Self

import attrs
from chameleon_core.cores import usable_cores
from chameleon_core.errors import RunFolderError
from chameleon_core.loop.interruption import Interruption
from chameleon_core.processes.child import ChildProcess, status_words
from chameleon_core.processes.conversation import ChildEndedError, Conversation, Message

from chameleon_bench.cells.running import CellResult
from chameleon_bench.cells.worker import ENDED, UNWRITTEN
from chameleon_bench.suites.suite import Cell

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
_GRACE_SECONDS = 2.0
"""How long a worker that waits may take to end."""
_LINE_SECONDS = 10.0
"""How long the rest of an answer may take whose beginning is there."""


@attrs.define(eq=False)
class _Worker:
    child: ChildProcess
    conversation: Conversation
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
        self._workers: list[_Worker] = []
        self._started = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            if worker.child.stdin is not None:
                with contextlib.suppress(OSError):
                    worker.child.stdin.close()  # what it waits for ends, and so does it
        for worker in self._workers:
            worker.child.reap(0.0 if worker.cell is not None else _GRACE_SECONDS)

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
            RunFolderError: a result cannot be written.
        """
        waiting = list(reversed(cells))
        for _ in range(min(self._count, len(cells)) - len(self._workers)):
            self._workers.append(self._start())
        while waiting or any(worker.cell is not None for worker in self._workers):
            interruption.check()
            for place, worker in enumerate(self._workers):
                if worker.cell is None and waiting:
                    self._workers[place] = self._given(worker, waiting.pop())
            for worker in self._answering():
                self._receive(worker, ended)

    def _given(self, worker: _Worker, cell: Cell) -> _Worker:
        """A worker that has been given a cell; another one where it has died as it waited."""
        if not worker.child.alive:
            worker.child.kill()
            worker = self._start()
        worker.cell = cell
        # One that ends now gives no answer, which is the cell's failure.
        with contextlib.suppress(ChildEndedError):
            worker.conversation.tell(cell.to_json())
        return worker

    def _answering(self) -> list[_Worker]:
        """The workers that have answered or ended, after a short wait for one."""
        with selectors.DefaultSelector() as selector:
            for worker in self._workers:
                if worker.cell is not None and worker.child.stdout is not None:
                    selector.register(worker.child.stdout, selectors.EVENT_READ, worker)
            return [key.data for key, _ in selector.select(_POLL_SECONDS)]

    def _receive(self, worker: _Worker, ended: Callable[[Cell, str | None], None]) -> None:
        cell, worker.cell = worker.cell, None
        if cell is None:
            return
        try:
            answer = worker.conversation.answer(_LINE_SECONDS)
        except (ChildEndedError, TimeoutError):
            answer = _died(worker.child, cell)
        failure: str | None = answer["failure"]
        if answer["kind"] == UNWRITTEN:
            raise RunFolderError(
                failure or "a result cannot be written",
                hint="free space or restore access, and run it again",
            )
        if failure is not None and worker.child.log:
            sys.stderr.write(worker.child.log + "\n")
        worker.child.clear_log()
        ended(cell, failure)

    def _start(self) -> _Worker:
        """A worker that waits for cells."""
        child = ChildProcess(
            "chameleon_bench.cells.worker",
            [self._registry, str(self._started)],
            environment={**os.environ, **dict.fromkeys(_ONE_THREAD, "1")},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._started += 1
        return _Worker(child, Conversation(child))


def _died(child: ChildProcess, cell: Cell) -> Message:
    """The answer of a worker that gave none; the cell has that as its result."""
    words = f"its process ended with {status_words(child.kill())}"
    CellResult(identity=cell.identity, versions=cell.versions, failure=words).write(cell.result)
    return {"kind": ENDED, "failure": words}
