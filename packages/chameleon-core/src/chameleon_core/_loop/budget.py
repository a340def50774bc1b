"""The remaining budget of each task, and the conditions that end a search early."""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

from chameleon_core._loop.round.task_run import TaskRun
from chameleon_core._measurement import Measurement
from chameleon_core._pipeline.schema import Budget, Scope

ALTERNATIVES = 0.6
"""Budget of all alternatives (tasks in other dtypes), as a share of the other tasks' budget."""

BETTER = 0.01
"""Share by which a time must fall to count as an improvement of a search."""


@attrs.frozen(kw_only=True)
class Allowance:
    """Applies a budget to each task, or to all tasks together, depending on the budget's scope.

    Attributes:
        budget: the budget.
        runs: the searches of the tasks, the tasks with the most work first.
        seconds_before: wall-clock time in seconds before the first task was tuned, for example to
            choose a layout. It counts towards the budget that all tasks share.
    """

    budget: Budget
    runs: Sequence[TaskRun] = ()
    seconds_before: float = 0.0

    @classmethod
    def of_alternatives(cls, budget: Budget, runs: Sequence[TaskRun], each: float) -> Allowance:
        """The budget of all alternatives.

        An alternative is a task that computes the operator of another task in another dtype.

        All alternatives together get the share ``ALTERNATIVES`` of the other tasks' budget. If the
        budget holds for each task, each alternative gets this share of a task's budget, divided by
        the mean number of alternatives per task.

        Args:
            budget: the budget of the tasks in the network's own dtype.
            runs: the searches of the alternatives.
            each: the mean number of alternatives per task.
        """
        # The share is rounded down, but is at least 1, unless the budget is 0.
        share = ALTERNATIVES / (max(1.0, each) if budget.scope is Scope.TASK else 1.0)
        count, limit = budget.measurements, budget.wall_time
        most = None if count is None else min(count, max(1, math.floor(share * count)))
        seconds = None if limit is None else share * limit
        return cls(budget=attrs.evolve(budget, measurements=most, wall_time=seconds), runs=runs)

    @property
    def shared(self) -> bool:
        """Whether all tasks together use one budget."""
        return self.budget.scope is Scope.NETWORK

    def left(self, run: TaskRun) -> int | None:
        """Number of configurations that a task may still measure; None for no limit.

        Args:
            run: the search of the task, one of ``runs``.
        """
        most = self.most(run)
        if most is None:
            return None
        new = sum(other.measured - other.recorded for other in self._beside(run))
        return max(0, most - run.recorded - new)

    def time_is_up(self, run: TaskRun) -> bool:
        """Whether the wall-clock time that the budget allows a task is used up.

        A task may take measurements from records of earlier runs. If wall-clock time is the only
        limit, the seconds that those measurements took count too.

        Args:
            run: the search of the task, one of ``runs``.
        """
        limit, runs = self.budget.wall_time, self._beside(run)
        if limit is None:
            return False
        seconds = sum(other.spending.total for other in runs)
        if seconds + (self.seconds_before if self.shared else 0.0) >= limit:
            return True
        possible = sum(other.recorded_seconds for other in runs if other.recorded_seconds <= limit)
        enough = run.recorded_seconds >= limit / len(runs) or possible >= limit
        return self.budget.measurements is None and run.recorded > 0 and enough

    def lasting(self, run: TaskRun) -> int | None:
        """Number of measurements, at least 1, for which the wall-clock time of a task lasts.

        Measurements are expected to take as long as earlier ones. The number is None if the budget
        has no such limit, or if nothing was measured yet.

        Args:
            run: the search of the task, one of ``runs``.
        """
        limit, runs = self.budget.wall_time, self._beside(run)
        done = sum(other.measured - other.recorded for other in runs)
        seconds = sum(other.spending.total for other in runs)
        if limit is None or not done or not seconds:
            return None
        left = limit - seconds - (self.seconds_before if self.shared else 0.0)
        return max(1, math.floor(left * done / seconds))

    def out_of_patience(self, measurements: Sequence[Measurement]) -> bool:
        """Whether a task should end, because its last measurements improved nothing.

        The budget's ``patience`` is the number of these measurements.

        A measurement is an improvement if its time is lower than that of the last improvement by
        more than the share ``BETTER``. Smaller differences may be noise of the timing. Several
        small gains count as soon as their sum is large enough.

        Args:
            measurements: all measurements of the task, in order.
        """
        patience = self.budget.patience
        if patience is None or not measurements:
            return False
        last, least = 0, measurements[0].cost
        for number, measurement in enumerate(measurements):
            if measurement.cost < (1.0 - BETTER) * least:
                last, least = number, measurement.cost
        return len(measurements) - 1 - last >= patience

    def fast_enough(self, seconds: Sequence[float]) -> bool:
        """Whether the sum of the tasks' times has reached the target latency.

        Args:
            seconds: for each task, its best time in seconds times its weight; infinity for a task
                without a time.
        """
        return self.budget.latency is not None and sum(seconds) <= self.budget.latency

    @property
    def total_measurements(self) -> int | None:
        """The number of measurements at which the budget ends a run, or None for no limit.

        Records of other runs count too, so that they leave fewer measurements for this run.
        """
        if self.budget.measurements is None:
            return None
        left = [(self.most(run) or 0) - run.recorded for run in self.runs]
        together = max(left, default=self.budget.measurements) if self.shared else sum(left)
        return together + sum(run.recorded for run in self.runs)

    def most(self, run: TaskRun) -> int | None:
        """The number of measurements at which the budget ends one task, or None for no limit.

        The number includes the task's records, which are measurements that were copied from other
        runs. New measurements of other tasks are not subtracted; ``left`` does that.

        If all tasks share one budget, an equal part of the budget is a task's share. For example,
        three tasks share a budget of 300 and have 150, 20 and 0 records, so each share is 100. The
        first task gets no new measurement, because it has at least as many records as its share.
        The second task has fewer records than its share. It may get 130 new measurements: the
        budget minus the 170 records of all tasks. The third task has no records. To keep its share
        for it, the records of each other task then count at most as that other task's share. So it
        may get 180 new measurements: 300 minus 100 minus 20.

        If each task has a budget of its own, the number is this budget. A task with more records
        than its budget ends at the number of its records.

        Args:
            run: the search of the task, one of ``runs``.
        """
        total, runs, used = self.budget.measurements, self._beside(run), 0
        if total is None:
            return None
        for number, other in enumerate(runs):
            share = total // len(runs) + (number < total % len(runs))
            if other is run and run.recorded and run.recorded >= share:
                return run.recorded
            whole = run.recorded and other.recorded <= total
            used += other.recorded if whole else min(other.recorded, share)
        return max(0, total - used) + run.recorded

    @property
    def seconds_left(self) -> float | None:
        """Wall-clock time in seconds that the budget still allows all tasks together.

        The value is None if the budget has no such limit.
        """
        limit = self.budget.wall_time
        if limit is None:
            return None
        if self.shared:
            spent_together = self.seconds_before + sum(run.spending.total for run in self.runs)
            return max(0.0, limit - spent_together)
        return sum(max(0.0, limit - run.spending.total) for run in self.runs)

    def _beside(self, run: TaskRun) -> Sequence[TaskRun]:
        return self.runs if self.shared else (run,)


