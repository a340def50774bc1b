"""A task of a run: its records, its tuner, its batch in flight, and the seconds it took."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np
import structlog

from chameleon_core.events import (
    BatchMeasured,
    BatchProposed,
    BestImproved,
    Event,
    Measured,
    TaskFinished,
    TaskSummary,
)
from chameleon_core.loop.round.batch import Batch, Config, FallbackWatch, Origin, tuples
from chameleon_core.loop.round.tuner import TaskTuner
from chameleon_core.measurement import (
    Measurement,
    Spending,
    failures_by_kind,
    most_frequent_failure,
)
from chameleon_core.schedulers import TaskState
from chameleon_core.space import Configs, DesignSpace
from chameleon_core.stages import MeasureJob, StageRef
from chameleon_core.store import RecordStore, StoredTask

log = structlog.get_logger()


class TaskRecords:
    """The measurements of a task, those of earlier processes among them.

    Args:
        store: the run's records.
        stored: the task's row in them.

    Attributes:
        stored: the task's row.
        measured: every measurement by its configuration, in order of arrival.
        best: the lowest cost in seconds; infinity where nothing has one.
    """

    def __init__(self, store: RecordStore, stored: StoredTask) -> None:
        self.stored = stored
        self._store = store
        self.measured = {m.config: m for m in store.measurements(stored.id)}
        self._places = dict(zip(self.measured, store.places(stored.id), strict=True))
        self._origins = dict(zip(self.measured, store.origins(stored.id), strict=True))
        self._pending = dict(self.measured)
        self.best = min((m.cost for m in self.measured.values()), default=float("inf"))

    @property
    def failed(self) -> dict[str, int]:
        """Failures by kind."""
        return failures_by_kind(self.measured.values())

    @property
    def failure(self) -> str | None:
        """The first failure of the most frequent kind, in words."""
        return most_frequent_failure(self.measured.values())

    @property
    def origins(self) -> dict[str, int]:
        """How many came from where, by ``Origin``; versions that did not record it do not count."""
        return dict(Counter(origin for origin in self._origins.values() if origin is not None))

    @property
    def recorded(self) -> list[Measurement]:
        """Those that the run did not measure but took from a record database, in their order."""
        return [m for config, m in self.measured.items() if self.is_recorded(config)]

    def is_recorded(self, config: Config | None) -> bool:
        """Whether the measurement of a configuration is another run's."""
        return config is not None and self.origin(config) == Origin.RECORD

    def origin(self, config: Config) -> str | None:
        """The stage that proposed a configuration, or None if no record says it."""
        return self._origins.get(config)

    def add(
        self,
        measurement: Measurement,
        *,
        key: int,
        knobs: Mapping[str, Any],
        origin: str,
        score: float | None,
        spending: Spending,
    ) -> bool:
        """Commit a measurement, as ``RecordStore.add``.

        Returns:
            Whether it is faster than all before it.
        """
        config, row = measurement.config, self.stored.id
        self._places[config] = self._store.add(
            row, key, measurement, knobs=knobs, spending=spending, origin=origin, score=score
        )
        self.measured[config], self._origins[config] = measurement, origin
        improved = measurement.cost < self.best
        self.best = min(self.best, measurement.cost)
        return improved

    def set_spending(self, spending: Spending) -> None:
        """Commit the seconds that the task has taken so far."""
        self._store.set_spending(self.stored.id, spending)

    def last_place(self, configs: Iterable[Config]) -> int:
        """The number of the configurations' last arrival, counted over all tasks."""
        return max((self._places[row] for row in configs if row in self._places), default=0)

    def come_to(self, configs: Iterable[Config]) -> None:
        """Note that the search has proposed them, so that they are no leftovers."""
        for config in configs:
            self._pending.pop(config, None)

    def leftovers(self, expected: Collection[Config], *, ended: str | None) -> list[Measurement]:
        """Take the earlier measurements that the search did not propose, with a word in the log.

        Args:
            expected: what the search proposes at this moment, which is not left over.
            ended: why the task ended; None where it goes on, with other proposals than before.
        """
        left = [m for config, m in self._pending.items() if config not in expected]
        if not left:
            return left
        self.come_to([m.config for m in left])
        if ended is None:
            log.warning(
                "the search proposes other configurations than it did before; "
                "the earlier measurements are kept",
                task=self.stored.task.name,
                measurements=len(left),
            )
        else:
            log.warning(
                "more was measured before than this run goes through; all of it counts",
                task=self.stored.task.name,
                measurements=len(self.measured),
                ended=ended,
            )
        return left


