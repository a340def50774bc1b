"""One task in a run: its tuner, its records, the seconds it took."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import numpy as np

from chameleon_core.events import (
    BatchMeasured,
    BatchProposed,
    BestImproved,
    Measured,
    TaskFinished,
    TaskSummary,
)
from chameleon_core.events.records import Event
from chameleon_core.loop.batch import Batch
from chameleon_core.loop.continuing import say_what_is_left_over
from chameleon_core.loop.measuring import Config, plain
from chameleon_core.loop.origins import FallbackWatch
from chameleon_core.loop.tuner import TaskTuner
from chameleon_core.measurement import Measurement, failures_by_kind, most_frequent_failure
from chameleon_core.schedulers import TaskState
from chameleon_core.space import DesignSpace
from chameleon_core.stages import MeasureJob, StageRef
from chameleon_core.store import RecordStore, StoredTask
from chameleon_core.task import Task


class TaskRun:
    """Advances one task batch by batch; what the store has is never measured again.

    A resumed run starts again from the seed. Proposals are answered from the store until the
    first one it does not know: the search is where it was, with every stage's state rebuilt.

    Args:
        task: the task.
        space: its design space.
        space_ref: the space provider, as data.
        tuner: a new tuner.
        store: the run's records.
        stored: the task's row in it.
        publish: tells an event.
        watch: says where random search does a stage's work; one for all tasks of a run.
    """

    def __init__(
        self,
        *,
        task: Task,
        space: DesignSpace,
        space_ref: StageRef,
        tuner: TaskTuner,
        store: RecordStore,
        stored: StoredTask,
        publish: Callable[[Event], None],
        watch: FallbackWatch | None = None,
    ) -> None:
        self.task = task
        self.space = space
        self.space_ref = space_ref
        self.tuner = tuner
        self.row = stored.id
        self.spending = stored.spending
        self._ended: str | None = None
        self._in_flight = 0
        self._store = store
        self._publish = publish
        self._watch = FallbackWatch() if watch is None else watch
        stored_before = store.measurements(stored.id)
        self._known = {m.config: m for m in stored_before}
        self._places = {
            m.config: place for m, place in zip(stored_before, store.places(stored.id), strict=True)
        }
        self._origins: dict[Config, str] = {
            m.config: origin
            for m, origin in zip(stored_before, store.origins(stored.id), strict=True)
            if origin is not None
        }
        self._pending = dict(self._known)
        self._history: list[float] = []
        self._best = min((m.cost for m in self._known.values()), default=float("inf"))

    # -- what others look at ------------------------------------------------------------------

    @property
    def ended(self) -> str | None:
        """Why it gets no further batch, or None."""
        return self._ended

    @property
    def in_flight(self) -> int:
        """Configurations of the batch that was begun and is not learnt yet, 0 where none was."""
        return self._in_flight

    @property
    def state(self) -> TaskState:
        """What the scheduler sees."""
        return TaskState(
            task=self.task,
            rounds=self.tuner.rounds,
            measured=len(self.tuner.measurements),
            history=tuple(self._history),
            done=self.ended is not None,
            in_flight=self.in_flight > 0,
        )

    def summary(self, limit: int | None) -> TaskSummary:
        """What listeners see: everything on disk, replayed yet or not.

        Args:
            limit: where the budget ends the task at the latest, or None.
        """
        return TaskSummary(
            name=self.task.name,
            flop=self.task.flop,
            measured=len(self._known),
            failed=self.failed,
            best_seconds=self._best if math.isfinite(self._best) else None,
            target_measurements=limit,
        )

    @property
    def failed(self) -> dict[str, int]:
        """Failures on disk by kind."""
        return failures_by_kind(self._known.values())

    @property
    def origins(self) -> dict[str, int]:
        """Where what is on disk came from: how many by ``Origin``.

        Measurements of versions that did not record it are not counted.
        """
        return dict(Counter(str(self._origins[c]) for c in self._known if c in self._origins))

    @property
    def failure(self) -> str | None:
        """The first failure on disk of the most frequent kind, in words."""
        return most_frequent_failure(self._known.values())

    @property
    def measurements(self) -> list[Measurement]:
        """Everything on disk, in order of arrival."""
        return list(self._known.values())

    # -- one round ----------------------------------------------------------------------------

    def propose(self, limit: int | None) -> Batch:
        """Ask the tuner for at most ``limit`` configurations; for a whole batch where None."""
        batch = self._split(plain(self.tuner.ask(limit).tolist()))
        self._watch.see(self.task.name, batch.origins, self.tuner.short)
        return batch

    def guess(self) -> Batch:
        """Ask the tuner for one configuration that needs no search (``TaskTuner.guess``)."""
        return self._split(plain(self.tuner.guess().tolist()))

    def _split(self, configs: list[Config]) -> Batch:
        missing = tuple(config for config in configs if config not in self._known)
        return Batch(
            configs=tuple(configs),
            missing=missing,
            known=len(configs) - len(missing),
            origins=self.tuner.origins,
        )

    def begin(self, batch: Batch, search_seconds: float) -> MeasureJob | None:
        """Take a batch up, and announce it where something of it is missing.

        Args:
            batch: from ``propose``.
            search_seconds: wall-clock that proposing it took.

        Returns:
            What has to be measured; None where the store knows all of it.
        """
        self._in_flight = batch.in_flight
        if not batch.missing:
            return None
        self._publish(
            BatchProposed(
                task=self.task.name,
                round=self.tuner.rounds,
                count=len(batch.configs),
                stored=batch.known,
                steps=self.tuner.steps,
                converged=self.tuner.converged,
                score=self.tuner.score,
                origins=dict(Counter(str(origin) for origin in batch.origins.values())),
            )
        )
        self._origins.update((config, str(batch.origins[config])) for config in batch.missing)
        self.spending = self.spending.plus(search=search_seconds)
        return MeasureJob(
            task=self.task,
            space=self.space_ref,
            configs=list(batch.missing),
            best_seconds=self.tuner.best_cost,
        )

    def take(self, measurement: Measurement, seconds: float) -> None:
        """Store a measurement at once.

        Args:
            measurement: of the batch in flight.
            seconds: wall-clock of waiting for it since the one before.
        """
        self.spending = self.spending.plus(
            measure=seconds, build=measurement.build_seconds, run=measurement.run_seconds
        )
        self._save(measurement)

    def learn(self, batch: Batch) -> None:
        """Learn what the store knows of a batch; the rest of it stays unmeasured."""
        told = [self._known[config] for config in batch.configs if config in self._known]
        for measurement in told:
            self._pending.pop(measurement.config, None)
        self.tuner.tell(told)
        self._in_flight = 0
        self._history.append(self.tuner.best_cost)

    def end(self, batch: Batch, *, limit: int | None, seconds: float, learn_seconds: float) -> None:
        """Announce that a batch was measured and learnt.

        Args:
            batch: the batch.
            limit: where the budget ends the task at the latest, or None.
            seconds: wall-clock of measuring it.
            learn_seconds: wall-clock of learning it.
        """
        self.spending = self.spending.plus(model=learn_seconds)
        self._store.set_spending(self.row, self.spending)
        self._publish(
            BatchMeasured(
                task=self.summary(limit),
                round=self.tuner.rounds - 1,
                count=len(batch.configs),
                seconds=seconds,
                spent=self.spending,
            )
        )

    def finish(self, reason: str, limit: int | None) -> None:
        """End the task: it gets no further batch.

        Args:
            reason: why, as half a sentence.
            limit: where the budget ends it at the latest, or None.
        """
        self._ended = reason
        self._publish(TaskFinished(task=self.summary(limit), reason=reason))

    def last_place(self, batch: Batch) -> int:
        """Where the last measurement of a batch is among all of earlier processes."""
        known = (self._places[config] for config in batch.configs if config in self._places)
        return max(known, default=0)

    def adopt_leftovers(self, batch: Batch | None = None) -> None:
        """Learn stored measurements that the replay did not propose.

        There are none unless something the proposals depend on has changed since (a library's
        version, the batch size), or the task ended before it came to them, as with a smaller
        budget. They are results all the same.

        Args:
            batch: the first batch with something to measure; its stored part is no leftover.
        """
        expected = set() if batch is None else set(batch.configs)
        leftovers = [m for config, m in self._pending.items() if config not in expected]
        if not leftovers:
            return
        say_what_is_left_over(self.task, len(leftovers), len(self._known), self._ended)
        for measurement in leftovers:
            del self._pending[measurement.config]
        self.tuner.adopt(leftovers)

    def _save(self, measurement: Measurement) -> None:
        key = int(self.space.keys(np.array([measurement.config], np.int32))[0])
        knobs = self.space.decode(measurement.config)
        origin = self._origins.get(measurement.config)
        self._store.add(
            self.row, key, measurement, knobs=knobs, spending=self.spending, origin=origin
        )
        self._known[measurement.config] = measurement
        self._publish(
            Measured(
                task=self.task.name,
                config=measurement.config,
                seconds=measurement.cost if measurement.ok else None,
                failure=None if measurement.failure is None else measurement.failure.value,
                spent=self.spending,
                origin=origin,
            )
        )
        if measurement.cost < self._best:
            self._best = measurement.cost
            self._publish(
                BestImproved(
                    task=self.task.name,
                    seconds=measurement.cost,
                    gflops=self.task.flop / measurement.cost / 1e9,
                    measured=len(self._known),
                    knobs=knobs,
                )
            )
