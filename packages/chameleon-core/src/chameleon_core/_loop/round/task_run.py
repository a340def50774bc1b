"""The search of one task in a run: its records, tuner, batch in flight, and seconds used."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable

import attrs
import numpy as np
import structlog

from chameleon_core import _events as events
from chameleon_core._loop.round.batch import Batch, Config, FallbackWatch
from chameleon_core._loop.round.tuner import TaskTuner
from chameleon_core._measurement import (
    Measurement,
    Spending,
    failures_by_kind,
    most_frequent_failure,
)
from chameleon_core._schedulers import Scheduler
from chameleon_core._space.design import DesignSpace
from chameleon_core._stages.jobs import MeasureJob, StageRef
from chameleon_core._store.records import RecordStore
from chameleon_core._task import Task

log = structlog.get_logger()


class TaskRecords:
    """The stored measurements of a task, with those of earlier processes and of other runs.

    Args:
        store: the run's record store.
        stored: the task's row in the store.

    Attributes:
        stored: the task's row in the store.
        measured: every measurement by its configuration, in order of arrival.
        best: the lowest time in seconds; infinity if no configuration succeeded.
    """

    def __init__(self, store: RecordStore, stored: RecordStore.TaskRow) -> None:
        self.stored = stored
        self._store = store
        self.measured = {m.config: m for m in store.measurements(stored.id)}
        self._places = dict(zip(self.measured, store.places(stored.id), strict=True))
        self._origins = dict(zip(self.measured, store.origins(stored.id), strict=True))
        self._pending = dict(self.measured)
        self.best = min((m.cost for m in self.measured.values()), default=float("inf"))

    @classmethod
    def of(cls, store: RecordStore, task: Task, provider: str, space: DesignSpace) -> TaskRecords:
        """The records of a task, which is added to the store.

        Logs a message if the store has records of another design space.

        Args:
            store: the run's record store.
            task: the task.
            provider: the name of the provider that made the design space.
            space: the task's design space.
        """
        stored = store.add_task(task, provider, space.fingerprint)
        _say_what_does_not_apply(stored, store)
        return cls(store, stored)

    @property
    def failed(self) -> dict[str, int]:
        """The number of failures by kind."""
        return failures_by_kind(self.measured.values())

    @property
    def failure(self) -> str | None:
        """The first message of the task's most frequent kind of failure; None if nothing failed."""
        return most_frequent_failure(self.measured.values())

    @property
    def origins(self) -> dict[str, int]:
        """The number of configurations by the stage that proposed them (``Measurement.Origin``).

        Configurations whose origin was not recorded do not count.
        """
        return dict(Counter(origin for origin in self._origins.values() if origin is not None))

    @property
    def recorded(self) -> list[Measurement]:
        """The measurements that the run took from record databases, in order of arrival."""
        return [m for config, m in self.measured.items() if self.is_recorded(config)]

    def is_recorded(self, config: Config | None) -> bool:
        """Whether the measurement of a configuration comes from another run."""
        return config is not None and self.origin(config) == Measurement.Origin.RECORD

    def origin(self, config: Config) -> str | None:
        """The stage that proposed a configuration, or None if no record names it."""
        return self._origins.get(config)

    def add(
        self, measurement: Measurement, batch: Batch, space: DesignSpace, spending: Spending
    ) -> bool:
        """Write a measurement to the run's store at once (``RecordStore.add``).

        Args:
            measurement: the measurement.
            batch: the batch of the configuration, with the stage that proposed it and its score.
            space: the task's design space.
            spending: the seconds that the task's search has taken so far, by part.

        Returns:
            Whether the configuration is faster than all earlier ones of the task.
        """
        config, origin = measurement.config, str(batch.proposal.origins[measurement.config])
        self._places[config] = self._store.add(
            self.stored.id,
            int(space.keys(np.array([config], np.int32))[0]),
            measurement,
            knobs=space.decode(config),
            spending=spending,
            origin=origin,
            score=batch.proposal.scores.get(config),
        )
        self.measured[config], self._origins[config] = measurement, origin
        improved = measurement.cost < self.best
        self.best = min(self.best, measurement.cost)
        return improved

    def set_spending(self, spending: Spending) -> None:
        """Commit the seconds that the task has taken so far."""
        self._store.set_spending(self.stored.id, spending)

    def last_place(self, configs: Iterable[Config]) -> int:
        """The position in the store of the last measured configuration among ``configs``.

        Positions count the measurements of all tasks of the run, in order of arrival. The result is
        0 if none of the configurations has been measured. A resumed run completes batches in the
        order of these positions.
        """
        return max((self._places[row] for row in configs if row in self._places), default=0)

    def mark_replayed(self, configs: Iterable[Config]) -> None:
        """Record that a resumed search has proposed some stored configurations again.

        Stored measurements of configurations that a resumed search never proposes are
        ``leftovers``.
        """
        for config in configs:
            self._pending.pop(config, None)

    def leftovers(self, expected: Collection[Config], *, ended: str | None) -> list[Measurement]:
        """Return the stored measurements that a resumed search did not propose again, and log them.

        These measurements are valid, so the search learns from them too.

        Args:
            expected: the configurations that the search proposes at this moment. They are not
                leftovers.
            ended: the reason why the task ended, for the log. None if the search goes on, with
                other proposals than before.
        """
        left = [m for config, m in self._pending.items() if config not in expected]
        if not left:
            return left
        self.mark_replayed([m.config for m in left])
        if ended is None:
            log.warning(
                "left_over_measurements_kept",
                reason="the search proposes other configurations than it did before",
                task=self.stored.task.name,
                measurements=len(left),
            )
        else:
            log.warning(
                "earlier_measurements_exceed_run",
                reason="the earlier run measured more; all of its measurements count",
                task=self.stored.task.name,
                measurements=len(self.measured),
                ended=ended,
            )
        return left


