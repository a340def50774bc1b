"""Contracts of the stages that touch code and hardware: frontends, spaces, builders, runners.

A runner's parent process knows tasks and design spaces; only its worker processes make
builders and kernels, so the code of a candidate never runs beside the search (design rule 3).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import attrs
from numpy.typing import NDArray

from chameleon_core.measurement import Measurement
from chameleon_core.space import DesignSpace
from chameleon_core.task import Task

Arrays = list[NDArray[Any]]


class TargetResolver(ABC):
    """Turns what a user writes after ``target:`` into a canonical target."""

    @abstractmethod
    def resolve(self, text: str) -> str:
        """The canonical form, with ``native`` replaced by what this machine has.

        Raises:
            TargetError: no such target; the hint says which there are.
        """


@attrs.frozen(kw_only=True)
class Winner:
    """The best configuration of a task.

    Attributes:
        task: the task.
        config: knob indices, of the space that the pipeline names.
        seconds: its time in the final comparison, or in the search where there was none.
    """

    task: Task
    config: tuple[int, ...]
    seconds: float


@attrs.frozen(kw_only=True, eq=False)
class Delivery:
    """What a frontend is asked to make of a run's winners.

    Attributes:
        target: the resolved target.
        winners: the best configuration of every task that has one.
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

    @abstractmethod
    def tasks(self, target: str) -> list[Task]:
        """The tasks, with unique names, for a resolved target.

        Raises:
            ConfigError: an operator cannot be what it says (shapes that do not fit, say).
        """

    def deliver(self, delivery: Delivery) -> dict[str, Any] | None:  # noqa: ARG002 - optional hook
        """Compile and verify what the tasks are parts of, such as a whole network.

        Called at the end of a run, on an object whose ``tasks`` may not have been called.

        Returns:
            For ``network`` of the run's result, or None where there is nothing to deliver:
            ``latency_seconds``, ``untuned_seconds``, ``rivals`` (name to seconds) and
            ``max_relative_error``, each null where it does not apply; ``failure``, a sentence,
            where nothing was delivered; and more, as JSON values.

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
        """Run once and return the operator's logical outputs, layouts undone."""

    @abstractmethod
    def time(self, number: int, *, cold_bytes: int = 0) -> float:
        """Mean seconds of ``number`` back-to-back runs.

        One more run comes first and does not count: whoever ran in between has taken the caches
        and sent the threads to sleep.

        Args:
            number: runs to average over, at least 1.
            cold_bytes: at least this many bytes are touched between runs, outside the clock,
                so that inputs and weights come from memory; 0 leaves caches hot.
        """

    def repeats(self, number: int, count: int, *, cold_bytes: int = 0) -> tuple[float, ...]:
        """``time(number)`` of ``count`` repeats without a pause between them.

        Kernels that can do so save the uncounted run before all repeats but the first.

        Args:
            number: runs to average over in each repeat, at least 1.
            count: repeats, at least 1.
            cold_bytes: as for ``time``.
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

    def reference(self) -> tuple[Arrays, float]:
        """Expected outputs, computed independently of any schedule, and the tolerance.

        The tolerance is the largest accepted |difference| over the largest |expected|.
        Computed once per task, then shared between workers.
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
        """A builder for a worker process."""


class Baseline(ABC):
    """Something a user would run instead: the untuned kernel, the vendor's library.

    Attributes:
        vendor: whether it is what a user would otherwise call, so that results count as
            ``vendor_seconds``; False for the untuned kernel (``untuned_seconds``).
    """

    vendor: ClassVar[bool] = True

    @abstractmethod
    def supports(self, task: Task) -> bool:
        """Whether it can compute this task."""

    @abstractmethod
    def variants(self, task: Task) -> Sequence[str]:
        """Names of its ways to compute the task (layouts, say); the best one counts."""

    @abstractmethod
    def builder(self, task: Task, variant: str, *, threads: int) -> Builder:
        """A builder whose only configuration is ``()``, for a worker process of its own."""


@attrs.frozen(kw_only=True)
class StageRef:
    """A stage as data: enough for a worker process to make it again.

    Attributes:
        factory: ``"module:Class"``.
        options: JSON values for the class's options.
    """

    factory: str
    options: dict[str, Any] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True, eq=False)
class MeasureJob:
    """A batch of configurations of one task.

    Attributes:
        task: the task.
        space: the space provider, as data.
        configs: knob indices of each configuration.
        best_seconds: the task's best cost so far, infinity where there is none; time-outs and
            early stopping derive from it.
    """

    task: Task
    space: StageRef
    configs: Sequence[tuple[int, ...]]
    best_seconds: float = float("inf")


@attrs.frozen(kw_only=True)
class Contender:
    """One side of a final comparison.

    Attributes:
        name: ``tuned``, ``untuned``, ``onednn`` and so on.
        variant: which way of computing; empty for a tuned configuration.
        stage: the space provider or baseline, as data.
        config: the configuration of a space; ``()`` for a baseline.
    """

    name: str
    variant: str = ""
    stage: StageRef
    config: tuple[int, ...] = ()


class Runner(ABC):
    """Builds, runs, checks and times. A context manager; workers start when it is entered.

    Attributes:
        live: whether it times real hardware, so that nothing else should run beside it, and
            each measurement is on disk when it arrives; False where recorded results are looked
            up, which cost nothing to repeat: then a batch is committed as one transaction.
    """

    live: ClassVar[bool] = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def prepare(self, space: StageRef) -> None:  # noqa: B027 - optional hook
        """Hear what candidates will be built with; called before the runner is entered.

        Workers can import it while the parent still makes tasks and design spaces.
        """

    @abstractmethod
    def measure(self, job: MeasureJob) -> Iterator[Measurement]:
        """Yield exactly one measurement per configuration, each as soon as it is known.

        A bad candidate is a failed measurement, never an exception (design rule 2). The order
        may differ from the job's; ``Measurement.config`` tells which it is.
        """

    @abstractmethod
    def compare(self, task: Task, contenders: Sequence[Contender]) -> list[Measurement]:
        """Time contenders against each other, interleaved, one measurement each, in order."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """What does the measuring, for the record: device, threads, versions (JSON values)."""

    def now(self) -> float:
        """Seconds on the clock that budgets and wall-clocks are read from; only differences count.

        Real time, unless the runner knows better: one that replays recorded measurements adds the
        seconds they took when they were made, so that a search's wall-clock is known without
        spending it.
        """
        return time.perf_counter()

    def best_known(self, task: Task) -> float | None:  # noqa: ARG002 - optional hook
        """The lowest cost in seconds that any configuration can have, where that is known.

        An exhaustive table knows it; hardware does not.
        """
        return None

    def interrupt(self) -> None:  # noqa: B027 - optional hook
        """Called from a signal handler's thread: finish the measurement in flight, then stop."""

    def close(self) -> None:  # noqa: B027 - optional hook
        """Stop the workers and remove every temporary file; safe to call twice."""
