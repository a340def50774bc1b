"""What a frontend may measure before it names its tasks."""

from __future__ import annotations

from abc import ABC, abstractmethod

from chameleon_core.task import Task


class Trials(ABC):
    """A few measurements by the run's own runner, to choose between tasks.

    Attributes:
        target: the resolved target.
        live: as in ``Runner``; where it is False there is nothing to be learnt about hardware.
        seconds: wall-clock in seconds that the choice should not exceed; infinity for no limit.
    """

    target: str
    measures_hardware: bool
    seconds: float = float("inf")

    @abstractmethod
    def best_seconds(
        self, task: Task, guesses: int, *, seconds_to_beat: float = float("inf")
    ) -> float | None:
        """The least time of the first guesses of a task's design space.

        Args:
            task: any task; it need not become one of the run's.
            guesses: how many to measure at most.
            seconds_to_beat: what it has to beat; the slower it is, the less time is spent on it.

        Returns:
            Seconds, or None where the space knows no such task, has no guess, or all of them fail.

        Raises:
            RunInterrupted: the run was asked to stop.
        """
