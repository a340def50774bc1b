"""What a run folder knows, finished or not, as its report shows it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from chameleon_core.loop.end.operator_result import interim_result
from chameleon_core.loop.end.result import NetworkResult, OperatorResult
from chameleon_core.run_folder import EVENTS, PIPELINE, read_store
from chameleon_core.store import RecordStore, StoredTask
from chameleon_core.task import Task
from numpy.typing import NDArray


@attrs.frozen(kw_only=True, eq=False)
class TaskRecord:
    """One operator of a run.

    Attributes:
        task: what was tuned.
        costs: of every measurement in seconds, infinity for failures, in order of arrival,
            shape (n,).
        operator: its result; of a run that has not ended, what is known so far.
        ended: why it got no further batch, or empty.
    """

    task: Task
    costs: NDArray[np.float64]
    operator: OperatorResult
    ended: str = ""

    @property
    def best_so_far(self) -> NDArray[np.float64]:
        """The least cost until each measurement, in seconds, shape (n,)."""
        best: NDArray[np.float64] = np.minimum.accumulate(self.costs)
        return best

    @property
    def first_seconds(self) -> float | None:
        """The first measurement that succeeded: what the space's first guess is worth."""
        return next((float(cost) for cost in self.costs if np.isfinite(cost)), None)

    @property
    def best_seconds(self) -> float | None:
        """The time in seconds from the final comparison; from the search where none was made."""
        return self.operator.tuned_seconds or self.operator.search_seconds


@attrs.frozen(kw_only=True)
class Round:
    """One batch of the scheduler's.

    Attributes:
        task: name of the operator that got it.
        best_seconds: the operator's best afterwards, or None.
        measured: the operator's measurements afterwards.
    """

    task: str
    best_seconds: float | None
    measured: int


@attrs.frozen(kw_only=True, eq=False)
class RunRecord:
    """A run folder.

    Attributes:
        folder: where it is.
        finished: whether the run has ended.
        seconds: wall-clock of all its processes in seconds.
        target: the resolved target, or empty.
        runner: the runner's description of itself.
        settled: what the frontend chose by measurement, or None.
        pipeline: the resolved pipeline as YAML.
        tasks: in the run's order.
        rounds: in the order in which they were measured.
        network: what became of the network; empty where there is none.
    """

    folder: Path
    finished: bool
    seconds: float
    target: str
    runner: Mapping[str, Any]
    settled: Mapping[str, Any] | None
    pipeline: str
    tasks: Sequence[TaskRecord]
    rounds: Sequence[Round]
    network: NetworkResult


def run_record(folder: Path) -> RunRecord:
    """Read a run folder, even while it is being written.

    Raises:
        RunFolderError: there is no run in it.
    """
    events = list(_events(folder / EVENTS))
    ended = {
        event["task"]["name"]: str(event["reason"])
        for event in events
        if event["event"] == "TaskFinished"
    }
    with read_store(folder) as store:
        result = (store.fact("finished") or {}).get("result")
        tasks = _finished(store, result, ended) if result else _so_far(store, ended)
        seconds = float(store.fact("seconds") or 0.0)
        target, runner = store.fact("target"), store.fact("runner")
        settled = store.fact("model")
    pipeline = folder / PIPELINE
    return RunRecord(
        folder=folder.absolute(),
        finished=result is not None,
        seconds=seconds,
        target=target or "",
        runner=runner or {},
        settled=settled,
        pipeline=pipeline.read_text(encoding="utf-8") if pipeline.is_file() else "",
        tasks=tasks,
        rounds=_rounds(events),
        network=NetworkResult.from_json(result["network"]) if result else NetworkResult(),
    )


def network_seconds(record: RunRecord) -> list[float]:
    """After each round the sum of all operators' best times, as often as each occurs.

    Infinite until every operator has a time.
    """
    best = {one.task.name: float("inf") for one in record.tasks}
    weights = {one.task.name: one.task.weight for one in record.tasks}
    sums = []
    for turn in record.rounds:
        if turn.task in best and turn.best_seconds is not None:
            best[turn.task] = turn.best_seconds
        sums.append(sum(weights[name] * seconds for name, seconds in best.items()))
    return sums


def _finished(
    store: RecordStore, result: Mapping[str, Any], ended: Mapping[str, str]
) -> list[TaskRecord]:
    rows = {(one.task.key, one.fingerprint): one for one in store.tasks()}
    found = []
    for value in result["operators"]:
        operator = OperatorResult.from_json(value)
        task = Task(**operator.task)
        stored = rows[task.key, operator.fingerprint]
        found.append(
            TaskRecord(
                task=task,
                costs=_costs(store, stored),
                operator=operator,
                ended=ended.get(task.name, ""),
            )
        )
    return found


def _so_far(store: RecordStore, ended: Mapping[str, str]) -> list[TaskRecord]:
    return [
        TaskRecord(
            task=stored.task,
            costs=_costs(store, stored),
            operator=interim_result(store, stored),
            ended=ended.get(stored.task.name, ""),
        )
        for stored in store.tasks()
    ]


def _costs(store: RecordStore, stored: StoredTask) -> NDArray[np.float64]:
    return np.array([m.cost for m in store.measurements(stored.id)], np.float64)


def _events(path: Path) -> Iterator[Mapping[str, Any]]:
    """The events of a run; a line that was cut off is left out."""
    if not path.is_file():
        return
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            # Only these kinds matter here; the results inside others are long.
            if '"event": "BatchMeasured"' in line or '"event": "TaskFinished"' in line:
                try:
                    yield json.loads(line)
                except json.JSONDecodeError:
                    continue


def _rounds(events: Sequence[Mapping[str, Any]]) -> list[Round]:
    return [
        Round(
            task=event["task"]["name"],
            best_seconds=event["task"]["best_seconds"],
            measured=event["task"]["measured"],
        )
        for event in events
        if event["event"] == "BatchMeasured"
    ]
