"""How far a run is, for people: an installed display, or a few plain lines."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import TextIO

import structlog

from chameleon_core.events import BestImproved, RunFinished, RunStarted, TaskFinished
from chameleon_core.plugins.hookspecs import hookimpl
from chameleon_core.words import in_seconds

DISPLAYS = "chameleon.progress"
"""Entry points of functions that make a display for a stream: a listener of events with ``close``.
``chameleon-tuner-cli`` brings one."""

log = structlog.get_logger()


@contextlib.contextmanager
def display(stream: TextIO) -> Iterator[object]:
    """A listener of events that shows them while the context lasts.

    Args:
        stream: where it shows them.
    """
    shown = _installed(stream)
    try:
        yield shown
    finally:
        close: Callable[[], object] = getattr(shown, "close", lambda: None)
        close()


def _installed(stream: TextIO) -> object:
    for point in metadata.entry_points(group=DISPLAYS):
        try:
            return point.load()(stream)
        except Exception:  # anyone's code; watching a run must not end it
            log.exception("a display cannot be made and is left out", display=point.value)
    return TextProgress(stream)


class TextProgress:
    """One line where a run begins, where something gets better, and where a task ends.

    Args:
        stream: where the lines go.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def _say(self, line: str) -> None:
        self._stream.write(line + "\n")
        self._stream.flush()

    @hookimpl
    def chameleon_run_started(self, event: RunStarted) -> None:
        """See ``EventHooks``."""
        self._say(f"tuning {', '.join(task.name for task in event.tasks)}: {event.folder}")

    @hookimpl
    def chameleon_best_improved(self, event: BestImproved) -> None:
        """See ``EventHooks``."""
        best = in_seconds(event.seconds, "#.3g")
        self._say(f"{event.task}: {best} after {event.measured} measurements")

    @hookimpl
    def chameleon_task_finished(self, event: TaskFinished) -> None:
        """See ``EventHooks``."""
        best = in_seconds(event.task.best_seconds, "#.3g")
        self._say(f"{event.task.name}: {best}, {event.task.measured} measured, {event.reason}")

    @hookimpl
    def chameleon_run_finished(self, event: RunFinished) -> None:
        """See ``EventHooks``."""
        self._say(f"finished after {event.seconds:.1f} s: {event.folder}")


__all__ = ["DISPLAYS", "TextProgress", "display"]
