"""What a task may still spend, and why it ends."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from chameleon_core.measurement import Measurement
from chameleon_core.pipeline.schema import Budget, Scope


@attrs.frozen(kw_only=True)
class Spent:
    """What one task has spent.

    Attributes:
        measured: configurations measured.
        seconds: wall-clock in seconds, earlier processes' included.
    """

    measured: int
    seconds: float


@attrs.frozen(kw_only=True)
class Allowance:
    """Applies a budget to one task or to all together, as its scope says.

    Attributes:
        budget: the budget.
        seconds_before: wall-clock in seconds that went by before the first task was tuned, on
            choosing a layout, say; it is taken from what all tasks share.
    """

    budget: Budget
    seconds_before: float = 0.0

    @property
    def shared(self) -> bool:
        """Whether all tasks spend the same budget."""
        return self.budget.scope is Scope.NETWORK

    def measurements_left(self, task: Spent, everything: Sequence[Spent]) -> int | None:
        """Configurations the task may still measure; None for any number."""
        if self.budget.measurements is None:
            return None
        spent = sum(one.measured for one in self._in(task, everything))
        return max(0, self.budget.measurements - spent)

    def time_is_up(self, task: Spent, everything: Sequence[Spent]) -> bool:
        """Whether the wall-clock is spent."""
        limit = self.budget.wall_time
        if limit is None:
            return False
        spent = sum(one.seconds for one in self._in(task, everything))
        return spent + (self.seconds_before if self.shared else 0.0) >= limit

    def out_of_patience(self, measurements: Sequence[Measurement]) -> bool:
        """Whether nothing better came for as many measurements as the budget's patience."""
        patience = self.budget.patience
        if patience is None or not measurements:
            return False
        costs = [measurement.cost for measurement in measurements]
        return len(costs) - 1 - costs.index(min(costs)) >= patience

    def fast_enough(self, seconds: Sequence[float]) -> bool:
        """Whether the target latency is reached.

        Args:
            seconds: of each task, the best cost times the weight; infinity where there is none.
        """
        return self.budget.latency is not None and sum(seconds) <= self.budget.latency

    def total_measurements(self, tasks: int) -> int | None:
        """Where the budget ends a run of so many tasks at the latest; None where it does not."""
        if self.budget.measurements is None:
            return None
        return self.budget.measurements * (1 if self.shared else tasks)

    def seconds_left(self, everything: Sequence[Spent]) -> float | None:
        """Wall-clock in seconds that all tasks together may still take; None for no limit."""
        limit = self.budget.wall_time
        if limit is None:
            return None
        if self.shared:
            spent_together = self.seconds_before + sum(spent.seconds for spent in everything)
            return max(0.0, limit - spent_together)
        return sum(max(0.0, limit - spent.seconds) for spent in everything)

    def _in(self, task: Spent, everything: Sequence[Spent]) -> Sequence[Spent]:
        return everything if self.shared else (task,)
