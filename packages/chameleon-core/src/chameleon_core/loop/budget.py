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
    """Applies a budget to one task or to all together, as its scope says."""

    budget: Budget

    def measurements_left(self, task: Spent, everything: Sequence[Spent]) -> int:
        """Configurations the task may still measure."""
        return max(
            0, self.budget.measurements - sum(s.measured for s in self._in(task, everything))
        )

    def time_is_up(self, task: Spent, everything: Sequence[Spent]) -> bool:
        """Whether the wall-clock is spent."""
        limit = self.budget.wall_time
        return limit is not None and sum(s.seconds for s in self._in(task, everything)) >= limit

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

    def total_measurements(self, tasks: int) -> int:
        """Where the budget ends a run of so many tasks at the latest."""
        return self.budget.measurements * (tasks if self.budget.scope is Scope.TASK else 1)

    def seconds_left(self, everything: Sequence[Spent]) -> float | None:
        """Wall-clock in seconds that all tasks together may still take; None for no limit."""
        limit = self.budget.wall_time
        if limit is None:
            return None
        if self.budget.scope is Scope.NETWORK:
            return max(0.0, limit - sum(spent.seconds for spent in everything))
        return sum(max(0.0, limit - spent.seconds) for spent in everything)

    def _in(self, task: Spent, everything: Sequence[Spent]) -> Sequence[Spent]:
        return (task,) if self.budget.scope is Scope.TASK else everything
