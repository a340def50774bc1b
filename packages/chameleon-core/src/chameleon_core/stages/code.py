"""Contracts of the stages that know code: frontends, spaces, builders, baselines.

A runner's parent process knows tasks and design spaces; only its worker processes make
builders and kernels, so the code of a candidate never runs beside the search.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import attrs
from numpy.typing import NDArray

from chameleon_core.errors import ConfigError
from chameleon_core.space import DesignSpace
from chameleon_core.stages.trials import Trials
from chameleon_core.task import Task

if TYPE_CHECKING:
    from chameleon_core.pipeline.precision import Precision

Arrays = list[NDArray[Any]]


class TargetResolver(ABC):
    """Turns what a user writes after ``target:`` into a canonical target."""

    @abstractmethod
    def resolve(self, text: str) -> str:
        """The canonical form, with ``native`` replaced by what this machine has.

        Raises:
            TargetError: no such target; the hint says which there are.
        """

    def describe(self, target: str) -> Mapping[str, Any]:  # noqa: ARG002 - optional hook
        """What is known of the device that a target stands for, for whoever learns across devices.

        Args:
            target: a canonical target.

        Returns:
            JSON values: ``kind``, names of features as a sorted list, and numbers with their units
            in their names. Nothing where nothing is known. Equal devices have equal descriptions.
        """
        return {}


@attrs.frozen(kw_only=True)
class Winner:
    """The best configuration of a task, or the first guess where none of it was measured.

    Attributes:
        task: the task.
        config: knob indices, of the space that the pipeline names.
        seconds: its time in the final comparison, or in the search where there was none; None
            for a guess, which nobody has built, checked or timed yet.
        alternatives: other configurations that were nearly as fast when measured alone.
        guesses: of a guess the space's further ones, the most promising first.
    """

    task: Task
    config: tuple[int, ...]
    seconds: float | None = None
    alternatives: tuple[tuple[int, ...], ...] = ()
    guesses: tuple[tuple[int, ...], ...] = ()

    @property
    def measured(self) -> bool:
        """Whether it was built, checked and timed."""
        return self.seconds is not None


@attrs.frozen(kw_only=True, eq=False)
class Delivery:
    """What a frontend is asked to make of a run's winners.

    Attributes:
        target: the resolved target.
        winners: the best configuration of every task that has one; where a task was never
            measured, its first guess.
        space: what they are configurations of.
        folder: where the result goes; it may hold an earlier one.
        threads: that kernels were measured with.
    """

    target: str
    winners: Sequence[Winner]
    space: SpaceProvider
    folder: Path
    threads: int


class Frontend(ABC):
    """Turns the pipeline's ``model`` section into tasks."""

    def compute_in(self, precision: Precision) -> None:
        """Take over what numbers the network may be computed in.

        Called before anything else, and not at all where the pipeline names float32 alone.

        Raises:
            ConfigError: it cannot be computed in them.
        """
        raise ConfigError(
            f"the model cannot be computed in {' or '.join(precision.types)}",
            hint="Leave 'precision' out of the pipeline.",
        )

    def check(
        self,
        target: str,  # noqa: ARG002 - optional hook
        threads: int,  # noqa: ARG002
        earlier: Mapping[str, Any] | None,  # noqa: ARG002
    ) -> dict[str, Any] | None:
        """Refuse what cannot be delivered, before anything is measured.

        Called first of all when a run begins, where the runner measures on a real device. What
        comes back is kept in the run folder, and given as ``earlier`` where the run is continued,
        which then need not be checked again.

        Args:
            target: the resolved target.
            threads: that kernels are measured with.
            earlier: what this method returned when the run was begun, or None.

        Returns:
            JSON values with a sentence under ``summary``, or None where nothing was checked.

        Raises:
            ChameleonError: it cannot be delivered; says which part of it, and what to do.
        """
        return None

    def settle(self, trials: Trials) -> dict[str, Any] | None:  # noqa: ARG002 - optional hook
        """Choose by measurement what the tasks depend on, such as the layout of a network.

        Called before ``tasks`` when a run begins. What comes back is kept in the run folder, for
        ``recall``: a run that is continued must not choose differently, or its records were of
        other tasks.

        Returns:
            JSON values, or None where there is nothing to choose.
        """
        return None

    def recall(self, settled: Mapping[str, Any]) -> None:  # noqa: B027 - optional hook
        """Take over what ``settle`` of an earlier object of the same options returned."""

    @abstractmethod
    def tasks(self, target: str) -> list[Task]:
        """The tasks, with unique names, for a resolved target.

        None at all is an answer for a frontend that delivers: there is nothing to tune in it.

        Raises:
            ConfigError: an operator cannot be what it says (shapes that do not fit, say).
        """

    def deliver(self, delivery: Delivery) -> dict[str, Any] | None:  # noqa: ARG002 - optional hook
        """Compile and verify what the tasks are parts of, such as a whole network.

        Called at the end of a run, on an object whose ``tasks`` may not have been called.

        Returns:
            For ``network`` of the run's result, or None where there is nothing to deliver:
            ``latency_seconds``, ``untuned_seconds``, ``rivals`` (name to seconds) and
            ``max_relative_error``, each null where it does not apply; ``kernels``, where its
            time goes, ``unmeasured`` and ``left_out`` (see ``NetworkResult``);
            ``delivered_seconds``, from the call of this method
            until the result was in the folder; ``failure``, a sentence, where nothing was
            delivered; and more, as JSON values.

        Raises:
            ChameleonError: it cannot be done at all.
        """
        return None


