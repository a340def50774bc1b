"""The progress of a run on stderr: bars on a terminal, or else one line for each batch."""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from chameleon_core.api import words
from chameleon_core.plugin_api import events, hookimpl

from chameleon_cli._result_rows import duration, failures

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class ProgressListener(Protocol):
    """A listener of events that shows progress, until it is closed."""

    def close(self) -> None:
        """Stop the progress display, and leave the terminal as it was before.

        A second call does nothing.
        """


def progress_for(stream: TextIO) -> ProgressListener:
    """Make the progress display for a stream: bars on a terminal, lines on other streams.

    Args:
        stream: the stream, such as stderr.
    """
    return LiveProgress(stream) if stream.isatty() else PlainProgress(stream)


class _Progress(ABC):
    """The common part of both displays: measurements, their rate, and the words of a line."""

    def __init__(self) -> None:
        self._rate = Rate()
        self._shared = False

    @abstractmethod
    def _say(self, line: str) -> None:
        """Show a line that stays on the screen."""

    @hookimpl
    def chameleon_check_started(self, event: events.CheckStarted) -> None:  # noqa: ARG002 - the hook passes it
        """See ``EventHooks``."""
        self._say("checking before anything is tuned: compiled once, and run once")

    @hookimpl
    def chameleon_check_finished(self, event: events.CheckFinished) -> None:
        """See ``EventHooks``."""
        checked = event.found.get("summary", dict(event.found))
        self._say(f"checked in {event.seconds:.1f} s: {checked}")

    def _begin(self, event: events.RunStarted) -> None:
        """Set the rate and the limits from the budget."""
        self._rate = Rate(event.seconds_left)
        # If all tasks share one budget, other tasks may use measurements that a task does not need.
        limits = [task.target_measurements or 0 for task in event.tasks]
        total = event.total_measurements
        self._shared = total is None or sum(limits) > total

    def _tell_choice(self, choice: Mapping[str, Any] | None) -> None:
        """Show the choice that the frontend made before it named the tasks."""
        if choice is not None:
            self._say(f"chosen first: {choice.get('summary', dict(choice))}")


