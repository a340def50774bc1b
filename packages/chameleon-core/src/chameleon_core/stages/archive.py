"""What a run knows beyond the task at hand: the other tasks' measurements, and shared learners."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import attrs

from chameleon_core.space import DesignSpace
from chameleon_core.stages.observations import Observations
from chameleon_core.task import Task

Shared = TypeVar("Shared")


@attrs.frozen(kw_only=True, eq=False)
class TaskHistory:
    """Everything measured of one task.

    Attributes:
        task: the task.
        space: the design space of the configurations.
        observations: the measurements, in the order they were proposed.
    """

    task: Task
    space: DesignSpace
    observations: Observations


class Archive:
    """Lets the stages of one task learn from the other tasks of a run.

    One archive belongs to one run. It is filled in the order of the rounds, which a resumed run
    repeats, so that what a stage finds in it depends on the seed alone.
    """

    def __init__(self) -> None:
        self._histories: dict[str, TaskHistory] = {}
        self._shared: dict[str, Any] = {}

    def record(self, history: TaskHistory) -> None:
        """Replace what is known of a task. Called after every batch."""
        self._histories[history.task.key] = history

    def others(self, task: Task) -> list[TaskHistory]:
        """What was measured of all tasks but this one, in the order they were first measured.

        Tasks are told apart by ``Task.key``: the same operator under another name is the same
        task, so that a model that learns from here never sees the task it is asked about.
        """
        return [history for key, history in self._histories.items() if key != task.key]

    def shared(self, name: str, make: Callable[[], Shared]) -> Shared:
        """An object that all tasks of the run share, made when first asked for.

        Args:
            name: who it belongs to and what it is, such as ``"ppo/policy"``.
            make: makes it.
        """
        if name not in self._shared:
            self._shared[name] = make()
        found: Shared = self._shared[name]
        return found