class BudgetTracker:
    """The budgets of a run's tasks.

    Alternatives, which are tasks for the operators of other tasks in another dtype, have a separate
    budget. So the tasks of the original network get as many measurements as in a run without
    alternatives, and become just as fast.

    Args:
        runs: the searches of all tasks.
        budget: the pipeline's budget.
        seconds_before: wall-clock time in seconds before the first task was tuned.
    """

    def __init__(self, runs: Sequence[TaskRun], budget: Budget, *, seconds_before: float) -> None:
        own = [run for run in by_work(runs) if not run.task.alternative_of]
        others = [run for run in by_work(runs) if run.task.alternative_of]
        self._own, self._others = own, others
        each = len(others) / max(1, len(own))
        first: list[Allowance] = []
        second: list[Allowance] = []
        for limits, predicted in _budgets(budget):
            wanted, alternatives = (
                [run for run in group if predicted is None or run.tuner.predicted == predicted]
                for group in (own, others)
            )
            if wanted or not first:
                first.append(Allowance(budget=limits, runs=wanted, seconds_before=seconds_before))
            if alternatives:
                second.append(Allowance.of_alternatives(limits, alternatives, each))
        self._groups = first + second

    @property
    def shared(self) -> bool:
        """Whether all tasks together use one budget."""
        return self._groups[0].shared

    @property
    def total_measurements(self) -> int | None:
        """The number of measurements at which the budget ends the run, or None for no limit."""
        counts = [allowance.total_measurements for allowance in self._groups]
        known = [count for count in counts if count is not None]
        return sum(known) if len(known) == len(counts) else None

    @property
    def seconds_left(self) -> float | None:
        """Wall-clock time in seconds that the budget still allows the run; None for no limit."""
        seconds = [allowance.seconds_left for allowance in self._groups]
        known = [limit for limit in seconds if limit is not None]
        return sum(known) if len(known) == len(seconds) else None

    @property
    def fast_enough(self) -> bool:
        """Whether the tasks in the network's own dtype have reached the target latency."""
        costs = [run.tuner.best_cost * run.task.weight for run in self._own]
        return self._groups[0].fast_enough(costs)

    def of(self, run: TaskRun) -> Allowance:
        """The budget of a task, given its search."""
        return next(allowance for allowance in self._groups if run in allowance.runs)

    def lasts_for(self, count: int) -> bool:
        """Whether the wall-clock time that the budget leaves is enough for further measurements.

        Measurements are expected to take as long as earlier ones. A single measurement is always
        allowed.

        Args:
            count: the number of these measurements.
        """
        runs = [*self._own, *self._others]
        left = self.seconds_left
        done = sum(len(run.tuner.measurements) - run.recorded for run in runs)
        if count == 1 or left is None or not done:
            return True
        return count * sum(run.spending.total for run in runs) <= left * done

    def share_is_up(self, batch_size: int) -> bool:
        """Whether another batch of an alternative would exceed the alternatives' share of time.

        Alternatives are tasks that compute the operators of other tasks in another dtype. Together
        they may use the share ``ALTERNATIVES`` of the wall-clock seconds that the other tasks used.
        A limit for their measurements is not enough, because the first measurement of a task takes
        longer, and alternatives have many first measurements.

        Args:
            batch_size: the number of configurations in the next batch. Each is expected to take as
                long as earlier ones.
        """
        measured = sum(run.measured for run in self._others)
        seconds = sum(run.all_seconds for run in self._others)
        expected = seconds * (1.0 + batch_size / measured) if measured else 0.0
        return expected > ALTERNATIVES * sum(run.all_seconds for run in self._own)


def _budgets(budget: Budget) -> list[tuple[Budget, bool | None]]:
    """Each budget and its tasks: predicted ones (True), others (False), or all (None)."""
    if budget.unpredicted is None:
        return [(budget, None)]
    other = attrs.evolve(budget, measurements=budget.unpredicted)
    return [(budget, True), (other, False)]


def by_work(runs: Sequence[TaskRun]) -> list[TaskRun]:
    """Sort tasks by their part of the network's work, largest first.

    A small budget reaches the first tasks only, so these should be the most important ones.
    """
    return sorted(runs, key=lambda run: -run.task.weight * run.task.flop)
