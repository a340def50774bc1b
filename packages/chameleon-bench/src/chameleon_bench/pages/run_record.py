"""The contents of a run folder that a page shows; the run need not have ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
from chameleon_core.loop.context import disturbance_of
from chameleon_core.loop.end.result import OperatorResult
from chameleon_core.network_result import NetworkResult
from chameleon_core.run_folder import EVENTS, PIPELINE
from chameleon_core.run_view import RunView, ViewedOperator
from chameleon_core.stages import Disturbance
from chameleon_core.task import Task

from chameleon_bench.pages.measured import Measured, measured_of
from chameleon_bench.pages.run_events import Round, RunEvents, run_events


@attrs.frozen(kw_only=True, eq=False)
class TaskRecord:
    """One operator of a run, with its measurements and its result, for a page.

    Attributes:
        task: The task.
        measured: The task's measurements.
        operator: The task's result so far.
        ended: Why the task got no more batches; empty if it is not finished.
    """

    task: Task
    measured: Measured
    operator: OperatorResult
    ended: str = ""

    @property
    def first_seconds(self) -> float | None:
        """The time in seconds of the operator's first successful measurement, or None.

        This measurement is usually that of the first guess.
        """
        seconds = self.measured.seconds[self.measured.ok]
        return float(seconds[0]) if len(seconds) else None

    @property
    def best_seconds(self) -> float | None:
        """The winner's time in seconds, from the final comparison, or else from the search.

        The value is None if no configuration has a time.
        """
        return self.operator.tuned_seconds or self.operator.search_seconds


@attrs.frozen(kw_only=True, eq=False)
class RunRecord:
    """The contents of a run folder.

    Attributes:
        folder: The run folder.
        finished: Whether the run has ended.
        seconds: The wall-clock time of all processes of the run, in seconds.
        target: The resolved target; empty if unknown.
        runner: The runner's description of itself.
        versions: The version of each distribution that took part; None if it is not installed.
        settled: The frontend's choice (such as a layout) by measurements, or None.
        pipeline: The resolved pipeline as YAML.
        tasks: The operators, in the run's order.
        rounds: The measured batches of all operators, in the order of their measurement.
        starts: The start time of each process of the run in seconds since 1970, from the log.
        network: The result of the network; empty if there is none.
        disturbance: How much other programs disturbed the timing, as far as known.
    """

    folder: Path
    finished: bool
    seconds: float
    target: str
    runner: Mapping[str, Any]
    versions: Mapping[str, str | None]
    settled: Mapping[str, Any] | None
    pipeline: str
    tasks: Sequence[TaskRecord]
    rounds: Sequence[Round]
    starts: Sequence[float]
    network: NetworkResult
    disturbance: Disturbance


def run_record(folder: Path) -> RunRecord:
    """Read the contents of a run folder for its page, also while the run writes to it.

    Args:
        folder: The run folder.

    Raises:
        RunFolderError: The folder has no run.
    """
    events = run_events(folder / EVENTS)
    pipeline = folder / PIPELINE
    with RunView(folder) as run:
        return RunRecord(
            folder=run.folder,
            finished=run.result is not None,
            seconds=run.seconds,
            target=run.target,
            runner=run.runner,
            versions=run.versions,
            settled=run.store.fact("model"),
            pipeline=pipeline.read_text(encoding="utf-8") if pipeline.is_file() else "",
            tasks=[_task(operator, events) for operator in run.operators],
            rounds=events.rounds,
            starts=events.starts,
            network=NetworkResult() if run.result is None else run.result.network,
            disturbance=disturbance_of(run.store),
        )


def network_seconds(record: RunRecord) -> list[float]:
    """How the time of the network's operators falls: a sum after each measured batch.

    The sum is over the operators' lowest times in seconds. An operator counts as often as it occurs
    in the network. The sum is infinity until every operator has a time.

    Args:
        record: The run.
    """
    best = {task.task.name: float("inf") for task in record.tasks}
    weights = {task.task.name: task.task.weight for task in record.tasks}
    sums = []
    for turn in record.rounds:
        if turn.task in best and turn.best_seconds is not None:
            best[turn.task] = turn.best_seconds
        sums.append(sum(weights[name] * seconds for name, seconds in best.items()))
    return sums


def _task(operator: ViewedOperator, events: RunEvents) -> TaskRecord:
    task = operator.stored.task
    return TaskRecord(
        task=task,
        measured=measured_of(operator.store, operator.stored, events.starts),
        operator=operator.result,
        ended=events.ended.get(task.name, ""),
    )