class PlainProgress(_Progress):
    """Shows one line for each batch, for logs and pipes.

    Args:
        stream: the stream to which the lines are written.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._measured: dict[str, int] = {}
        self._total: int | None = 0
        self._ended: dict[str, list[str]] = {}

    def close(self) -> None:
        """See ``ProgressListener``."""
        self._tell_ended()

    def _tell_ended(self) -> None:
        """Show the tasks that have ended. Tasks with the same reason share a line."""
        ended, self._ended = self._ended, {}
        for reason, names in ended.items():
            tasks = words.counted(len(names), "task") if names[3:] else ", ".join(names)
            self._say(f"{tasks}: done, {reason}")

    def _say(self, line: str) -> None:
        self._tell_ended()
        self._stream.write(line + "\n")
        self._stream.flush()

    @hookimpl
    def chameleon_run_started(self, event: events.RunStarted) -> None:
        """See ``EventHooks``."""
        self._begin(event)
        self._total = event.total_measurements
        self._measured = {task.name: task.measured for task in event.tasks}
        stored = sum(self._measured.values())
        tasks = words.counted(len(event.tasks), "task")
        self._say(f"{tasks}, {_budget(event, stored)}: {event.folder}")
        self._tell_choice(event.settled)

    @hookimpl
    def chameleon_measured(self, event: events.Measured) -> None:
        """See ``EventHooks``."""
        self._tell_ended()
        self._rate.tick()
        self._measured[event.task] = self._measured.get(event.task, 0) + 1

    @hookimpl
    def chameleon_batch_measured(self, event: events.BatchMeasured) -> None:
        """See ``EventHooks``."""
        measured = sum(self._measured.values())
        left = self._rate.left(None if self._total is None else max(0, self._total - measured))
        self._say(
            f"{event.task.name}: {event.task.measured} measured, "
            f"failed {failures(event.task.failed)}, best {_best(event.task)}, "
            f"{self._rate.per_second:.1f}/s, {left} left"
        )

    @hookimpl
    def chameleon_task_finished(self, event: events.TaskFinished) -> None:
        """See ``EventHooks``."""
        if not self._shared and self._total is not None:
            self._total -= _unused(event.task)
        self._ended.setdefault(event.reason, []).append(event.task.name)

    @hookimpl
    def chameleon_comparison_started(self, event: events.ComparisonStarted) -> None:
        """See ``EventHooks``."""
        self._say(f"{event.task}: {_comparing(event)}")

    @hookimpl
    def chameleon_comparison_progressed(self, event: events.ComparisonProgressed) -> None:
        """See ``EventHooks``. A line is shown only for a complete step."""
        if event.done == event.of:
            self._say(f"{event.task}: {_progressed(event)}")

    @hookimpl
    def chameleon_run_finished(self, event: events.RunFinished) -> None:
        """See ``EventHooks``."""
        self._say(f"finished after {event.seconds:.1f} s: {event.folder}")


class LiveProgress(_Progress):
    """Shows a bar for each task and a bar for all tasks, which are redrawn in place.

    Args:
        stream: the terminal's stream.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # noqa: PLC0415

        self._progress: Progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=12),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            console=Console(file=stream),
        )
        self._rows: dict[str, TaskID] = {}
        self._best: dict[str, str] = {}
        self._failed: dict[str, Counter[str]] = {}
        self._comparing = ""

    def close(self) -> None:
        """See ``ProgressListener``."""
        self._progress.stop()

    def _say(self, line: str) -> None:
        self._progress.console.print(line, markup=False, highlight=False)

    @hookimpl
    def chameleon_run_started(self, event: events.RunStarted) -> None:
        """See ``EventHooks``."""
        self._begin(event)
        for task in event.tasks:
            self._best[task.name] = _best(task)
            self._failed[task.name] = Counter(task.failed)
            self._rows[task.name] = self._progress.add_task(
                task.name,
                total=_bar(task.target_measurements, task.measured),
                completed=task.measured,
                note=self._note(task.name),
            )
        measured = sum(task.measured for task in event.tasks)
        self._tell_choice(event.settled)
        total = _bar(event.total_measurements, measured)
        self._all = self._progress.add_task("all", total=total, completed=measured, note="")
        self._progress.start()

    @hookimpl
    def chameleon_measured(self, event: events.Measured) -> None:
        """See ``EventHooks``."""
        self._rate.tick()
        if event.failure is not None:
            self._failed[event.task][event.failure] += 1
        self._progress.update(self._rows[event.task], advance=1, note=self._note(event.task))
        self._advance_all(1)

    @hookimpl
    def chameleon_best_improved(self, event: events.BestImproved) -> None:
        """See ``EventHooks``."""
        self._best[event.task] = f"{duration(event.seconds)}, {event.gflops:.1f} GFLOP/s"
        self._progress.update(self._rows[event.task], note=self._note(event.task))

    @hookimpl
    def chameleon_task_finished(self, event: events.TaskFinished) -> None:
        """See ``EventHooks``."""
        measured = event.task.measured
        self._progress.update(self._rows[event.task.name], total=measured, completed=measured)
        row = self._progress.tasks[self._progress.task_ids.index(self._all)]
        if not self._shared and row.total is not None:
            self._progress.update(self._all, total=int(row.total) - _unused(event.task))

    @hookimpl
    def chameleon_comparison_started(self, event: events.ComparisonStarted) -> None:
        """See ``EventHooks``."""
        self._comparing = f"{event.task}: {_comparing(event)}"
        self._progress.update(self._all, note=self._comparing)

    @hookimpl
    def chameleon_comparison_progressed(self, event: events.ComparisonProgressed) -> None:
        """See ``EventHooks``."""
        self._progress.update(self._all, note=f"{self._comparing}, {_progressed(event)}")

    @hookimpl
    def chameleon_run_finished(self, event: events.RunFinished) -> None:
        """See ``EventHooks``."""
        note = f"finished after {event.seconds:.1f} s, {self._all_failed}"
        self._progress.update(self._all, note=note)
        self.close()

    def _note(self, task: str) -> str:
        failed = self._failed[task].total()
        return self._best[task] + (f", {failed} failed" if failed else "")

    @property
    def _all_failed(self) -> str:
        return f"failed {failures(sum(self._failed.values(), Counter[str]()))}"

    def _advance_all(self, count: int) -> None:
        row = self._progress.tasks[self._progress.task_ids.index(self._all)]
        remaining = row.remaining
        left = self._rate.left(None if remaining is None else max(0, int(remaining) - count))
        note = f"{self._rate.per_second:.1f}/s, {left} left, {self._all_failed}"
        self._progress.update(self._all, advance=count, note=note)


