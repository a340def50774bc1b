"""The event log of a run folder: one JSON object a line."""

from __future__ import annotations

import json
import time
from pathlib import Path

import attrs

from chameleon_core.events.records import Event
from chameleon_core.plugins.hookspecs import hookimpl


class EventLog:
    """Appends every event to a file but single measurements and steps of comparisons.

    The store has the former; the latter are for those who wait.

    Args:
        path: the file; an earlier process's lines stay.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @hookimpl
    def chameleon_check_started(self, event: Event) -> None:
        """See ``EventHooks``: whatever happened, it is a line."""
        name = type(event).__name__
        line = json.dumps({"at": time.time(), "event": name, **attrs.asdict(event)}, default=str)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    chameleon_check_finished = chameleon_check_started
    chameleon_run_started = chameleon_check_started
    chameleon_batch_proposed = chameleon_check_started
    chameleon_batch_measured = chameleon_check_started
    chameleon_best_improved = chameleon_check_started
    chameleon_task_finished = chameleon_check_started
    chameleon_comparison_started = chameleon_check_started
    chameleon_run_finished = chameleon_check_started
