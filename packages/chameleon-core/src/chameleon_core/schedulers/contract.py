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
        in_flight: whether a batch of it is being measured, which no attribute above counts yet.
            The task can have no other batch before this one is learnt.
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

        It is asked again when a batch in flight has been learnt, whether it said None or named a
        task that is in flight itself. None ends the run where no batch is in flight.

        Args:
            states: one per task, in the order of ``SchedulerContext.tasks``.
        """