def _budget(event: events.RunStarted, stored: int) -> str:
    """The limit of a run as text, such as ``400 measurements``, and the measurements so far."""
    already = f", {stored} measured before" if stored else ""
    if event.total_measurements is not None:
        left = max(0, event.total_measurements - stored)
        more = (
            f"at most {words.counted(left, 'more measurement')}"
            if stored
            else f"{left} measurements"
        )
        return more + already
    if event.seconds_left is not None:
        return f"{event.seconds_left:.0f} s{already}"
    return f"as long as it gets better{already}"


def _bar(limit: int | None, measured: int) -> int | None:
    """The end of a bar, or None if the number of measurements has no limit."""
    return None if limit is None else max(limit, measured)


def _unused(task: events.TaskSummary) -> int:
    """Number of measurements that the budget allowed a task, but that it will not make."""
    return max(0, (task.target_measurements or 0) - task.measured)


def _comparing(event: events.ComparisonStarted) -> str:
    # A budget without measurements compares candidates that were never timed before.
    ours = words.counted(event.finalists, "candidate")
    rivals = f" with {words.counted(event.rivals, 'rival')}" if event.rivals else ""
    position = f", operator {event.place} of {event.of}" if event.of > 1 else ""
    return f"timing {ours}{rivals}{position}"


def _progressed(event: events.ComparisonProgressed) -> str:
    """The progress of a comparison as text, such as ``built 3 of 7``."""
    rounds = " rounds" if event.step == "timed" else ""
    return f"{event.step} {event.done} of {event.of}{rounds}"


def _best(task: events.TaskSummary) -> str:
    if task.best_seconds is None:
        return "none yet"
    return f"{duration(task.best_seconds)}, {task.gflops:.1f} GFLOP/s"


class Rate:
    """The speed of a run in measurements per second, and the time that the run still takes.

    Args:
        seconds_left: the seconds until the budget's wall-clock time ends the run, or None for no
            limit.
        window: the number of last measurements over which the rate is computed.
    """

    def __init__(self, seconds_left: float | None = None, window: int = 256) -> None:
        self._times: deque[float] = deque([time.monotonic()], maxlen=window)
        self._end = None if seconds_left is None else self._times[0] + seconds_left

    def tick(self) -> None:
        """Count one more measurement."""
        self._times.append(time.monotonic())

    @property
    def per_second(self) -> float:
        """Measurements per second; 0 before the first measurement."""
        span = self._times[-1] - self._times[0]
        return (len(self._times) - 1) / span if span > 0 else 0.0

    def left(self, count: int | None) -> str:
        """The time that the run still takes, as text such as ``3:20``.

        It is the time that the remaining measurements take at the present rate, or the time that
        the budget leaves.

        Args:
            count: the number of measurements that are left. None if only the wall-clock time ends
                the run.
        """
        if not self.per_second or (count is None and self._end is None):
            return "-"
        expected = math.inf if count is None else count / self.per_second
        if self._end is not None:
            expected = max(0.0, min(expected, self._end - self._times[-1]))
        minutes, seconds = divmod(round(expected), 60)
        return f"{minutes}:{seconds:02d}"
