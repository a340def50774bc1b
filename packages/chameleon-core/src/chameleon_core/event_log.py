"""The event log of a run folder: one JSON object a line."""

from __future__ import annotations

import json
import time
from pathlib import Path

import attrs

from chameleon_core.events.records import (
    BatchMeasured,
    BatchProposed,
    BestImproved,
    CheckFinished,
    CheckStarted,
    ComparisonStarted,
    Event,
    RunFinished,
    RunStarted,
    TaskFinished,
)
from chameleon_core.plugins.hookspecs import hookimpl


class EventLog:
    """Appends every event but single measurements, which the store has, to a file.

    Args:
        path: the file; an earlier process's lines stay.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def _append(self, event: Event) -> None:
        name = type(event).__name__
        line = json.dumps({"at": time.time(), "event": name, **attrs.asdict(event)}, default=str)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    @hookimpl
    def chameleon_check_started(self, event: CheckStarted) -> None:
        """See ``EventHooks``."""
        self._append(event)

    @hookimpl
    def chameleon_check_finished(self, event: CheckFinished) -> None:
        """See ``EventHooks``."""
        self._append(event)

    @hookimpl
    def chameleon_run_started(self, event: RunStarted) -> None:
        """See ``EventHooks``."""
        self._append(event)

    @hookimpl
    def chameleon_batch_proposed(self, event: BatchProposed) -> None:
        """See ``EventHooks``."""
        self._append(event)

    @hookimpl
    def chameleon_batch_measured(self, event: BatchMeasured) -> None:
        """See ``EventHooks``."""
        self._append(event)

    @hookimpl
    def chameleon_best_improved(self, event: BestImproved) -> None:
        """See ``EventHooks``."""
        self._append(event)

    @hookimpl
    def chameleon_task_finished(self, event: TaskFinished) -> None:
        """See ``EventHooks``."""
        self._append(event)

    @hookimpl
    def chameleon_comparison_started(self, event: ComparisonStarted) -> None:
        """See ``EventHooks``."""
        self._append(event)

    @hookimpl
    def chameleon_run_finished(self, event: RunFinished) -> None:
        """See ``EventHooks``."""
        self._append(event)