class Kernel(ABC):
    """One built program, loaded in this process and bound to its inputs.

    Args, buffers and packed weights belong to the kernel; dropping it frees them.
    """

    @abstractmethod
    def outputs(self) -> Arrays:
        """Run once and return the operator's logical outputs, layouts undone.

        Raises:
            DeviceLostError: the device went away; the candidate is measured elsewhere.
            Exception: anything else is a run error of the candidate.
        """

    @abstractmethod
    def time(self, number: int, *, cold_bytes: int = 0) -> float:
        """Mean seconds of ``number`` back-to-back runs.

        One more run comes first and does not count: whoever ran in between has taken the caches
        and sent the threads to sleep.

        Args:
            number: runs to average over, at least 1.
            cold_bytes: at least this many bytes are touched between runs, so that the constants
                (weights) come from memory, as they do in a network, or all arguments where none
                is constant; 0 leaves caches hot.

        Raises:
            DeviceLostError: the device went away; the candidate is measured elsewhere.
            Exception: anything else is a run error of the candidate.
        """

    def repeats(self, number: int, count: int, *, cold_bytes: int = 0) -> tuple[float, ...]:
        """``time(number)`` of ``count`` repeats without a pause between them.

        Kernels that can do so save the uncounted run before all repeats but the first.

        Args:
            number: runs to average over in each repeat, at least 1.
            count: repeats, at least 1.
            cold_bytes: as for ``time``.

        Raises:
            Exception: as for ``time``.
        """
        return tuple(self.time(number, cold_bytes=cold_bytes) for _ in range(count))


class Builder(ABC):
    """Makes kernels of one task in a worker process."""

    @abstractmethod
    def build(self, config: Sequence[int]) -> Kernel:
        """Build one configuration of the space (or the only program, for a baseline: ``()``).

        Raises:
            InvalidConfigurationError: the configuration names no program; says why.
            Exception: anything else is a build error.
        """

    def export(self, config: Sequence[int], artifact: Path) -> None:
        """Build one configuration for a device that is not this process's own.

        Args:
            config: as for ``build``.
            artifact: an empty folder for everything that ``Device.load`` needs; nothing in it
                may refer to this process or machine.

        Raises:
            InvalidConfigurationError: the configuration names no program; says why.
            NotImplementedError: the builder makes kernels for its own process alone.
            Exception: anything else is a build error.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot build for other devices")

    def reference(self) -> tuple[Arrays, float]:
        """Expected outputs, computed independently of any schedule, and the tolerance.

        The tolerance is the largest accepted |difference| over the largest |expected|.
        Computed once per task, then shared between workers.

        Raises:
            NotImplementedError: there are none. A space needs some; a baseline is then checked
                with those of the others.
            Exception: anything else ends the run, for no candidate could be checked.
        """
        raise NotImplementedError(f"{type(self).__name__} has no reference outputs")


class SpaceProvider(ABC):
    """Knows the design space of a task and how a configuration becomes code."""

    @abstractmethod
    def design_space(self, task: Task) -> DesignSpace:
        """The design space; the same in every process for the same task and options.

        Raises:
            ConfigError: this provider has no space for such a task; the hint names one that has.
        """

    @abstractmethod
    def builder(self, task: Task, *, threads: int) -> Builder:
        """A builder for a worker process.

        Raises:
            ConfigError: as for ``design_space``.
        """


class Baseline(ABC):
    """Something a user would run instead: the untuned kernel, the vendor's library.

    Attributes:
        vendor: whether it is what a user would otherwise call, so that results count as
            ``vendor_seconds``; False for the untuned kernel (``untuned_seconds``).
    """

    vendor: ClassVar[bool] = True

    @abstractmethod
    def supports(self, task: Task) -> bool:
        """Whether it can compute this task; False also where its library is not installed."""

    @abstractmethod
    def variants(self, task: Task) -> Sequence[str]:
        """Names of its ways to compute the task (layouts, say); the best one counts."""

    @abstractmethod
    def builder(self, task: Task, variant: str, *, threads: int) -> Builder:
        """A builder whose only configuration is ``()``, for a worker process of its own.

        Raises:
            Exception: whatever it is, the baseline takes no part in the comparison.
        """
