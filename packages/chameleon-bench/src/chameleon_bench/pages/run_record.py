"""A run folder, finished or not, as its report shows it."""

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
    """One operator of a run.

    Attributes:
        task: what was tuned.
        measured: its measurements.
        operator: its result; of a run that has not ended, what is known so far.
        ended: why it got no further batch, or empty.
    """

    task: Task
    measured: Measured
    operator: OperatorResult
    ended: str = ""

    @property
    def first_seconds(self) -> float | None:
        """The first measurement that succeeded: what the space's first guess is worth."""
        seconds = self.measured.seconds[self.measured.ok]
        return float(seconds[0]) if len(seconds) else None

    @property
    def best_seconds(self) -> float | None:
        """The time in seconds from the final comparison; from the search if none was made."""
        return self.operator.tuned_seconds or self.operator.search_seconds


@attrs.frozen(kw_only=True, eq=False)
class RunRecord:
    """A run folder.

    Attributes:
        folder: where it is.
        finished: whether the run has ended.
        seconds: wall-clock of all its processes in seconds.
        target: the resolved target, or empty.
        runner: the runner's description of itself.
        versions: of the distributions that took part, None of those that are not installed.
        settled: what the frontend chose by measurement, or None.
        pipeline: the resolved pipeline as YAML.
        tasks: in the run's order.
        rounds: in the order in which they were measured.
        starts: when each of its processes began, in seconds since 1970, as far as the log says.
        network: what became of the network; empty if there is none.
        disturbance: what disturbed timing, as far as it is known.
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
    """Read a run folder, even while it is being written.

    Raises:
        RunFolderError: there is no run in it.
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
    """After each round the sum of all operators' best times, as often as each occurs.

    Infinite until every operator has a time.
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
