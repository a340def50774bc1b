"""Contracts of the stages that make code: spaces, builders and baselines.

The process of the search knows tasks and design spaces. Only worker processes make builders and
kernels, so the code of a candidate never runs beside the search.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from chameleon_core.arrays import Arrays
from chameleon_core.space import DesignSpace
from chameleon_core.task import Task


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
        """Mean seconds of ``number`` runs in a row.

        One more run comes first and is not counted, since other programs may have used the caches
        and the threads may be asleep.

        Args:
            number: runs to average over, at least 1.
            cold_bytes: bytes that are touched between runs, at least. The constants (weights) then
                come from memory, as in a network. If no argument is constant, all arguments do. 0
                leaves the caches warm.

        Raises:
            DeviceLostError: the device is gone; Chameleon measures the candidate elsewhere.
            Exception: any other exception is a run error of the candidate.
        """

    def repeats(self, number: int, count: int, *, cold_bytes: int = 0) -> tuple[float, ...]:
        """Call ``time(number)`` ``count`` times without pauses.

        A kernel may skip the uncounted run before all repeats but the first.

        Args:
            number: runs to average over in each repeat, at least 1.
            count: number of repeats, at least 1.
            cold_bytes: as for ``time``.

        Raises:
            Exception: as for ``time``.
        """
        return tuple(self.time(number, cold_bytes=cold_bytes) for _ in range(count))


class Builder(ABC):
    """Compiles kernels of one task in a worker process."""

    @abstractmethod
    def build(self, config: Sequence[int]) -> Kernel:
        """Compile one configuration. A baseline has only the configuration ``()``.

        Raises:
            InvalidConfigurationError: the configuration describes no program; the message names the
                reason.
            Exception: any other exception is a build error.
        """

    def export(self, config: Sequence[int], artifact: Path) -> None:
        """Compile one configuration for a device outside this process.

        Args:
            config: as for ``build``.
            artifact: an empty folder for all files that ``Device.load`` needs. The files must not
                refer to this process or machine.

        Raises:
            InvalidConfigurationError: the configuration describes no program; the message names the
                reason.
            NotImplementedError: the builder compiles for its own process only.
            Exception: any other exception is a build error.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot build for other devices")

    def listings(self, config: Sequence[int]) -> Mapping[str, str]:  # noqa: ARG002 - optional
        """Texts about one configuration for people to read: the scheduled program, its assembly.

        Chameleon calls this for the winners at the end of a run if the space's record names
        ``listings``.

        Args:
            config: as for ``build``.

        Returns:
            Texts by file name, such as ``assembly.s``; none by default.

        Raises:
            Exception: the winner then has no listings; nothing else is lost.
        """
        return {}

    def reference(self) -> tuple[Arrays, float]:
        """Expected outputs, computed without any schedule, and the tolerance.

        The tolerance limits the largest |difference| divided by the largest |expected|. Chameleon
        calls this once per task and shares the outputs between workers.

        Raises:
            NotImplementedError: the builder has no reference. A space needs one; a baseline is
                checked with another builder's outputs.
            Exception: any other exception ends the run, since no candidate could be checked.
        """
        raise NotImplementedError(f"{type(self).__name__} has no reference outputs")


class SpaceProvider(ABC):
    """Supplies a task's design space, and compiles its configurations."""

    @abstractmethod
    def design_space(self, task: Task) -> DesignSpace:
        """The task's design space, the same in every process for the same task and options.

        Raises:
            ConfigError: the provider has no space for this task; the hint names a provider that has
                one.
        """

    @abstractmethod
    def builder(self, task: Task, *, threads: int) -> Builder:
        """A builder of the task's kernels, for a worker process.

        Raises:
            ConfigError: as for ``design_space``.
        """


class Baseline(ABC):
    """A program to compare with, such as the untuned kernel or the vendor's library.

    Attributes:
        vendor: whether it is a library that users would otherwise call. Its time counts as
            ``vendor_seconds``, that of the untuned kernel as ``untuned_seconds``.
    """

    vendor: ClassVar[bool] = True

    @abstractmethod
    def supports(self, task: Task) -> bool:
        """Whether the baseline can compute this task; False if its library is missing."""

    @abstractmethod
    def variants(self, task: Task) -> Sequence[str]:
        """Names of the variants for the task, such as layouts. The fastest variant counts."""

    @abstractmethod
    def builder(self, task: Task, variant: str, *, threads: int) -> Builder:
        """A builder whose only configuration is ``()``, for a worker process of its own.

        Args:
            task: the task.
            variant: one of ``variants``.
            threads: number of threads that the kernel may use.

        Raises:
            Exception: the builder cannot be made; the baseline then takes no part in the
                comparison.
        """
