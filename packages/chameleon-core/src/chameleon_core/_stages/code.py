"""Contracts of the stages that make code: spaces, builders and baselines.

The process of the search uses tasks and design spaces only. Worker processes make builders and
kernels, so the code of a candidate never runs in the process of the search.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from chameleon_core._arrays import Arrays
from chameleon_core._space.design import DesignSpace
from chameleon_core._task import Task


class Kernel(ABC):
    """One compiled program, loaded in this process and bound to its inputs.

    The kernel owns its arguments, buffers and packed weights; deleting the kernel frees them.
    """

    @abstractmethod
    def outputs(self) -> Arrays:
        """Run the program once, and return the operator's outputs in their logical layout.

        Raises:
            DeviceLostError: the device is gone; Chameleon measures the candidate elsewhere.
            Exception: any other exception is a run error of the candidate.
        """

    @abstractmethod
    def time(self, number: int, *, cold_bytes: int = 0) -> float:
        """The mean time of ``number`` runs in a row, in seconds.

        One more run comes first and is not counted, because other programs may have used the caches
        and the threads may be asleep.

        Args:
            number: the number of runs to average over, at least 1.
            cold_bytes: the smallest number of bytes that are touched between runs. The constants
                (weights) then come from memory, as in a network. If no argument is constant, all
                arguments come from memory. With 0, the caches stay warm.

        Raises:
            DeviceLostError: the device is gone; Chameleon measures the candidate elsewhere.
            Exception: any other exception is a run error of the candidate.
        """

    def repeats(self, number: int, count: int, *, cold_bytes: int = 0) -> tuple[float, ...]:
        """Time ``count`` repeats of ``number`` runs each, without pauses between the repeats.

        By default, this calls the method ``time`` for each repeat. So each repeat begins with a run
        that is not counted, which wakes threads and warms caches. Because there are no pauses, a
        subclass may do such a run before the first repeat only.

        Args:
            number: the number of runs to average over in each repeat, at least 1.
            count: the number of repeats, at least 1.
            cold_bytes: the smallest number of bytes that are touched between runs; with 0, the
                caches stay warm.

        Returns:
            the mean time of a run in seconds, for each repeat.

        Raises:
            DeviceLostError: the device is gone; Chameleon measures the candidate elsewhere.
            Exception: any other exception is a run error of the candidate.
        """
        return tuple(self.time(number, cold_bytes=cold_bytes) for _ in range(count))

    def clock(self) -> tuple[str, float] | None:
        """Measure in about 0.1 ms how fast the kernel's threads can compute at the moment.

        The speed of a rented machine may halve for minutes. The runner reads this clock before and
        after it times a kernel, so that it can compare kernels that it timed at different speeds.

        Returns:
            The name of the instructions that were timed, and the operations per second of all
            threads together. The rates of unlike instructions are equal if both run at their full
            rate: a clock counts the multiply-adds that would take as long. None if there is no
            clock, which is the default.

        Raises:
            Exception: any exception is a run error of the candidate.
        """
        return None


class Builder(ABC):
    """Compiles kernels of one task in a worker process."""

    @abstractmethod
    def build(self, config: Sequence[int]) -> Kernel:
        """Compile one configuration. A baseline has only the configuration ``()``.

        Args:
            config: the knob indices of the configuration.

        Raises:
            InvalidConfigurationError: the configuration describes no program; the message names the
                reason.
            Exception: any other exception is a build error.
        """

    def export(self, config: Sequence[int], artifact: Path) -> None:
        """Compile one configuration for a device outside this process.

        Args:
            config: the knob indices of the configuration.
            artifact: an empty folder, in which to write all files that ``Device.load`` needs. The
                files must not refer to this process or machine.

        Raises:
            InvalidConfigurationError: the configuration describes no program; the message names the
                reason.
            NotImplementedError: the builder compiles for its own process only.
            Exception: any other exception is a build error.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot build for other devices")

    def listings(self, config: Sequence[int]) -> Mapping[str, str]:  # noqa: ARG002 - optional
        """Texts about one configuration for users to read, such as its schedule and assembly.

        At the end of a run, Chameleon calls this method for each winner, if the ``SpaceRecord`` of
        the space has ``listings``.

        Args:
            config: the knob indices of the configuration.

        Returns:
            The texts by file name, such as ``assembly.s``; none by default.

        Raises:
            Exception: the winner then has no listings, and the run goes on.
        """
        return {}

    def reference(self) -> tuple[Arrays, float]:
        """The expected outputs, computed without any schedule, and the tolerance.

        The tolerance limits the largest |difference| divided by the largest |expected|. Chameleon
        calls this method once per task, and shares the outputs between workers.

        Raises:
            NotImplementedError: the builder has no reference. Only builders of baselines may lack
                one, because baselines are checked against another builder's outputs.
            Exception: any other exception ends the run, because no candidate could be checked.
        """
        raise NotImplementedError(f"{type(self).__name__} has no reference outputs")


class SpaceProvider(ABC):
    """Makes the design space of a task, and compiles its configurations."""

    @abstractmethod
    def design_space(self, task: Task) -> DesignSpace:
        """Make the task's design space.

        The space must be the same in every process for the same task and options.

        Raises:
            ConfigError: the provider has no space for this task. The hint should name a provider
                that has one.
        """

    @abstractmethod
    def builder(self, task: Task, *, threads: int) -> Builder:
        """Make a builder of the task's kernels, in a worker process.

        Args:
            task: the task.
            threads: the number of threads that kernels run with.

        Raises:
            ConfigError: the provider has no space for this task.
        """


class Baseline(ABC):
    """A program to compare tuned kernels with, such as the untuned kernel or the vendor's library.

    Attributes:
        vendor: whether the baseline is a library that users would otherwise call. The time of such
            a baseline is ``vendor_seconds`` in results; the time of others is ``untuned_seconds``.
    """

    vendor: ClassVar[bool] = True

    @abstractmethod
    def supports(self, task: Task) -> bool:
        """Whether the baseline can compute this task; False if its library is missing.

        Args:
            task: the task.
        """

    @abstractmethod
    def variants(self, task: Task) -> Sequence[str]:
        """Names of the baseline's variants for a task, such as layouts.

        The fastest variant counts in results.

        Args:
            task: the task.
        """

    @abstractmethod
    def builder(self, task: Task, variant: str, *, threads: int) -> Builder:
        """Make a builder whose only configuration is ``()``, in a separate worker process.

        Args:
            task: the task.
            variant: the name of the variant, one of ``variants``.
            threads: the number of threads that the kernel may use.

        Raises:
            Exception: the builder cannot be made; the baseline then takes no part in the
                comparison.
        """
