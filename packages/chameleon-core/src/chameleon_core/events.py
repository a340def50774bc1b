"""The events of a run, as plain data that becomes JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from chameleon_core.measurement import Spending


@attrs.frozen(kw_only=True)
class TaskSummary:
    """How far a task is.

    Attributes:
        name: the task's name.
        flop: floating-point operations of one evaluation.
        measured: configurations measured, failures included, in this and earlier processes.
        failed: failures by kind.
        best_seconds: lowest cost so far in seconds, or None if nothing succeeded.
        target_measurements: where the budget ends it at the latest; None for no such limit.
    """

    name: str
    flop: float
    measured: int = 0
    failed: Mapping[str, int] = attrs.field(factory=dict)
    best_seconds: float | None = None
    target_measurements: int | None = 0

    @property
    def gflops(self) -> float | None:
        """Speed of the best configuration in GFLOP/s."""
        return self.flop / self.best_seconds / 1e9 if self.best_seconds else None


@attrs.frozen(kw_only=True)
class CheckStarted:
    """Chameleon tries the delivery once, before anything is measured.

    Attributes:
        folder: the run folder.
    """

    folder: str


@attrs.frozen(kw_only=True)
class CheckFinished:
    """The delivery is possible.

    Attributes:
        seconds: wall-clock that it took to find out.
        found: what the frontend found.
    """

    seconds: float
    found: Mapping[str, Any]


@attrs.frozen(kw_only=True)
class RunStarted:
    """A process begins, or continues, a run.

    Attributes:
        folder: the run folder.
        seed: the run's seed.
        tasks: the tasks with what the store already holds of them.
        batch_size: configurations measured per round.
        total_measurements: where the budget ends the run at the latest; None for no such limit.
        seconds_left: wall-clock in seconds that the budget leaves, or None for no limit.
        settled: what the frontend chose by measurement before it named the tasks, or None.
        versions: of the distributions that took part until now, None of those not installed.
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
class BatchProposed:
    """A batch is about to be measured.

    Attributes:
        task: the task's name.
        round: number of the task's batch, from 0.
        count: configurations in the batch.
        stored: how many of them the store already answers.
        steps: search steps the explorer took to find them.
        converged: the step after which the best surrogate score rose no more (figures 2 and 7).
        score: that surrogate score, or None if no trained cost model guided the walk.
        origins: where its configurations came from, how many by ``loop.round.batch.Origin``.
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
class Measured:
    """One configuration was measured and is on disk.

    Attributes:
        task: the task's name.
        config: knob indices.
        seconds: its cost in seconds, or None for a failure.
        failure: the kind of failure, or None.
        spent: the seconds its task has taken by then, or None if nobody counts.
        origin: what put it into its batch, an ``Origin``, or None if nobody knows.
    """

    task: str
    config: Sequence[int]
    seconds: float | None
    failure: str | None
    spent: Spending | None = None
    origin: str | None = None


@attrs.frozen(kw_only=True)
class BatchMeasured:
    """A batch is complete.

    Attributes:
        task: the task after the batch.
        round: number of the task's batch, from 0.
        count: configurations in the batch.
        seconds: wall-clock of measuring the batch in seconds.
        spent: the seconds its task has taken, learning from the batch included, or None.
    """

    task: TaskSummary
    round: int
    count: int
    seconds: float
    spent: Spending | None = None


@attrs.frozen(kw_only=True)
class BestImproved:
    """A configuration is faster than every one before.

    Attributes:
        task: the task's name.
        seconds: its cost in seconds.
        gflops: its speed in GFLOP/s.
        measured: how many configurations it took, this one included.
        knobs: the configuration decoded.
    """

    task: str
    seconds: float
    gflops: float
    measured: int
    knobs: Mapping[str, Any]


@attrs.frozen(kw_only=True)
class TaskFinished:
    """A task gets no further batch.

    Attributes:
        task: the task at its end.
        reason: why, as a short sentence.
    """

    task: TaskSummary
    reason: str


@attrs.frozen(kw_only=True)
class ComparisonStarted:
    """A task's winners are about to be measured again, interleaved with the baselines.

    Or a delivered network is about to be timed beside whatever else runs it.

    Attributes:
        task: the task's name, or ``the network``.
        finalists: how many of its configurations take part.
        rivals: how many variants of baselines do.
        place: the task's place among those of the run, from 1.
        of: how many tasks the run has.
    """

    task: str
    finalists: int
    rivals: int
    place: int = 1
    of: int = 1


@attrs.frozen(kw_only=True)
class ComparisonProgressed:
    """A step of a comparison is further than before.

    Attributes:
        task: the task's name, or ``the network``.
        step: ``built`` and ``checked`` count contenders, ``timed`` counts the rounds in which each
            has its turn.
        done: how many are.
        of: how many there are; of rounds the most, since a comparison may end early.
    """

    task: str
    step: str
    done: int
    of: int


@attrs.frozen(kw_only=True)
class RunFinished:
    """The run is at its end, winners compared.

    Attributes:
        folder: the run folder.
        seconds: wall-clock of the run in seconds, all processes together.
        result: what ``chameleon run --json`` prints.
    """

    folder: str
    seconds: float
    result: Mapping[str, Any]


Event = (
    CheckStarted
    | CheckFinished
    | RunStarted
    | BatchProposed
    | Measured
    | BatchMeasured
    | BestImproved
    | TaskFinished
    | ComparisonStarted
    | ComparisonProgressed
    | RunFinished
)
