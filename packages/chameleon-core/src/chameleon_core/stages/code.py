"""Contracts of the stages that make code: spaces, builders, baselines, and what they make.

A runner's parent process knows tasks and design spaces. Only its worker processes make builders and
kernels, so the code of a candidate never runs beside the search.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from numpy.typing import NDArray

from chameleon_core.space import DesignSpace
from chameleon_core.task import Task

Arrays = list[NDArray[Any]]


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
                (weights) come from memory, as they do in a network. If none is constant, all
                arguments do; 0 leaves caches hot.

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

    def listings(self, config: Sequence[int]) -> Mapping[str, str]:  # noqa: ARG002 - optional
        """The result of one configuration, for people to read: the scheduled program, its assembly.

        Asked of the winners at the end of a run if the space's record names ``listings``.

        Args:
            config: as for ``build``.

        Returns:
            Texts by the name of the file that they are kept in, such as ``assembly.s``; none by
            default.

        Raises:
            Exception: whatever it is, the winner has no listings, and nothing else is lost.
        """
        return {}

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
        """Whether it can compute this task; False also if its library is not installed."""

    @abstractmethod
    def variants(self, task: Task) -> Sequence[str]:
        """Names of its ways to compute the task (layouts, say); the best one counts."""

    @abstractmethod
    def builder(self, task: Task, variant: str, *, threads: int) -> Builder:
        """A builder whose only configuration is ``()``, for a worker process of its own.

        Raises:
            Exception: whatever it is, the baseline takes no part in the comparison.
        """
