"""Contracts of target resolvers, and of frontends, which split a model into tasks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from chameleon_core._errors import ConfigError
from chameleon_core._network_result import NetworkResult
from chameleon_core._stages.code import SpaceProvider
from chameleon_core._stages.jobs import ComparisonPlan
from chameleon_core._task import Task


class TargetResolver(ABC):
    """Converts the text after ``target:`` in a pipeline into a canonical target."""

    @abstractmethod
    def resolve(self, text: str) -> str:
        """Convert a target to its canonical form; ``native`` becomes this machine's CPU.

        Raises:
            TargetError: the target does not exist. The hint names existing targets.
        """

    def foreign(self, target: str) -> str:  # noqa: ARG002 - optional hook
        """The kind of a target's CPU, such as ``aarch64``, if this machine's CPU is of another one.

        Otherwise it is empty, also if the target is for no CPU.

        Args:
            target: a canonical target.
        """
        return ""

    def describe(self, target: str) -> Mapping[str, Any]:  # noqa: ARG002 - optional hook
        """Properties of a target's device, for models that learn across devices.

        Args:
            target: a canonical target.

        Returns:
            JSON values: ``kind``, a sorted list of CPU or GPU features, and numbers with units in
            their names. Empty if nothing is known. Equal devices must have equal descriptions.
        """
        return {}


@attrs.frozen(kw_only=True, eq=False)
class Delivery:
    """All that a frontend needs to deliver the model of a run (``Frontend.deliver``).

    Attributes:
        target: the resolved target.
        winners: the best measured configuration of each task, or else the best guess of its design
            space.
        space: the provider of the tasks' design spaces.
        folder: the folder for the result; it may hold an earlier result.
        threads: the number of threads that kernels were measured with.
        plan: the time limit of the comparison with rivals, and a function that shows its progress.
            The limit does not include compiling the rivals.
        measures: whether the budget allows any measurement.
        recorded: a function that returns the fastest configurations which other runs measured for a
            task of another target, fastest first.
    """

    @attrs.frozen(kw_only=True)
    class Winner:
        """The configuration of a task that the delivery compiles: its best one, or else a guess.

        Attributes:
            task: the task.
            config: knob indices in the design space of the task.
            seconds: the time in the final comparison, or else in the search. None for a guess,
                which is neither compiled nor checked nor timed yet.
            alternatives: other configurations that were nearly as fast in the task's measurements.
            guesses: configurations to use if this one fails, most promising first.
            recorded: whether the configuration was compiled, checked and timed only in another run.
                Like a guess, it must then be checked in this run.
            predicted: whether a guess comes from a trained cost model, and not from the space.
            others: the fastest measured configuration for each other value of the first knob, which
                is the algorithm if there are several. Fastest first.
        """

        task: Task
        config: tuple[int, ...]
        seconds: float | None = None
        alternatives: tuple[tuple[int, ...], ...] = ()
        guesses: tuple[tuple[int, ...], ...] = ()
        recorded: bool = False
        predicted: bool = False
        others: tuple[Delivery.Winner, ...] = ()

        @property
        def measured(self) -> bool:
            """Whether the configuration was compiled, checked and timed, in any run."""
            return self.seconds is not None

        @property
        def checked(self) -> bool:
            """Whether the configuration was compiled and checked in this run."""
            return self.measured and not self.recorded

    target: str
    winners: Sequence[Delivery.Winner]
    space: SpaceProvider
    folder: Path
    threads: int
    plan: ComparisonPlan = attrs.field(factory=ComparisonPlan)
    measures: bool = True
    recorded: Callable[[Task], Sequence[tuple[int, ...]]] = lambda _: ()


class Frontend(ABC):
    """Splits a pipeline's ``model`` into tasks, and may deliver a network at the end."""

    class Trials(ABC):
        """Lets a frontend measure a few tasks before a run, to make a choice such as a layout.

        Attributes:
            target: the resolved target.
            measures_hardware: whether the runner times real hardware. If False, the times say
                nothing about hardware.
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
                task: a task, which need not belong to the run.
                guesses: the largest number of measurements.
                seconds_to_beat: the time in seconds that another choice takes. A guess that is much
                    slower is timed fewer times.

            Returns:
                The lowest time in seconds. None if the task has no design space or no first guess,
                or if all guesses fail.

            Raises:
                RunInterrupted: the user or a signal stopped the run.
            """

        def guessed_cost(self, task: Task) -> float | None:  # noqa: ARG002 - optional hook
            """Estimate the cost of a task's first guess, without a measurement.

            Args:
                task: a task, which need not belong to the run.

            Returns:
                The estimated time, divided by the time that the task's operations take at the CPU's
                full rate. None if the design space has no estimate.
            """
            return None

    def compute_in(self, precision: Any) -> None:
        """Let the network also compute in some dtypes other than float32.

        Chameleon calls this method before all others. It does not call the method if the pipeline
        allows only float32.

        Args:
            precision: the section ``precision`` of the pipeline. Its ``types`` are the allowed
                dtypes other than float32.

        Raises:
            ConfigError: the model cannot be computed in these dtypes.
        """
        raise ConfigError(
            f"the model cannot be computed in {' or '.join(precision.types)}",
            hint="Leave 'precision' out of the pipeline.",
        )

    def check_source(self) -> None:  # noqa: B027 - optional hook
        """Check that the model's files and functions exist.

        ``chameleon validate`` calls this method, so it should take no longer than imports. It
        imports the user's functions without calling them, and checks that files exist without
        reading them.

        Raises:
            ChameleonError: a file, a function or a library is missing.
        """

    def begin(self, threads: int) -> None:  # noqa: B027 - optional hook
        """Start to read the model in the background, such as in another process.

        Chameleon calls this method at the start of a run that measures nothing. Meanwhile the run
        resolves its target. Errors wait until another method needs the model.

        Args:
            threads: the number of threads that kernels are delivered for.
        """

    def coverage(self) -> Sequence[NetworkResult.OperatorCoverage] | None:
        """List the model's operators without compiling them.

        The result is None if the frontend cannot list them.

        Raises:
            ConfigError: the model cannot be read.
        """
        return None

    def check(
        self,
        target: str,  # noqa: ARG002 - optional hook
        threads: int,  # noqa: ARG002
        earlier: Mapping[str, Any] | None,  # noqa: ARG002
    ) -> dict[str, Any] | None:
        """Raise an error for a model that cannot be delivered, before anything is measured.

        Chameleon calls this method first when a run begins, if the runner measures on a real
        device. The run folder keeps the result. If the run is continued, the result is passed as
        ``earlier``, and the check may then be skipped.

        Args:
            target: the resolved target.
            threads: the number of threads that kernels are measured with.
            earlier: the result of this method when the run began, or None if it begins now.

        Returns:
            JSON values with a sentence under ``summary``, or None if nothing was checked.

        Raises:
            ChameleonError: the model cannot be delivered. The message names the cause and the next
                step.
        """
        return None

    def decide(self, trials: Frontend.Trials) -> dict[str, Any] | None:  # noqa: ARG002 - optional hook
        """Make a choice that the tasks depend on, such as a network's layout, by measurements.

        Chameleon calls this method before ``tasks`` when a run begins. The run folder keeps the
        result. If the run is continued, the result is passed to ``restore``.

        Args:
            trials: an object with which the frontend can measure a few tasks.

        Returns:
            The choice as JSON values, or None if there is no choice.
        """
        return None

    def restore(self, decisions: Mapping[str, Any]) -> None:  # noqa: B027 - optional hook
        """Accept the choice that ``decide`` returned in an earlier process."""

    @abstractmethod
    def tasks(self, target: str) -> list[Task]:
        """List the tasks for a resolved target, with unique names.

        The list may be empty if the frontend can deliver a model without tuned operators.

        Args:
            target: the resolved target.

        Raises:
            ConfigError: an operator is impossible, for example because its shapes do not fit.
        """

    def bytes_needed(self) -> int:
        """An estimate of the size of the delivered model in bytes; 0 if nothing is known.

        Chameleon calls this method after ``tasks``, and checks that so much space is free.
        """
        return 0

    def deliver(self, delivery: Delivery) -> NetworkResult | None:  # noqa: ARG002 - optional hook
        """Compile and verify the model whose tasks were tuned, such as a network.

        Chameleon calls this method at the end of a run, perhaps on another object than the method
        ``tasks``.

        Args:
            delivery: the winners of the run, the folder for the result, and other facts.

        Returns:
            The network's result, or None if there is nothing to deliver. Its ``delivered_seconds``
            count from the call of this method. A mapping with the keys of ``network`` in
            ``chameleon run --json`` is also allowed.

        Raises:
            ChameleonError: the delivery is impossible.
        """
        return None

    def usage(self, target: str) -> str:  # noqa: ARG002 - optional hook
        """A command or Python code that uses the result of a run, or an empty string.

        ``{folder}`` in it stands for the run folder.

        Args:
            target: the resolved target.
        """
        return ""
