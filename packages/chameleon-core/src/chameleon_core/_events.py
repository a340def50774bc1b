"""The events of a run, as plain data that becomes JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from chameleon_core._measurement import Spending


@attrs.frozen(kw_only=True)
class TaskSummary:
    """The progress of one task.

    Attributes:
        name: the task's name.
        flop: floating-point operations of one execution of the task's operator.
        measured: number of measured configurations, failures included, in this process and in
            earlier processes.
        failed: number of failures by kind.
        best_seconds: the fastest configuration's time so far in seconds, or None if no
            configuration succeeded.
        target_measurements: the number of measurements at which the budget ends the task, or None
            if the budget has no such limit.
    """

    name: str
    flop: float
    measured: int = 0
    failed: Mapping[str, int] = attrs.field(factory=dict)
    best_seconds: float | None = None
    target_measurements: int | None = 0

    @property
    def gflops(self) -> float | None:
        """Speed of the best configuration in GFLOP/s, or None if no configuration succeeded."""
        return self.flop / self.best_seconds / 1e9 if self.best_seconds else None


@attrs.frozen(kw_only=True)
class Event:
    """Any event of a run, which is published to listeners."""


@attrs.frozen(kw_only=True)
class CheckStarted(Event):
    """The check before tuning begins: Chameleon tries once whether it can deliver the network.

    Attributes:
        folder: the run folder.
    """

    folder: str


@attrs.frozen(kw_only=True)
class CheckFinished(Event):
    """The check before tuning has ended, and Chameleon can deliver the network.

    Attributes:
        seconds: wall-clock time of the check in seconds.
        found: the mapping that ``Frontend.check`` returned, with a sentence under ``summary``.
    """

    seconds: float
    found: Mapping[str, Any]


@attrs.frozen(kw_only=True)
class RunStarted(Event):
    """A process begins or continues a run.

    Attributes:
        folder: the run folder.
        seed: the run's seed.
        tasks: the tasks, with the measurements that the store already holds.
        batch_size: the number of configurations per round.
        total_measurements: the number of measurements at which the budget ends the run, or None if
            the budget has no such limit.
        seconds_left: wall-clock time in seconds that the budget leaves, or None if it has no such
            limit.
        settled: the choice that ``Frontend.decide`` made before the tasks were named, such as the
            layout of a network. None if there was nothing to choose.
        versions: versions of the distributions that took part in the run so far, by name. A version
            is None if the distribution is not installed.
    """

    folder: str
    seed: int
    tasks: Sequence[TaskSummary]
    batch_size: int
    total_measurements: int | None
    seconds_left: float | None = None
    settled: Mapping[str, Any] | None = None
    versions: Mapping[str, str | None] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class BatchProposed(Event):
    """A batch is ready for measurement.

    Attributes:
        task: the task's name.
        round: the number of the task's batch, from 0.
        count: the number of configurations in the batch.
        stored: the number of these configurations whose measurements the store already holds.
        steps: the number of search steps that the explorer took for the batch.
        converged: the search step after which the best predicted score rose no more (Chameleon,
            figures 2 and 7).
        score: the best predicted score, or None if no trained cost model guided the search.
        origins: the number of configurations by the stage that proposed them
            (``Measurement.Origin``).
    """

    task: str
    round: int
    count: int
    stored: int
    steps: int
    converged: int = 0
    score: float | None = None
    origins: Mapping[str, int] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class Measured(Event):
    """One configuration was measured, and its result is on disk.

    Attributes:
        task: the task's name.
        config: the index of each knob's value.
        seconds: the configuration's time in seconds, or None for a failure.
        failure: the kind of failure, or None if the configuration succeeded.
        spent: the seconds that each part of the task's search has taken so far, or None if the run
            does not count them.
        origin: the stage that proposed the configuration, a ``Measurement.Origin``, or None if no
            record names the stage.
    """

    task: str
    config: Sequence[int]
    seconds: float | None
    failure: str | None
    spent: Spending | None = None
    origin: str | None = None


@attrs.frozen(kw_only=True)
class BatchMeasured(Event):
    """All configurations of a batch are measured.

    Attributes:
        task: the task's progress after the batch.
        round: the number of the task's batch, from 0.
        count: the number of configurations in the batch.
        seconds: wall-clock time of the batch's measurements in seconds.
        spent: the seconds that each part of the task's search has taken so far, with learning from
            this batch. None if the run does not count them.
    """

    task: TaskSummary
    round: int
    count: int
    seconds: float
    spent: Spending | None = None


@attrs.frozen(kw_only=True)
class BestImproved(Event):
    """A configuration is faster than all earlier ones of its task.

    Attributes:
        task: the task's name.
        seconds: the configuration's time in seconds.
        gflops: the configuration's speed in GFLOP/s.
        measured: the task's number of measured configurations so far, with this configuration.
        knobs: the value of each knob by its name.
    """

    task: str
    seconds: float
    gflops: float
    measured: int
    knobs: Mapping[str, Any]


@attrs.frozen(kw_only=True)
class TaskFinished(Event):
    """The search of a task has ended: the task gets no more batches.

    Attributes:
        task: the task's progress at its end.
        reason: the reason why the search ended, as a short sentence.
    """

    task: TaskSummary
    reason: str


@attrs.frozen(kw_only=True)
class ComparisonStarted(Event):
    """A final comparison begins: of a task with its baselines, or of a network with its rivals.

    Attributes:
        task: the task's name, or ``the network``.
        finalists: the number of tuned configurations (or networks) in the comparison.
        rivals: the number of programs that they are compared with: variants of baselines, or other
            frameworks.
        place: the number of the task among the run's tasks, from 1.
        of: the number of tasks in the run.
    """

    task: str
    finalists: int
    rivals: int
    place: int = 1
    of: int = 1


@attrs.frozen(kw_only=True)
class ComparisonProgressed(Event):
    """The comparison of a task's or network's contenders at the end of a run made progress.

    Attributes:
        task: the task's name, or ``the network``.
        step: the name of the step. ``built`` and ``checked`` count contenders; ``timed`` counts
            rounds, in each of which every contender runs once.
        done: the number of contenders or rounds that are done.
        of: the number of contenders, or the largest number of rounds. A comparison may end before
            that number of rounds.
    """

    task: str
    step: str
    done: int
    of: int


@attrs.frozen(kw_only=True)
class RunFinished(Event):
    """The run ended, after its final comparisons.

    Attributes:
        folder: the run folder.
        seconds: wall-clock time of the run in seconds, summed over all its processes.
        result: the content of ``chameleon run --json``.
    """

    folder: str
    seconds: float
    result: Mapping[str, Any]
