"""The scheduler of tasks that are equally important."""

from __future__ import annotations

from collections.abc import Sequence

from chameleon_core.plugins.records import NoOptions
from chameleon_core.schedulers.contract import Scheduler, SchedulerContext, TaskState


class RoundRobin(Scheduler):
    """One batch each in turn: the task with the fewest batches, the first of equals."""

    def __init__(self, _options: NoOptions, _context: SchedulerContext) -> None:
        pass

    def next_task(self, states: Sequence[TaskState]) -> int | None:
        waiting = [index for index, state in enumerate(states) if state.waiting]
        return min(waiting, key=lambda index: states[index].rounds, default=None)
