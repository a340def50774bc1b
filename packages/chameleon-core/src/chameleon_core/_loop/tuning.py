"""Rounds of a run: choose a task, measure its batch, until the searches of all tasks end."""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import structlog

from chameleon_core._loop.budget import BudgetTracker, by_work
from chameleon_core._loop.context import RunContext
from chameleon_core._loop.plugin_contract import contract_of
from chameleon_core._loop.round.batch import Batch
from chameleon_core._loop.round.in_flight import (
    BatchesInFlight,
    batches_in_flight,
    guesses_at_once,
    tasks_at_once,
)
from chameleon_core._loop.round.stages import generator
from chameleon_core._loop.round.task_run import TaskRun
from chameleon_core._loop.start.frontend import choice_seconds, say_if_slower
from chameleon_core._measurement import Measurement, failure_threshold, same_failure
from chameleon_core._pipeline.schema import StageSpec
from chameleon_core._schedulers import Scheduler

log = structlog.get_logger()

_SHARE_IS_UP = "the share of the time that other types may take is spent"

GUESSES = 3
"""Largest number of a task's first guesses that are measured before its first batch, if they
fail."""


class TuningLoop:
    """Decides, with the scheduler and the budget, which task of a run gets the next batch.

    Args:
        run: the state of the run.
        runs: the searches of all tasks. An alternative, which computes another task's operator in
            another dtype, has that task's search as its ``base``.

    Attributes:
        allowances: the budgets of the tasks.
    """

    def __init__(self, run: RunContext, runs: Sequence[TaskRun]) -> None:
        self._run = run
        self._runs = runs
        pipeline, budget, batch_size = run.pipeline, run.pipeline.budget, run.batch_size
        # Replayed times cost nothing, so tasks do not end early if all their measurements fail.
        self._measures_hardware = run.runner.measures_hardware
        self._same_failure = budget.same_failure if self._measures_hardware else None
        self.allowances = BudgetTracker(runs, budget, seconds_before=choice_seconds(run.store))
        self._all_guessed = False
        # Alternatives are tuned after all other tasks have ended. The other tasks do not depend on
        # alternatives, and the time that an alternative has to beat is known then.
        self._groups = [
            CheckedScheduler(
                pipeline.scheduler,
                [run for run in runs if bool(run.task.alternative_of) is bool(path)],
                rng=generator(pipeline.seed, "schedulers", *path),
                batch_size=batch_size,
            )
            for path in ((), ("alternatives",))
            if not path or any(run.task.alternative_of for run in runs)
        ]

    def tune(self) -> None:
        """Measure each task's first guess (the space's recommendation), then batches to the end.

        Raises:
            RunInterrupted: the user asked the run to stop; all measurements are saved.
            PluginError: a plugin breaks its contract.
        """
        runner, store, batch_size = self._run.runner, self._run.store, self._run.batch_size
        wanted, tasks = self._run.pipeline.budget.tasks_at_once, len(self._runs)
        guesses = guesses_at_once(wanted, batch_size=batch_size)
        at_once = tasks_at_once(wanted, lanes=runner.lanes, batch_size=batch_size, tasks=tasks)
        for group in self._groups:
            with batches_in_flight(runner, guesses, store) as batches:
                self._first_guesses(group, batches, at_once=guesses)
            with batches_in_flight(runner, at_once, store) as batches:
                self._rounds(group, batches, at_once=at_once)

    def _rounds(self, group: CheckedScheduler, batches: BatchesInFlight, *, at_once: int) -> None:
        """Tune until every task of a group has ended.

        The next task is chosen as soon as fewer than ``at_once`` tasks are in flight. This moment
        does not depend on a clock, so a resumed run chooses the same tasks as before.

        Args:
            group: the tasks and their scheduler.
            batches: measures batches.
            at_once: the largest number of tasks in flight at the same time.
        """
        while True:
            chosen = None
            if len(batches) < at_once:
                self._end_those_that_may(group)
                chosen = group.next()
            if chosen is not None:
                self._run.interruption.check()
                left = self.allowances.of(chosen).left(chosen)
                self._begin(chosen, partial(chosen.propose, left), batches)
            elif len(batches):
                self._finish(*batches.first(), batches)
            else:
                self._end_all(group, "the scheduler expects nothing more of it")
                return

    def _first_guesses(
        self, group: CheckedScheduler, batches: BatchesInFlight, *, at_once: int
    ) -> None:
        """Measure one configuration of every task, before any task of the group has a batch.

        Tasks that share a budget may spend it before each task had a batch. So each task first
        measures the first guess of its space, the tasks with most of the network's work first. If
        the guess fails, the next guess is measured, after all other tasks had one. Nothing is
        searched for or learnt, so the order in which the measurements arrive makes no difference.

        Args:
            group: the tasks and their scheduler.
            batches: measures the guesses. At the end nothing is in flight.
            at_once: the largest number of guesses in flight at the same time.
        """
        if not self.allowances.shared or len(self._runs) == 1:
            return
        heaviest = by_work(group.runs)
        for _ in range(GUESSES):
            waiting = deque(run for run in heaviest if run.tuner.best is None)
            self._guesses(waiting, batches, at_once)
        for run in heaviest:
            self._share_best(run)

    def _guesses(self, waiting: deque[TaskRun], batches: BatchesInFlight, at_once: int) -> None:
        while waiting or len(batches):
            if waiting and len(batches) < at_once and self.allowances.lasts_for(1 + len(batches)):
                run = waiting.popleft()
                self._end_those_that_fail_alike()
                if run.ended is None:
                    self._end_if_spent(run)
                if run.ended is None and len(run.tuner.guesses):
                    self._run.interruption.check()
                    self._begin(run, run.guess, batches)
            else:
                self._finish(*batches.first(), batches, share=False)

    def _begin(self, run: TaskRun, propose: Callable[[], Batch], batches: BatchesInFlight) -> None:
        """Propose a task's next batch and measure it, or end the task if there is no batch."""
        batch, seconds = batches.search(propose)
        if not batch.configs:
            run.adopt_leftovers()
            self._end(run, "the space is exhausted")
        elif batch.missing:
            run.adopt_leftovers(batch)
            allowance = self.allowances.of(run)
            left = allowance.left(run)  # adopted measurements have used up a part of the budget
            if left is not None:
                batch.shorten(left)
            lasting = allowance.lasting(run) if self._measures_hardware else None
            if lasting is not None:
                batch.shorten(batch.size - len(batch.missing) + lasting)
            if batch.missing and allowance.time_is_up(run):
                run.learn(batch)
                self._end(run, "the wall-clock budget is spent")
            elif batch.missing and self._share_is_up(run):
                run.learn(batch)
                self._end(run, _SHARE_IS_UP)
        if run.ended is None:
            batches.begin(run, batch, seconds)
        else:
            self._share_best(run)

    def _finish(
        self, run: TaskRun, batch: Batch, batches: BatchesInFlight, *, share: bool = True
    ) -> None:
        """Let a task learn a complete batch, and announce the batch."""
        seconds = batches.learn(batch)
        if batch.submitted:
            run.announce(batch, limit=self._limit(run), learn_seconds=seconds)
        if share:
            self._share_best(run)
        if batch.submitted:
            self._run.totals.keep()
            self._add_up_guesses()

    def _add_up_guesses(self) -> None:
        """Say once, when each task has a time, if they are slower together than the framework."""
        measured = [run for run in self._runs if not run.task.alternative_of]
        times = [run.tuner.best.cost for run in measured if run.tuner.best is not None]
        if not self._all_guessed and len(times) == len(measured):
            self._all_guessed = True
            weights = (run.task.weight for run in measured)
            say_if_slower(self._run.store, sum(map(operator.mul, weights, times)))

    def _share_best(self, run: TaskRun) -> None:
        """Suggest the best configuration of a task to all tasks with the same knobs.

        A network often has the same layer with other epilogues (with a residual, without an
        activation). The best configuration for one of these tasks is nearly always near the best
        for the others, and a scheduler gives each task few batches.
        """
        best = run.tuner.best
        if best is None:
            return
        for other in self._runs:
            if other is not run and other.ended is None and _alike(other, run):
                other.tuner.suggest(best.config)

    def _end_those_that_may(self, group: CheckedScheduler) -> None:
        """End waiting tasks without budget, or all if the target latency is reached."""
        self._end_those_that_fail_alike()
        for run in group.runs:
            if run.state.waiting:
                self._end_if_spent(run)
        if self.allowances.fast_enough:
            self._end_all(group, "the target latency is reached")

    def _end_those_that_fail_alike(self) -> None:
        """End each task whose measurements all failed alike, or all if everything failed alike."""
        everything = [m for run in self._runs for m in run.tuner.measurements]
        self._give_up(self._runs, everything)
        for run in self._runs:
            self._give_up([run], run.tuner.measurements)

    def _give_up(self, runs: Sequence[TaskRun], measurements: Sequence[Measurement]) -> None:
        """End the waiting ones among some tasks, if all their measurements failed alike."""
        waiting = [run for run in runs if run.state.waiting]
        if not (waiting and measurements):
            return
        enough = failure_threshold(
            self._same_failure, batch_size=self._run.batch_size, failure=measurements[0].failure
        )
        failure = None if enough is None else same_failure(measurements, enough)
        if failure is None:
            return
        log.warning(
            "tuning_stopped",
            reason="all measurements fail alike",
            hint="Check target, reference and runner, or set `budget: {same_failure: null}`.",
            tasks=[run.task.name for run in waiting],
            failure=failure,
            measurements=len(measurements),
        )
        which = "measurements of the run" if len(runs) > 1 else "measurements"
        for run in waiting:
            self._end(run, f"all {len(measurements)} {which} failed alike: {failure}")

    def _end_if_spent(self, run: TaskRun) -> None:
        allowance = self.allowances.of(run)
        if allowance.left(run) == 0:
            self._end(run, "the measurement budget is spent")
        elif allowance.out_of_patience(run.tuner.measurements):
            self._end(run, "nothing better came for as long as the budget's patience")
        elif run.replayed and self._share_is_up(run):
            self._end(run, _SHARE_IS_UP)

    def _share_is_up(self, run: TaskRun) -> bool:
        """Whether an alternative gets no further batch, because alternatives have used their time.

        Each alternative has one measurement, however long it takes, because without a measurement
        it is useless.
        """
        if not (self._measures_hardware and run.task.alternative_of and run.tuner.measurements):
            return False
        return self.allowances.share_is_up(self._run.batch_size)

    def _end_all(self, group: CheckedScheduler, reason: str) -> None:
        for run in group.runs:
            if run.state.waiting:
                self._end(run, reason)

    def _end(self, run: TaskRun, reason: str) -> None:
        run.finish(reason, self._limit(run))

    def _limit(self, run: TaskRun) -> int | None:
        left = self.allowances.of(run).left(run)
        return None if left is None else run.measured + left


