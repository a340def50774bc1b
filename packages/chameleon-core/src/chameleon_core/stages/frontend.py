"""Contracts of target resolvers, and of frontends, which split a model into tasks."""

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
    """A few measurements by the run's own runner, with which a frontend chooses between tasks.

    Attributes:
        target: the resolved target.
        measures_hardware: as in ``Runner``. If it is False, the times say nothing about hardware.
        seconds: wall-clock time in seconds that the choice should take at most; infinity for no
            limit.
    """

    target: str
    measures_hardware: bool
    seconds: float = float("inf")

    @abstractmethod
    def best_seconds(
        self, task: Task, guesses: int, *, seconds_to_beat: float = float("inf")
    ) -> float | None:
        """Measure the first guesses of a task's design space, and return the lowest time.

        Args:
            task: any task; it need not belong to the run.
            guesses: the largest number of measurements.
            seconds_to_beat: the time of the other choice. The slower the task is beside it, the
                less time Chameleon spends.

        Returns:
            Seconds, or None if the space has no such task or no guess, or if all guesses fail.

        Raises:
            RunInterrupted: the user or a signal stopped the run.
        """

    def guessed_cost(self, task: Task) -> float | None:  # noqa: ARG002 - optional hook
        """Estimate the cost of a task's first guess, without a measurement.

        Args:
            task: any task; it need not belong to the run.

        Returns:
            The estimated time over the time that the task's operations take at the CPU's full rate.
            None if the design space has no estimate.
        """
        return None


class TargetResolver(ABC):
    """Turns the text after ``target:`` into a canonical target."""

    @abstractmethod
    def resolve(self, text: str) -> str:
        """The canonical form of a target; ``native`` becomes this machine's CPU.

        Raises:
            TargetError: the target does not exist; the hint names those that do.
        """

    def describe(self, target: str) -> Mapping[str, Any]:  # noqa: ARG002 - optional hook
        """Facts about a target's device, for models that learn across devices.

        Args:
            target: a canonical target.

        Returns:
            JSON values: ``kind``, a sorted list of features, and numbers with units in their names.
            Empty if nothing is known. Equal devices have equal descriptions.
        """
        return {}


@attrs.frozen(kw_only=True)
class Winner:
    """The best configuration of a task, or the best guess if none was measured.

    Attributes:
        task: the task.
        config: knob indices, in the space that the pipeline names.
        seconds: the time in the final comparison, or else in the search. None for a guess, which is
            neither compiled nor checked nor timed yet.
        alternatives: other configurations that were nearly as fast when timed alone.
        guesses: replacements for a wrong result, the most promising first.
        recorded: whether only the record of another run says that it was compiled, checked and
            timed. Like a guess, it must be checked here.
        predicted: whether a guess comes from a trained cost model and not from the space.
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
        """Whether the configuration was compiled, checked and timed, here or elsewhere."""
        return self.seconds is not None

    @property
    def checked(self) -> bool:
        """Whether the configuration was compiled and checked in this run."""
        return self.measured and not self.recorded


@attrs.frozen(kw_only=True, eq=False)
class Delivery:
    """The arguments of ``Frontend.deliver``.

    Attributes:
        target: the resolved target.
        winners: the best configuration of every task that has one, or the best guess.
        space: the space provider of these configurations.
        folder: the folder for the result; it may hold an earlier result.
        threads: the number of threads that kernels were measured with.
        plan: how long the comparison with rivals should take at most, and a function that shows its
            progress. The limit does not include compiling the rivals.
        measures: whether the budget allows any measurement.
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
        """Accept the dtypes that the network may be computed in.

        Chameleon calls this before all other methods, and not at all if the pipeline names float32
        alone.

        Args:
            precision: the pipeline's ``precision`` section; its ``types`` are the dtypes beside
                float32.

        Raises:
            ConfigError: the model cannot be computed in these dtypes.
        """
        raise ConfigError(
            f"the model cannot be computed in {' or '.join(precision.types)}",
            hint="Leave 'precision' out of the pipeline.",
        )

    def check_source(self) -> None:  # noqa: B027 - optional hook
        """Check that the model's files and functions exist.

        ``chameleon validate`` calls this, so it should take no longer than imports. It imports the
        user's functions without a call, and finds files without reading them.

        Raises:
            ChameleonError: a file, a function or a library is missing.
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
        """Refuse a model that cannot be delivered, before anything is measured.

        Chameleon calls this first when a run begins, if the runner measures on a real device. The
        run folder keeps the answer. A continued run passes it as ``earlier``, and the check may
        then be skipped.

        Args:
            target: the resolved target.
            threads: the number of threads that kernels are measured with.
            earlier: the answer of this method when the run began, or None.

        Returns:
            JSON values with a sentence under ``summary``, or None if nothing was checked.

        Raises:
            ChameleonError: the model cannot be delivered; the message names the cause and the next
                step.
        """
        return None

    def decide(self, trials: Trials) -> dict[str, Any] | None:  # noqa: ARG002 - optional hook
        """Make a choice that the tasks depend on, such as a network's layout, by measurements.

        Chameleon calls this before ``tasks`` when a run begins. The run folder keeps the answer,
        and a continued run passes it to ``restore``.

        Returns:
            The choice as JSON values, or None if there is no choice.
        """
        return None

    def restore(self, decisions: Mapping[str, Any]) -> None:  # noqa: B027 - optional hook
        """Accept the choice that ``decide`` returned in an earlier process."""

    @abstractmethod
    def tasks(self, target: str) -> list[Task]:
        """The tasks for a resolved target, with unique names.

        The list may be empty if the frontend can deliver a model without tuned operators.

        Raises:
            ConfigError: an operator is impossible, for instance because its shapes do not fit.
        """

    def deliver(self, delivery: Delivery) -> NetworkResult | None:  # noqa: ARG002 - optional hook
        """Compile and verify the model whose tasks were tuned, such as a network.

        Chameleon calls this at the end of a run. The object may be another one than that whose
        ``tasks`` was called.

        Returns:
            The ``network`` part of the run's result, or None if there is nothing to deliver. Its
            ``delivered_seconds`` count from the call of this method. A mapping with the keys of
            ``run --json`` is accepted too.

        Raises:
            ChameleonError: the delivery is impossible.
        """
        return None