def say_what_does_not_apply(stored: StoredTask, store: RecordStore) -> None:
    """Log that a task has records of another design space, which do not apply to this space.

    Args:
        stored: the task's row for its present space.
        store: the run's records.
    """
    count = sum(
        len(store.measurements(other.id))
        for other in store.tasks()
        if (other.task.key, other.space) == (stored.task.key, stored.space)
        and other.fingerprint != stored.fingerprint
    )
    if count:
        log.warning(
            "the design space of this operator is another than that of earlier measurements in "
            "this folder, as with another version of its plugin; they are kept and do not "
            "count, and the operator is tuned anew",
            task=stored.task.name,
            measurements=count,
        )


class TaskRun:
    """Advances one task batch by batch; what the store has is never measured again.

    A resumed run starts again from the seed. Proposals are answered from the store until the
    first one it does not know: the search is where it was, with every stage's state rebuilt.

    Args:
        space: the task's design space.
        space_ref: the space provider, as data.
        tuner: a new tuner.
        records: what is on disk of it.
        publish: tells an event.
        watch: says where random search does a stage's work; one for all tasks of a run.

    Attributes:
        records: what is on disk of it.
        spending: where its wall-clock went.
        recorded: measurements that were taken from record databases.
        recorded_seconds: wall-clock in seconds that these had cost elsewhere.
        base: of an alternative the task that it would take the place of; None of others.
        ended: why it gets no further batch, or None.
    """

    def __init__(
        self,
        *,
        space: DesignSpace,
        space_ref: StageRef,
        tuner: TaskTuner,
        records: TaskRecords,
        publish: Callable[[Event], None],
        watch: FallbackWatch | None = None,
    ) -> None:
        self.task = records.stored.task
        self.space = space
        self.space_ref = space_ref
        self.tuner = tuner
        self.records = records
        self.spending = records.stored.spending
        self.recorded, self.recorded_seconds = 0, 0.0
        self.base: TaskRun | None = None
        self._publish = publish
        self._watch = FallbackWatch() if watch is None else watch
        self._batch: Batch | None = None
        self.ended: str | None = None
        self._history: list[float] = []

    # -- what others look at ------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        """Configurations of the batch that was begun and is not learnt yet, 0 where none was."""
        return 0 if self._batch is None else self._batch.size

    @property
    def seconds_to_beat(self) -> float:
        """The cost in seconds below which a configuration is of use; infinity where any is."""
        return math.inf if self.base is None else self.base.tuner.best_cost

    @property
    def replayed(self) -> bool:
        """Whether all that the store has of it is learnt."""
        return len(self.records.measured) <= len(self.tuner.measurements)

    @property
    def state(self) -> TaskState:
        """The task's progress as the scheduler sees it."""
        return TaskState(
            task=self.task,
            rounds=self.tuner.rounds,
            measured=len(self.tuner.measurements),
            history=tuple(self._history),
            done=self.ended is not None,
            in_flight=self.in_flight > 0,
            seconds_to_beat=self.seconds_to_beat,
        )

    def summary(self, limit: int | None) -> TaskSummary:
        """The task's progress as listeners see it: everything on disk, replayed or not.

        Args:
            limit: the number of measurements at which the budget ends the task, or None.
        """
        records = self.records
        return TaskSummary(
            name=self.task.name,
            flop=self.task.flop,
            measured=len(records.measured),
            failed=records.failed,
            best_seconds=records.best if math.isfinite(records.best) else None,
            target_measurements=limit,
        )

    def recall(self, *, batch_size: int, seconds: float) -> None:
        """Take what came from record databases as measured, before anything is proposed.

        It counts as the batches that it would have been: schedulers and budgets go by them.

        Args:
            batch_size: configurations per batch.
            seconds: wall-clock in seconds that measuring them had taken.
        """
        known = self.records.recorded
        self.records.come_to([m.config for m in known])
        self.recorded, self.recorded_seconds = len(known), seconds
        for start in range(0, len(known), batch_size):
            self.tuner.recall(known[start : start + batch_size])
            self._history.append(self.tuner.best_cost)

    # -- one round ----------------------------------------------------------------------------

    def propose(self, limit: int | None) -> Batch:
        """Ask the tuner for at most ``limit`` configurations; for a whole batch where None."""
        batch = self._batch_of(self.tuner.ask(limit))
        self._watch.see(self.task.name, batch)
        return batch

    def guess(self) -> Batch:
        """Ask the tuner for one configuration that needs no search (``TaskTuner.guess``)."""
        return self._batch_of(self.tuner.guess())

    def _batch_of(self, configs: Configs) -> Batch:
        return Batch(
            tuples(configs),
            stored=self.records.measured,
            origins=self.tuner.origins,
            search=self.tuner.search,
            scores=self.tuner.scores,
        )

    def begin(self, batch: Batch, search_seconds: float) -> MeasureJob | None:
        """Accept a batch, and announce it if a part of it is not measured.

        Args:
            batch: a batch of ``propose`` or ``guess``.
            search_seconds: wall-clock time in seconds that the proposal took.

        Returns:
            The job to measure, or None if the store knows all results.
        """
        self._batch = batch
        if not batch.missing:
            return None
        self._publish(
            BatchProposed(
                task=self.task.name,
                round=self.tuner.rounds,
                count=len(batch.configs),
                stored=batch.stored,
                steps=batch.search.steps,
                converged=batch.search.converged,
                score=batch.search.score,
                origins=dict(Counter(str(origin) for origin in batch.origins.values())),
            )
        )
        self.spending = self.spending.plus(search=search_seconds)
        return MeasureJob(
            task=self.task,
            space=self.space_ref,
            configs=list(batch.missing),
            # What cannot take its task's place is not worth many repeats.
            best_seconds=min(self.tuner.best_cost, self.seconds_to_beat),
        )

    def save(self, measurement: Measurement, batch: Batch, seconds: float) -> None:
        """Store a measurement at once, and tell of it.

        Args:
            measurement: of the batch in flight.
            batch: that batch.
            seconds: wall-clock of waiting for it since the one before.
        """
        self.spending = self.spending.plus(
            measure=seconds, build=measurement.build_seconds, run=measurement.run_seconds
        )
        config, knobs = measurement.config, self.space.decode(measurement.config)
        origin = str(batch.origins[config])
        improved = self.records.add(
            measurement,
            key=int(self.space.keys(np.array([config], np.int32))[0]),
            knobs=knobs,
            origin=origin,
            score=batch.scores.get(config),
            spending=self.spending,
        )
        self._publish(
            Measured(
                task=self.task.name,
                config=config,
                seconds=measurement.cost if measurement.ok else None,
                failure=None if measurement.failure is None else measurement.failure.value,
                spent=self.spending,
                origin=origin,
            )
        )
        if improved:
            self._publish(
                BestImproved(
                    task=self.task.name,
                    seconds=measurement.cost,
                    gflops=self.task.flop / measurement.cost / 1e9,
                    measured=len(self.records.measured),
                    knobs=knobs,
                )
            )

    def learn(self, batch: Batch) -> None:
        """Learn what is known of a batch; the rest of it stays unmeasured."""
        self.records.come_to(batch.configs)
        self.tuner.tell(batch.measurements)
        self._batch = None
        self._history.append(self.tuner.best_cost)

    def announce(self, batch: Batch, *, limit: int | None, learn_seconds: float) -> None:
        """Tell that a batch was measured and learnt.

        Args:
            batch: the batch.
            limit: where the budget ends the task at the latest, or None.
            learn_seconds: wall-clock of learning it.
        """
        self.spending = self.spending.plus(model=learn_seconds)
        self.records.set_spending(self.spending)
        self._publish(
            BatchMeasured(
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
        self._publish(TaskFinished(task=self.summary(limit), reason=reason))

    def adopt_leftovers(self, batch: Batch | None = None) -> None:
        """Learn stored measurements that the replay did not propose.

        They exist only if the proposals changed, or if a smaller budget ended the task earlier. A
        new version of a library or another batch size changes proposals. The measurements are
        results all the same.

        Args:
            batch: the first batch with something to measure; its stored part is no leftover.
        """
        expected = set() if batch is None else set(batch.configs)
        leftovers = self.records.leftovers(expected, ended=self.ended)
        if leftovers:
            self.tuner.adopt(leftovers)