def _say_what_does_not_apply(stored: RecordStore.TaskRow, store: RecordStore) -> None:
    """Log how many stored measurements of a task belong to another version of its design space."""
    count = sum(
        len(store.measurements(other.id))
        for other in store.tasks()
        if (other.task.key, other.space) == (stored.task.key, stored.space)
        and other.fingerprint != stored.fingerprint
    )
    if count:
        log.warning(
            "operator_tuned_anew",
            reason="the folder has measurements of another design space of this operator, perhaps "
            "because its plugin had another version; they are kept and do not count",
            task=stored.task.name,
            measurements=count,
        )


@attrs.define(kw_only=True, eq=False)
class TaskRun:
    """Advances the search of one task batch by batch; stored configurations are not measured again.

    A resumed run repeats the search from the seed. The measurements come from the store until the
    first configuration that the store does not hold. Every stage then has the same state as at this
    point of the interrupted run.

    Args:
        space: the task's design space.
        space_ref: the plugin that makes the design space, with its options, for worker processes.
        tuner: a new tuner of the task.
        records: the measurements of the task in the store.
        publish: a function that sends an event to all listeners.
        watch: the object that warns if a stage proposes too few usable configurations, so that most
            measured ones are random. All tasks of a run share one object.

    Attributes:
        records: the measurements of the task in the store.
        spending: the wall-clock time of the search, by part.
        recorded: the number of measurements that were taken from record databases.
        recorded_seconds: the wall-clock time in seconds that the ``recorded`` measurements took in
            other runs.
        base: the task whose operator this task computes in another dtype; None if this task is no
            alternative.
        ended: the reason why the task gets no further batch, or None if the search goes on.
    """

    space: DesignSpace
    space_ref: StageRef
    tuner: TaskTuner
    records: TaskRecords
    _publish: Callable[[events.Event], None]
    _watch: FallbackWatch = attrs.field(factory=FallbackWatch)
    spending: Spending = attrs.field(init=False)
    recorded: int = attrs.field(default=0, init=False)
    recorded_seconds: float = attrs.field(default=0.0, init=False)
    base: TaskRun | None = attrs.field(default=None, init=False)
    ended: str | None = attrs.field(default=None, init=False)
    _batch: Batch | None = attrs.field(default=None, init=False)
    _history: list[float] = attrs.field(factory=list, init=False)

    @spending.default
    def _spent_before(self) -> Spending:
        return self.records.stored.spending

    # -- what others look at ------------------------------------------------------------------

    @property
    def task(self) -> Task:
        """The task, with its name in this run."""
        return self.records.stored.task

    @property
    def in_flight(self) -> int:
        """The number of configurations of this task that are being measured at the moment."""
        return 0 if self._batch is None else self._batch.size

    @property
    def measured(self) -> int:
        """Number of measured configurations, including records of other runs.

        Configurations in flight count as measured, so that the budget is not spent twice.
        """
        return len(self.tuner.measurements) + self.in_flight

    @property
    def all_seconds(self) -> float:
        """The task's wall-clock time in seconds, plus that of its copied records in other runs."""
        return self.spending.total + self.recorded_seconds

    @property
    def seconds_to_beat(self) -> float:
        """The time in seconds that a configuration must beat to be useful.

        An alternative, which computes the operator of another task in another dtype, must beat the
        best time of that task. For all other tasks, the result is infinity.
        """
        return math.inf if self.base is None else self.base.tuner.best_cost

    @property
    def replayed(self) -> bool:
        """Whether the tuner of a resumed run has learnt all measurements that the store holds."""
        return len(self.records.measured) <= len(self.tuner.measurements)

    @property
    def state(self) -> Scheduler.TaskState:
        """The task's progress, for the scheduler."""
        return Scheduler.TaskState(
            task=self.task,
            rounds=self.tuner.rounds,
            measured=len(self.tuner.measurements),
            history=tuple(self._history),
            done=self.ended is not None,
            in_flight=self.in_flight > 0,
            seconds_to_beat=self.seconds_to_beat,
            guess=self.space.guess,
        )

    def summary(self, limit: int | None) -> events.TaskSummary:
        """The task's progress for listeners, from all measurements in the store.

        Args:
            limit: the number of measurements at which the budget ends the task, or None.
        """
        records = self.records
        return events.TaskSummary(
            name=self.task.name,
            flop=self.task.flop,
            measured=len(records.measured),
            failed=records.failed,
            best_seconds=records.best if math.isfinite(records.best) else None,
            target_measurements=limit,
        )

    def recall(self, *, batch_size: int, seconds: float) -> None:
        """Let the tuner learn the measurements of other runs, before it proposes its first batch.

        The records are divided into batches, because schedulers and budgets count batches.

        Args:
            batch_size: the number of configurations per batch.
            seconds: the wall-clock time in seconds that measuring these records took in other runs.
        """
        known = self.records.recorded
        self.records.mark_replayed([m.config for m in known])
        self.recorded, self.recorded_seconds = len(known), seconds
        for start in range(0, len(known), batch_size):
            self.tuner.recall(known[start : start + batch_size])
            self._history.append(self.tuner.best_cost)

    # -- one round ----------------------------------------------------------------------------

    def propose(self, limit: int | None) -> Batch:
        """Ask the tuner for the next batch of configurations.

        Args:
            limit: the largest number of configurations that the budget allows, or None for a whole
                batch.
        """
        batch = Batch(self.tuner.ask(limit), self.records.measured)
        self._watch.see(self.task.name, batch)
        return batch

    def guess(self) -> Batch:
        """Ask the tuner for one configuration that needs no search (``TaskTuner.guess``)."""
        return Batch(self.tuner.guess(), self.records.measured)

    def begin(self, batch: Batch, search_seconds: float) -> MeasureJob | None:
        """Make a batch the current one, and publish an event about it.

        If the store already has all measurements of the batch, no event is published.

        Args:
            batch: a batch that ``propose`` or ``guess`` returned.
            search_seconds: wall-clock time in seconds that the proposal took.

        Returns:
            The job with the missing configurations, or None if the store has all measurements.
        """
        self._batch = batch
        if not batch.missing:
            return None
        search = batch.proposal.search
        self._publish(
            events.BatchProposed(
                task=self.task.name,
                round=self.tuner.rounds,
                count=len(batch.configs),
                stored=batch.stored,
                steps=search.steps,
                converged=search.converged,
                score=search.score,
                origins=dict(Counter(map(str, batch.proposal.origins.values()))),
            )
        )
        self.spending = self.spending.plus(search=search_seconds)
        return MeasureJob(
            task=self.task,
            space=self.space_ref,
            configs=list(batch.missing),
            # A configuration slower than the time to beat is not worth many repeats.
            best_seconds=min(self.tuner.best_cost, self.seconds_to_beat),
        )

    def save(self, measurement: Measurement, batch: Batch, seconds: float) -> None:
        """Store a measurement at once, and publish it as an event.

        Args:
            measurement: the measurement of a configuration in the current batch.
            batch: the current batch.
            seconds: the wall-clock time in seconds since the measurement before.
        """
        self.spending = self.spending.plus(
            measure=seconds, build=measurement.build_seconds, run=measurement.run_seconds
        )
        config = measurement.config
        improved = self.records.add(measurement, batch, self.space, self.spending)
        self._publish(
            events.Measured(
                task=self.task.name,
                config=config,
                seconds=measurement.cost if measurement.ok else None,
                failure=None if measurement.failure is None else measurement.failure.value,
                spent=self.spending,
                origin=self.records.origin(config),
            )
        )
        if improved:
            self._publish(
                events.BestImproved(
                    task=self.task.name,
                    seconds=measurement.cost,
                    gflops=self.task.flop / measurement.cost / 1e9,
                    measured=len(self.records.measured),
                    knobs=self.space.decode(config),
                )
            )

    def learn(self, batch: Batch) -> None:
        """Let the tuner learn the measurements of a batch.

        If a configuration of the batch has no measurement, the tuner may propose it again.
        """
        self.records.mark_replayed(batch.configs)
        self.tuner.tell(batch.measurements)
        self._batch = None
        self._history.append(self.tuner.best_cost)

    def announce(self, batch: Batch, *, limit: int | None, learn_seconds: float) -> None:
        """Publish that a batch was measured and learnt.

        Args:
            batch: the batch.
            limit: the number of measurements at which the budget ends the task, or None for no
                limit.
            learn_seconds: the wall-clock time in seconds that learning the batch took.
        """
        self.spending = self.spending.plus(model=learn_seconds)
        self.records.set_spending(self.spending)
        self._publish(
            events.BatchMeasured(
                task=self.summary(limit),
                round=self.tuner.rounds - 1,
                count=len(batch.configs),
                seconds=batch.seconds,
                spent=self.spending,
            )
        )

    def finish(self, reason: str, limit: int | None) -> None:
        """End the task: it gets no further batch.

        Args:
            reason: the reason, as a short sentence.
            limit: the number of measurements at which the budget ends the task, or None.
        """
        self.ended = reason
        self._publish(events.TaskFinished(task=self.summary(limit), reason=reason))

    def adopt_leftovers(self, batch: Batch | None = None) -> None:
        """Learn from stored measurements whose configurations a resumed search did not propose.

        A resumed run repeats its search from the seed, and takes measurements from the store. Some
        of them are left over if the proposals changed, or if a smaller budget ends the task
        earlier than before. Proposals change with a new version of a library, or with another batch
        size. The measurements are valid results all the same.

        Args:
            batch: the first batch with a missing measurement, or None. Its stored measurements are
                not leftovers.
        """
        expected = set() if batch is None else set(batch.configs)
        leftovers = self.records.leftovers(expected, ended=self.ended)
        if leftovers:
            self.tuner.adopt(leftovers)