def _alike(run: TaskRun, other: TaskRun) -> bool:
    """Whether two tasks have the same operator and knobs, and both or neither is an alternative."""
    if bool(run.task.alternative_of) != bool(other.task.alternative_of):
        return False
    return run.task.operator == other.task.operator and run.space.knobs == other.space.knobs


class CheckedScheduler:
    """The scheduler that chooses among a run's tasks, with checks of its choices.

    Args:
        spec: the scheduler of the pipeline.
        runs: the searches of the tasks.
        rng: the scheduler's own random generator.
        batch_size: the number of configurations per batch.

    Attributes:
        runs: the searches of the tasks.

    Raises:
        PluginError: the scheduler fails to start.
    """

    def __init__(
        self, spec: StageSpec, runs: Sequence[TaskRun], *, rng: np.random.Generator, batch_size: int
    ) -> None:
        self.runs = runs
        self._contract = contract_of(spec)
        tasks = [run.task for run in runs]
        with self._contract.call("start"):
            self._scheduler: Scheduler = spec.create(
                Scheduler.Context(tasks=tasks, rng=rng, batch_size=batch_size)
            )

    def next(self) -> TaskRun | None:
        """Ask the scheduler which task gets the next batch; None if no task gets one now.

        Raises:
            PluginError: the scheduler breaks its contract.
        """
        states = [run.state for run in self.runs]
        if not any(state.waiting for state in states):
            return None
        with self._contract.call("choose the next task"):
            index = self._scheduler.next_task(states)
        if index is None:
            return None
        if index not in range(len(self.runs)) or self.runs[index].ended is not None:
            raise self._contract.broken(f"chose task {index!r}, which does not exist or is done")
        return None if states[index].in_flight else self.runs[index]
