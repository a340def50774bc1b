"""The contract of schedulers: which task gets the next batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:  # the options of schedulers are imported with every command
    import numpy as np

    from chameleon_core.task import Task


@attrs.frozen(kw_only=True)
class SchedulerContext:
    """What a scheduler is given when it is made, once per run.

    Attributes:
        tasks: the run's tasks.
        rng: the scheduler's own generator.
        batch_size: configurations measured per round.
    """

    tasks: Sequence[Task]
    rng: np.random.Generator
    batch_size: int


@attrs.frozen(kw_only=True)
class TaskState:
    """How far one task is. Nothing here depends on a clock, so that a run can be repeated.

    Attributes:
        task: the task.
        rounds: batches measured.
        measured: configurations measured, failures included.
        history: lowest cost in seconds after each batch, infinity while nothing succeeded.
        done: whether it takes no further batch.
        in_flight: whether a batch of it is being measured, which nothing above tells of yet. It
            can have no other one before that is learnt.
    """

    task: Task
    rounds: int
    measured: int
    history: Sequence[float]
    done: bool
    in_flight: bool = False

    @property
    def waiting(self) -> bool:
        """Whether it can be given a batch now."""
        return not (self.done or self.in_flight)


class Scheduler(ABC):
    """Decides which task gets the next batch."""

    @abstractmethod
    def next_task(self, states: Sequence[TaskState]) -> int | None:
        """Index of a task that waits for a batch, or None where none is worth one now.

        Where tasks are in flight, it is asked again once the first of them is learnt; so it is when
        it names a task that is in flight. None ends the run where no task is.

        Args:
            states: one per task, in the order of ``SchedulerContext.tasks``.
        """
