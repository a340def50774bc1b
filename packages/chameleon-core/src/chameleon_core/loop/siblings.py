"""Tasks of one run whose spaces have the same knobs tell each other what was fastest.

In a network the same layer occurs with other epilogues (with a residual, without an activation):
the best configuration of one is nearly always near the best of the other, and a scheduler gives
each of them a few batches only.
"""

from __future__ import annotations

from collections.abc import Sequence

from chameleon_core.loop.task_run import TaskRun


class Siblings:
    """Passes a task's best configuration on to the tasks that have the same knobs.

    Args:
        runs: the tasks of a run.
    """

    def __init__(self, runs: Sequence[TaskRun]) -> None:
        self._runs = tuple(runs)

    def share(self, run: TaskRun) -> None:
        """Have the siblings of a task measure its best configuration with their next batch."""
        best = run.tuner.best
        if best is None:
            return
        for other in self._runs:
            if other is not run and other.ended is None and _alike(other, run):
                other.tuner.suggest(best.config)


def _alike(one: TaskRun, other: TaskRun) -> bool:
    """Whether a configuration means the same to both tasks."""
    return one.task.operator == other.task.operator and one.space.knobs == other.space.knobs
