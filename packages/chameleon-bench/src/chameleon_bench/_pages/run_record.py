"""The content of a run folder for pages: events, measurements, and results of operators."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from chameleon_core.api import NetworkResult, OperatorResult, RecordStore, RunFile, RunView
from chameleon_core.plugin_api import Disturbance, Measurement, Task
from numpy.typing import NDArray

_KINDS = ("RunStarted", "BatchMeasured", "TaskFinished")


@attrs.frozen(kw_only=True)
class Round:
    """One batch that the scheduler gave to an operator.

    Attributes:
        best_seconds: The operator's lowest time after the batch, or None.
        measured: The operator's number of measurements after the batch.
        at: The time when the batch was complete, in seconds since 1970.
    """

    task: str
    best_seconds: float | None
    measured: int
    at: float


@attrs.frozen(kw_only=True)
class RunEvents:
    """The events of a run that pages use; empty if the run has no log.

    Attributes:
        starts: The start time of each process of the run, rising, in seconds since 1970.
        rounds: The batches in the order in which they were measured.
        ended: Why an operator got no more batches, by the operator's name.
    """

    starts: Sequence[float] = ()
    rounds: Sequence[Round] = ()
    ended: Mapping[str, str] = attrs.field(factory=dict)


def run_events(path: Path) -> RunEvents:
    """Read the event log of a run, also while the run writes to it."""
    if not path.is_file():
        return RunEvents()
    events = list(_events(path))
    measured = [event for event in events if event["event"] == "BatchMeasured"]
    return RunEvents(
        starts=sorted(float(event["at"]) for event in events if event["event"] == "RunStarted"),
        rounds=[
            Round(
                task=event["task"]["name"],
                best_seconds=event["task"]["best_seconds"],
                measured=event["task"]["measured"],
                at=float(event["at"]),
            )
            for event in measured
        ],
        ended={
            event["task"]["name"]: str(event["reason"])
            for event in events
            if event["event"] == "TaskFinished"
        },
    )


def since(times: NDArray[np.float64], starts: Sequence[float]) -> NDArray[np.float64]:
    """Seconds from the start of a run to each time, without pauses between the run's processes.

    Args:
        times: Times in seconds since 1970, shape (n,).
        starts: The start time of each process, rising, in seconds since 1970. If it is empty, the
            earliest of ``times`` is the start.
    """
    if not len(times):
        return times
    begin = starts[0] if starts else float(times.min())
    idle = np.zeros(len(times))
    for previous, start in itertools.pairwise(starts):
        # A process counts as working until its last known measurement.
        last = times[times < start].max(initial=previous)
        idle[times >= start] += start - last
    return np.maximum(times - begin - idle, 0.0)


def _events(path: Path) -> Iterator[Mapping[str, Any]]:
    """The events that pages use."""
    with path.open(encoding="utf-8", errors="replace") as lines:
        for line in lines:
            # Other kinds of events contain long results, which are not parsed.
            if any(f'"event": "{kind}"' in line for kind in _KINDS):
                try:
                    yield json.loads(line)
                except json.JSONDecodeError:
                    continue


UNKNOWN = "not recorded"
"""The origin of measurements whose version of Chameleon recorded none."""


@attrs.frozen(kw_only=True, eq=False)
class Categories:
    """A column of words of which few are different.

    Attributes:
        labels: The distinct words, shape (m,).
        codes: The index of each row's word in ``labels``, -1 for no word, int64 of shape (n,).
    """

    labels: Sequence[str]
    codes: NDArray[np.int64]

    @property
    def words(self) -> list[str]:
        """The word of each row; an empty string for no word."""
        labels = [*self.labels, ""]
        return [labels[code] for code in self.codes.tolist()]


@attrs.frozen(kw_only=True, eq=False)
class Measured:
    """The n measurements of one operator, in order of arrival.

    Attributes:
        configs: The knob indices, int64 of shape (n, knobs).
        seconds: The median of each measurement's repeats in seconds, infinity for failures, float64
            of shape (n,).
        spread: The slowest minus the fastest repeat, divided by the median; NaN for failures,
            float64 of shape (n,).
        at: The wall-clock seconds from the start of the run to each measurement, without pauses
            between the run's processes, float64 of shape (n,).
        scores: The cost model's score of each configuration when it was proposed, higher is better,
            float64 of shape (n,). The scale is the model's own. NaN if no trained model scored it.
        failures: The kind of failure of each measurement; none for measurements with a time.
        messages: The message of each failure, empty for measurements with a time, n of them.
        knobs: The value of each knob in each configuration, by knob name. A configuration in which
            a knob has no effect has no value for it.
    """

    configs: NDArray[np.int64]
    seconds: NDArray[np.float64]
    spread: NDArray[np.float64]
    at: NDArray[np.float64]
    origins: Categories
    scores: NDArray[np.float64]
    failures: Categories
    messages: Sequence[str]
    knobs: dict[str, Categories]

    @property
    def ok(self) -> NDArray[np.bool_]:
        """Whether each measurement has a time, shape (n,)."""
        return np.isfinite(self.seconds)

    @property
    def best_so_far(self) -> NDArray[np.float64]:
        """The lowest time up to each measurement in seconds, shape (n,)."""
        best: NDArray[np.float64] = np.minimum.accumulate(self.seconds)
        return best

    def fastest(self, count: int) -> NDArray[np.int64]:
        """The rows of the fastest measurements, fastest first, at most ``count``."""
        order = np.argsort(self.seconds, kind="stable")[:count]
        rows: NDArray[np.int64] = order[self.ok[order]]
        return rows

    def values_of(self, row: int) -> dict[str, str]:
        """The knob values of one measurement, by knob name; knobs without effect are left out."""
        return {
            name: knob.labels[knob.codes[row]]
            for name, knob in self.knobs.items()
            if knob.codes[row] >= 0
        }


def measured_of(
    store: RecordStore, stored: RecordStore.TaskRow, starts: Sequence[float]
) -> Measured:
    """Read the measurements of a task.

    ``starts`` is the start time of each of the run's processes, rising, in seconds since 1970. With
    these times, pauses between the processes are left out of the times of measurements.
    """
    rows = store.measurements(stored.id)
    seconds = np.array([row.cost for row in rows], np.float64)
    extent = [max(row.seconds) - min(row.seconds) if row.ok else np.nan for row in rows]
    order = [*(origin.value for origin in Measurement.Origin), UNKNOWN]
    knobs = len(rows[0].config) if rows else 0
    return Measured(
        configs=np.array([row.config for row in rows], np.int64).reshape(len(rows), knobs),
        seconds=seconds,
        spread=np.array(extent, np.float64) / seconds,
        at=since(np.array(store.measured_at(stored.id), np.float64), starts),
        origins=_categories([origin or UNKNOWN for origin in store.origins(stored.id)], order),
        scores=np.array(store.scores(stored.id), np.float64),
        failures=_categories([row.failure.value if row.failure else None for row in rows]),
        messages=[row.message for row in rows],
        knobs=_knobs(store.decoded(stored.id)),
    )


def shown(value: Any) -> str:
    """A knob's value as text for a page, such as ``4 x 2 x 8`` for the factors of a loop."""
    if isinstance(value, list | tuple):
        return " x ".join(map(shown, value))
    return value if isinstance(value, str) else json.dumps(value)


