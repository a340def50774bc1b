"""Contracts of what comes before and after tuning: targets, and models that tasks are parts of."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from chameleon_core.errors import ConfigError
from chameleon_core.network_result import NetworkResult, OperatorCoverage
from chameleon_core.stages.code import SpaceProvider
from chameleon_core.stages.jobs import ComparisonPlan
from chameleon_core.task import Task


class Trials(ABC):
    """A few measurements by the run's own runner, to choose between tasks.

    Attributes:
        target: the resolved target.
        live: as in ``Runner``; if it is False there is nothing to be learnt about hardware.
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
            Seconds, or None if the space knows no such task, has no guess, or all of them fail.

        Raises:
            RunInterrupted: the run was asked to stop.
        """


class TargetResolver(ABC):
    """Turns what a user writes after ``target:`` into a canonical target."""

    @abstractmethod
    def resolve(self, text: str) -> str:
        """The canonical form, with ``native`` replaced by what this machine has.

        Raises:
            TargetError: no such target; the hint says which there are.
        """

    def describe(self, target: str) -> Mapping[str, Any]:  # noqa: ARG002 - optional hook
        """Facts about the device that a target stands for, for models that learn across devices.

        Args:
            target: a canonical target.

        Returns:
            JSON values: ``kind``, names of features as a sorted list, and numbers with their units
            in their names. Nothing if nothing is known. Equal devices have equal descriptions.
        """
        return {}


@attrs.frozen(kw_only=True)
class Winner:
    """The best configuration of a task, or the best guess if none of it was measured.

    Attributes:
        task: the task.
        config: knob indices, of the space that the pipeline names.
        seconds: its time in the final comparison, or in the search if there was none. None for a
            guess, which nobody has built, checked or timed yet.
        alternatives: other configurations that were nearly as fast when measured alone.
        guesses: replacements if it turns out wrong, the most promising first: of a guess the
            space's further ones, of a record others as well.
        recorded: whether it was built, checked and timed in another run alone, whose record says
            so: it is as little to be trusted as a guess until it was checked here.
        predicted: whether a guess is a cost model's, trained beforehand, and not the space's.
    """

    task: Task
    config: tuple[int, ...]
    seconds: float | None = None
    alternatives: tuple[tuple[int, ...], ...] = ()
    guesses: tuple[tuple[int, ...], ...] = ()
    recorded: bool = False
    predicted: bool = False

    @property
    def measured(self) -> bool:
        """Whether it was built, checked and timed, here or elsewhere."""
        return self.seconds is not None

    @property
    def checked(self) -> bool:
        """Whether it was built and checked in this run."""
        return self.measured and not self.recorded


@attrs.frozen(kw_only=True, eq=False)
class Delivery:
    """A frontend's work with a run's winners.

    Attributes:
        target: the resolved target.
        winners: the best configuration of every task that has one; if a task was never
            measured, the best guess.
        space: what they are configurations of.
        folder: where the result goes; it may hold an earlier one.
        threads: that kernels were measured with.
        plan: how long comparing the result with whatever else computes it should take at most, and
            whom to tell how far that is. Building what it is compared with takes as long as it
            takes.
        measures: whether the budget lets anything be measured.
    """

    target: str
    winners: Sequence[Winner]
    space: SpaceProvider
    folder: Path
    threads: int
    plan: ComparisonPlan = attrs.field(factory=ComparisonPlan)
    measures: bool = True


class Frontend(ABC):
    """Turns the pipeline's ``model`` section into tasks."""

    def compute_in(self, precision: Any) -> None:
        """Take over what numbers the network may be computed in.

        Called before anything else, and not at all if the pipeline names float32 alone.

        Args:
            precision: the pipeline's section of that name; its ``types`` are those beside float32.

        Raises:
            ConfigError: it cannot be computed in them.
        """
        raise ConfigError(
            f"the model cannot be computed in {' or '.join(precision.types)}",
            hint="Leave 'precision' out of the pipeline.",
        )

    def check_source(self) -> None:  # noqa: B027 - optional hook
        """See that what the model is read from is there, at no more than the cost of imports.

        Called by `chameleon validate`. Functions of the user's are imported and not called, files
        are looked for and not read.

        Raises:
            ChameleonError: a file, a function or a library is not there.
        """

    def coverage(self) -> Sequence[OperatorCoverage] | None:
        """The model's operators, found without compiling; None if the frontend knows of none.

        Raises:
            ConfigError: the model cannot be read at all.
        """
        return None

    def check(
        self,
        target: str,  # noqa: ARG002 - optional hook
        threads: int,  # noqa: ARG002
        earlier: Mapping[str, Any] | None,  # noqa: ARG002
    ) -> dict[str, Any] | None:
        """Refuse what cannot be delivered, before anything is measured.

        Called first of all when a run begins, if the runner measures on a real device. The run
        folder keeps the answer. A run that is continued passes it as ``earlier``, and need not
        check again.

        Args:
            target: the resolved target.
            threads: that kernels are measured with.
            earlier: what this method returned when the run was begun, or None.

        Returns:
            JSON values with a sentence under ``summary``, or None if nothing was checked.

        Raises:
            ChameleonError: it cannot be delivered; says which part of it, and what to do.
        """
        return None

    def decide(self, trials: Trials) -> dict[str, Any] | None:  # noqa: ARG002 - optional hook
        """Choose by measurement what the tasks depend on, such as the layout of a network.

        Called before ``tasks`` when a run begins. The run folder keeps the answer, for ``restore``:
        a run that is continued must not choose differently, or its records were of other tasks.

        Returns:
            JSON values, or None if there is nothing to choose.
        """
        return None

    def restore(self, decisions: Mapping[str, Any]) -> None:  # noqa: B027 - optional hook
        """Take over what ``decide`` of an earlier object of the same options returned."""

    @abstractmethod
    def tasks(self, target: str) -> list[Task]:
        """The tasks, with unique names, for a resolved target.

        None at all is an answer for a frontend that delivers: there is nothing to tune in it.

        Raises:
            ConfigError: an operator cannot be what it says (shapes that do not fit, say).
        """

    def deliver(self, delivery: Delivery) -> NetworkResult | None:  # noqa: ARG002 - optional hook
        """Compile and verify what the tasks are parts of, such as a whole network.

        Called at the end of a run, on an object whose ``tasks`` may not have been called.

        Returns:
            ``network`` of the run's result, or None if there is nothing to deliver. Its
            ``delivered_seconds`` count from the call of this method. A mapping of the keys that
            ``run --json`` prints of a network is taken as well.

        Raises:
            ChameleonError: it cannot be done at all.
        """
        return None
