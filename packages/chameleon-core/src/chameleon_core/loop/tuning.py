"""Rounds of a run: a task is chosen and has a batch measured, until all tasks have ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import attrs

from chameleon_core.events import TaskFinished
from chameleon_core.events.records import Event
from chameleon_core.loop.budget import Allowance, Spent
from chameleon_core.loop.interruption import Interruption
from chameleon_core.loop.measuring import Measuring
from chameleon_core.loop.siblings import Siblings
from chameleon_core.loop.stages import generator, guard_of
from chameleon_core.loop.task_run import Batch, TaskRun
from chameleon_core.pipeline.schema import ResolvedPipeline
from chameleon_core.schedulers import Scheduler, SchedulerContext


class Tuning:
    """Gives batches to the tasks of a run, as its scheduler and its budget say.

    Args:
        runs: the tasks.
        pipeline: names the scheduler and the budget.
        batch_size: configurations measured per round.
        interruption: the request to stop.
        publish: tells an event.
    """

    def __init__(
        self,
        runs: Sequence[TaskRun],
        pipeline: ResolvedPipeline,
        *,
        batch_size: int,
        interruption: Interruption,
        publish: Callable[[Event], None],
    ) -> None:
        self._runs = runs
        self._allowance = Allowance(budget=pipeline.budget)
        self._interruption = interruption
        self._publish = publish
        self._siblings = Siblings(runs)
        self._guard = guard_of(pipeline.scheduler)
        with self._guard.call("start"):
            self._scheduler: Scheduler = pipeline.scheduler.create(
                SchedulerContext(
                    tasks=[run.task for run in runs],
                    rng=generator(pipeline.seed, "schedulers"),
                    batch_size=batch_size,
                )
            )

    @property
    def total_measurements(self) -> int:
        """Where the budget ends the run at the latest."""
        return self._allowance.total_measurements(len(self._runs))

    @property
    def seconds_left(self) -> float | None:
        """Wall-clock in seconds that all tasks together may still take; None for no limit."""
        return self._allowance.seconds_left(self._everything())

    def rounds(self, measuring: Measuring) -> Iterator[TaskRun]:
        """Tune until every task has ended; yields a task after each batch it had measured.

        Raises:
            RunInterrupted: the run was asked to stop; what was measured is saved.
            PluginError: a plugin breaks its contract.
        """
        while True:
            for run in self._runs:
                if run.ended is None:
                    self._end_if_spent(run)
            self._end_if_fast_enough()
            if all(run.ended is not None for run in self._runs):
                return
            chosen = self._next()
            if chosen is None:
                self._end_all("the scheduler expects nothing more of it")
                return
            self._interruption.check()
            measured = self._round(chosen, measuring)
            self._siblings.share(chosen)
            if measured:
                yield chosen

    def _next(self) -> TaskRun | None:
        with self._guard.call("choose the next task"):
            index = self._scheduler.next_task([run.state for run in self._runs])
        if index is None:
            return None
        if index not in range(len(self._runs)) or self._runs[index].ended is not None:
            raise self._guard.broken(f"chose task {index!r}, which does not exist or is done")
        return self._runs[index]

    def _round(self, run: TaskRun, measuring: Measuring) -> bool:
        """One batch of a task; returns whether anything of it had to be measured."""
        limit = self._allowance.measurements_left(self._spent(run), self._everything())
        batch = run.propose(limit)
        if not batch.configs:
            run.adopt_leftovers()
            self._end(run, "the space is exhausted")
            return False
        if not batch.missing:
            run.replay(batch)
            return False
        run.adopt_leftovers(batch)
        batch = self._within_budget(run, batch)
        if not batch.missing:
            run.replay(batch)
            return False
        if self._allowance.time_is_up(self._spent(run), self._everything()):
            run.replay(batch)
            self._end(run, "the wall-clock budget is spent")
            return False
        run.measure(batch, measuring, self._limit(run))
        return True

    def _within_budget(self, run: TaskRun, batch: Batch) -> Batch:
        """The batch without what adopted measurements have used up of the budget."""
        left = self._allowance.measurements_left(self._spent(run), self._everything())
        stored = len(batch.configs) - len(batch.missing)
        return attrs.evolve(batch, missing=batch.missing[: max(0, left - stored)])

    def _end_if_spent(self, run: TaskRun) -> None:
        if not self._allowance.measurements_left(self._spent(run), self._everything()):
            self._end(run, "the measurement budget is spent")
        elif self._allowance.out_of_patience(run.tuner.measurements):
            self._end(run, "nothing better came for as long as the budget's patience")

    def _end_if_fast_enough(self) -> None:
        costs = [run.tuner.best_cost * run.task.weight for run in self._runs]
        if self._allowance.fast_enough(costs):
            self._end_all("the target latency is reached")

    def _end_all(self, reason: str) -> None:
        for run in self._runs:
            if run.ended is None:
                self._end(run, reason)

    def _end(self, run: TaskRun, reason: str) -> None:
        run.ended = reason
        self._publish(TaskFinished(task=run.summary(self._limit(run)), reason=reason))

    def _limit(self, run: TaskRun) -> int:
        left = self._allowance.measurements_left(self._spent(run), self._everything())
        return len(run.tuner.measurements) + left

    @staticmethod
    def _spent(run: TaskRun) -> Spent:
        return Spent(measured=len(run.tuner.measurements), seconds=run.spending.total)

    def _everything(self) -> list[Spent]:
        return [self._spent(run) for run in self._runs]
