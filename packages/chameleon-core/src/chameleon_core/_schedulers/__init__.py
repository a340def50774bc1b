"""Schedulers: which task of a run gets the next batch."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs

from chameleon_core._task import Task

if TYPE_CHECKING:  # the options of schedulers are imported with every command
    import numpy as np


class Scheduler(ABC):
    """Decides which task gets the next batch."""

    @attrs.frozen(kw_only=True)
    class Context:
        """The tasks, random generator and batch size that a scheduler is made with.

        Chameleon makes one scheduler for the tasks in the network's own dtype. A second scheduler
        chooses among alternatives: tasks that compute the operators of other tasks in another
        dtype.

        Attributes:
            tasks: the tasks that the scheduler chooses among.
            rng: the scheduler's own random generator.
            batch_size: the number of configurations per round.
        """

        tasks: Sequence[Task]
        rng: np.random.Generator
        batch_size: int

    @attrs.frozen(kw_only=True)
    class TaskState:
        """The progress of one task.

        The progress holds results and no elapsed time, so that the same measurements lead to the
        same choices.

        Attributes:
            task: the task.
            rounds: the number of measured batches.
            measured: the number of measured configurations, failures included.
            history: the lowest time so far in seconds, after each batch; infinity as long as no
                configuration succeeded.
            done: whether the search of the task has ended, so that the task gets no more batches.
            in_flight: whether a batch of the task is being measured. The other attributes do not
                include this batch yet, and the task gets no other batch before its measurements
                arrive.
            seconds_to_beat: for an alternative (``Task.alternative_of``), the lowest time in
                seconds of the task that it would replace. Infinity for other tasks, or if that task
                has no time yet.
            guess: the estimated time of the first guess, divided by the time that the task's
                operations take at the device's full rate. None if the design space has no
                estimate.
        """

        task: Task
        rounds: int
        measured: int
        history: Sequence[float]
        done: bool
        in_flight: bool = False
        seconds_to_beat: float = math.inf
        guess: float | None = None

        @property
        def waiting(self) -> bool:
            """Whether the task can take a batch now."""
            return not (self.done or self.in_flight)

    @abstractmethod
    def next_task(self, states: Sequence[TaskState]) -> int | None:
        """Choose the task that gets the next batch.

        Args:
            states: the progress of each task, in the order of ``Context.tasks``.

        Returns:
            The index of a waiting task, or None if no task is worth a batch now. If the answer is
            None or a task in flight, Chameleon asks again after the next measured batch. If no
            batch is in flight, None ends the search.

        Raises:
            Exception: any exception ends the run. Chameleon raises a ``PluginError`` that names the
                scheduler, unless the exception is a ``ChameleonError``. The index of a task that is
                done or does not exist is a ``PluginError`` too.
        """
