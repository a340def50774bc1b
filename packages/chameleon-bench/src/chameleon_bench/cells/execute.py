"""Runs the cells of a suite that have not ended yet: replayed ones in parallel, live ones alone."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import attrs
from chameleon_core.loop import Interruption
from chameleon_core.plugins.registry import Registry, default_registry
from chameleon_system.files import unused

from chameleon_bench.cells.running import CellResult, run_cell
from chameleon_bench.cells.workers import INSTALLED, Workers
from chameleon_bench.suites.suite import CELLS, Cell, Suite

Told = Callable[[Cell, str | None], None]


@attrs.frozen(kw_only=True)
class Execution:
    """How a suite is run.

    Attributes:
        registry: the plugins of live cells; the installed ones where None.
        worker_registry: ``"module:function"`` that makes a worker's registry.
        workers: processes for replayed cells; one per core where None.
        retry: whether cells that failed before are run again.
        interruption: through which the suite may be asked to stop.
        ended: told of every cell that ends and why it failed, or None.
    """

    registry: Registry | None = None
    worker_registry: str = INSTALLED
    workers: int | None = None
    retry: bool = False
    interruption: Interruption = attrs.field(factory=Interruption)
    ended: Told = lambda _cell, _failure: None

    def run(self, suite: Suite) -> None:
        """Run every cell that has no result yet.

        Raises:
            RunInterrupted: the suite was asked to stop; ended cells are kept.
            RunFolderError: a result cannot be written.
        """
        cells = [cell for cell in suite.cells() if self._is_open(cell)]
        replayed = [cell for cell in cells if not cell.measures_hardware]
        if replayed:
            with Workers(self.workers, self.worker_registry) as workers:
                workers.run(replayed, self.interruption, self.ended)
        registry = self.registry if self.registry is not None else default_registry()
        for cell in cells:
            if cell.measures_hardware:
                self.interruption.check()
                result = run_cell(cell, registry=registry, interruption=self.interruption)
                self.ended(cell, result.failure)

    def _is_open(self, cell: Cell) -> bool:
        result = CellResult.read(cell)
        return result is None or (self.retry and result.failure is not None)


def results(suite: Suite) -> dict[Cell, CellResult]:
    """The results of the cells that have ended."""
    read = ((cell, CellResult.read(cell)) for cell in suite.cells())
    return {cell: result for cell, result in read if result is not None}


def move_aside(suite: Suite) -> Path | None:
    """Move the cells of earlier runs out of the way; where to, or None where there are none."""
    cells = suite.output / CELLS
    if not cells.exists():
        return None
    aside = unused(suite.output, "earlier-{}")
    aside.mkdir()
    shutil.move(cells, aside / CELLS)
    return aside


def outdated(suite: Suite) -> dict[Cell, CellResult]:
    """The results that cells have from other versions of what takes part in them."""
    read = ((cell, CellResult.of_other_versions(cell)) for cell in suite.cells())
    return {cell: result for cell, result in read if result is not None}