def _categories(words: Sequence[str | None], order: Iterable[str] = ()) -> Categories:
    """A column of words."""
    labels = list(dict.fromkeys(word for word in words if word is not None))
    ranks = {word: rank for rank, word in enumerate(order)}
    labels.sort(key=lambda word: ranks.get(word, len(ranks)))
    places = {word: code for code, word in enumerate(labels)}
    codes = [-1 if word is None else places[word] for word in words]
    return Categories(labels=labels, codes=np.array(codes, np.int64))


def _knobs(decoded: Sequence[dict[str, Any]]) -> dict[str, Categories]:
    names = dict.fromkeys(name for choices in decoded for name in choices)
    knobs = {}
    for name in names:
        values = [choices.get(name) for choices in decoded]
        words = [None if value is None else shown(value) for value in values]
        numbers = {
            word: value
            for word, value in zip(words, values, strict=True)
            if word is not None and isinstance(value, int | float)
        }
        knobs[name] = _categories(words, sorted(numbers, key=lambda word: numbers[word]))
    return knobs


@attrs.frozen(kw_only=True, eq=False)
class TaskRecord:
    """One operator of a run, with its measurements and its result, for a page.

    Attributes:
        ended: Why the task got no more batches; empty if it is not finished.
    """

    task: Task
    measured: Measured
    operator: OperatorResult
    ended: str = ""

    @property
    def first_seconds(self) -> float | None:
        """The time in seconds of the operator's first successful measurement, or None."""
        seconds = self.measured.seconds[self.measured.ok]
        return float(seconds[0]) if len(seconds) else None

    @property
    def best_seconds(self) -> float | None:
        """The winner's time in seconds, from the final comparison, or else from the search."""
        return self.operator.tuned_seconds or self.operator.search_seconds


@attrs.frozen(kw_only=True, eq=False)
class RunRecord:
    """The contents of a run folder.

    Attributes:
        seconds: The wall-clock time of all processes of the run, in seconds.
        versions: The version of each distribution that took part; None if it is not installed.
        settled: The frontend's choice (such as a layout) by measurements, or None.
        rounds: The measured batches of all operators, in the order of their measurement.
        starts: The start time of each process of the run in seconds since 1970, from the log.
        network: The result of the network; empty if there is none.
        disturbance: How much other programs disturbed the timing, as far as known.
        time_use: Sentences about a run that took longer than its budget.
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
    time_use: Sequence[str]


def run_record(folder: Path) -> RunRecord:
    """Read the contents of a run folder for its page, also while the run writes to it."""
    events = run_events(folder / RunFile.EVENTS)
    pipeline = folder / RunFile.PIPELINE
    with RunView(folder) as run:
        time_use = None if run.result is None else run.result.time_use
        return RunRecord(
            folder=run.folder,
            finished=run.result is not None,
            seconds=run.seconds,
            target=run.target,
            runner=run.runner,
            versions=run.versions,
            settled=run.store.fact("model"),
            pipeline=pipeline.read_text(encoding="utf-8") if pipeline.is_file() else "",
            tasks=[
                TaskRecord(
                    task=operator.stored.task,
                    measured=measured_of(operator.store, operator.stored, events.starts),
                    operator=operator.result,
                    ended=events.ended.get(operator.stored.task.name, ""),
                )
                for operator in run.operators
            ],
            rounds=events.rounds,
            starts=events.starts,
            network=NetworkResult() if run.result is None else run.result.network,
            disturbance=run.disturbance,
            time_use=() if time_use is None else time_use.sentences,
        )


def network_seconds(record: RunRecord) -> list[float]:
    """How the time of the network's operators falls: a sum after each measured batch."""
    best = {task.task.name: float("inf") for task in record.tasks}
    weights = {task.task.name: task.task.weight for task in record.tasks}
    sums = []
    for turn in record.rounds:
        if turn.task in best and turn.best_seconds is not None:
            best[turn.task] = turn.best_seconds
        sums.append(sum(weights[name] * seconds for name, seconds in best.items()))
    return sums
