"""Contracts of runners, of devices that they send kernels to, and of rivals (other tuners).

A runner with devices compiles a kernel in one process and runs it in another. A builder exports the
kernel as a folder, and a process with a device loads the folder. So a builder never waits for a
device, and a device never waits for a build. A candidate whose device is lost runs on another
device.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import attrs
from chameleon_system.api import Closeable

from chameleon_core._measurement import Measurement
from chameleon_core._stages.code import Kernel
from chameleon_core._stages.disturbance import Disturbance
from chameleon_core._stages.jobs import ComparisonPlan, Contender, MeasureJob, StageRef
from chameleon_core._task import Task


class MeasureStream(Closeable, ABC):
    """Measures jobs for one target. The jobs may overlap. A context manager.

    All methods except ``wake`` must be called in the thread that uses the runner. Every
    configuration of every job gets exactly one measurement. The stream may choose the order of
    jobs, but an earlier job should not wait for a later one.
    """

    @attrs.frozen(kw_only=True, eq=False)
    class Arrival:
        """A measurement, with the job that it belongs to.

        Attributes:
            job: the job, the same object that was submitted.
            measurement: the measurement of one of the job's configurations.
        """

        job: MeasureJob
        measurement: Measurement

    @abstractmethod
    def submit(self, job: MeasureJob) -> None:
        """Queue a job for measurement, and return at once.

        Raises:
            TargetError: none of the devices known so far can run the job's target.
        """

    @abstractmethod
    def poll(self, timeout: float | None = None) -> MeasureStream.Arrival | None:
        """Wait for the next measurement.

        Args:
            timeout: the longest time to wait, in seconds on the runner's clock; None for no limit.
                A step that cannot be interrupted may take longer.

        Returns:
            The measurement with its job. None if the time is over, if ``wake`` was called, or if no
            job is left.

        Raises:
            PluginError: the space or the reference of a job fails for every candidate.
            TargetError: no device can run the target of a job.
        """

    @property
    @abstractmethod
    def busy(self) -> bool:
        """Whether the stream will return further measurements.

        The value is False when all jobs are done. After ``Runner.interrupt`` it is False as soon as
        the measurements in flight have arrived.
        """

    def wake(self) -> None:
        """Make the current or the next call of ``poll`` return soon. Any thread may call it.

        A stream without this ability returns from ``poll`` with its next measurement.
        """

    @abstractmethod
    def close(self) -> None:
        """Give up the jobs that are not complete, so that the runner is free.

        A second call does nothing.
        """


class OrderedStream(MeasureStream):
    """A stream that measures jobs in the order of submission, and ends each before the next."""

    def __init__(self) -> None:
        self._waiting: deque[MeasureJob] = deque()
        self._current: Generator[MeasureStream.Arrival, None, None] | None = None

    @abstractmethod
    def _begin(self) -> Generator[MeasureStream.Arrival, None, None]:
        """Take one or more of the waiting jobs, and measure them."""

    @property
    def busy(self) -> bool:
        return self._current is not None or bool(self._waiting)

    def submit(self, job: MeasureJob) -> None:
        self._waiting.append(job)

    def poll(self, timeout: float | None = None) -> MeasureStream.Arrival | None:
        del timeout  # a measurement cannot be left half-way
        while self.busy:
            if self._current is None:
                self._current = self._begin()
            try:
                return next(self._current)
            except StopIteration:
                self._current = None
        return None

    def close(self) -> None:
        self._waiting.clear()
        current, self._current = self._current, None
        if current is not None:
            current.close()


class JobAfterJob(OrderedStream):
    """A stream that measures one job after the other with ``Runner.measure``.

    Args:
        measure: the method ``measure`` of the runner.
    """

    def __init__(self, measure: Callable[[MeasureJob], Iterator[Measurement]]) -> None:
        super().__init__()
        self._measure = measure

    def _begin(self) -> Generator[MeasureStream.Arrival, None, None]:
        job = self._waiting.popleft()
        measurements = self._measure(job)
        try:
            for measurement in measurements:
                yield MeasureStream.Arrival(job=job, measurement=measurement)
        finally:
            # A runner's measurements need not come from a generator.
            getattr(measurements, "close", lambda: None)()


class Runner(Closeable, ABC):
    """Compiles, runs, checks and times candidates. As a context manager, it starts its workers.

    Attributes:
        measures_hardware: whether the runner times real hardware. If True, no other work should run
            at the same time, and each measurement is written to disk when it arrives. If False, the
            runner replays recorded times, which are written batch by batch.
        is_local: whether the runner measures on the CPU of this machine alone.
    """

    measures_hardware: ClassVar[bool] = True
    is_local: ClassVar[bool] = False

    @property
    def batch_size(self) -> int:
        """The number of configurations per batch if the pipeline does not set it.

        It should be just large enough to keep the runner busy, because a search learns between
        batches.
        """
        return 16

    @property
    def lanes(self) -> int:
        """The number of devices that can time candidates while a search runs on this machine.

        If it is 0, a search would disturb the timing, so Chameleon tunes one task after another. If
        it is larger, Chameleon tunes enough tasks at the same time to keep these devices busy.
        Chameleon reads this value after it has entered the runner's context.
        """
        return 0

    def prepare(self, space: StageRef) -> None:
        """Learn which space provider the run uses, before the runner's context is entered.

        Workers can then import the provider, while the main process makes tasks and design spaces.
        """

    def start_late(self) -> None:
        """Start no worker before the first job.

        Chameleon calls this method instead of ``prepare`` if the budget allows no measurements,
        because the run then needs all cores for other work.
        """

    @abstractmethod
    def measure(self, job: MeasureJob) -> Iterator[Measurement]:
        """Yield one measurement for each configuration of a job, as soon as it is known.

        A candidate that fails is a failed measurement, never an exception. Measurements may come in
        any order; ``Measurement.config`` names the configuration.

        Raises:
            PluginError: the space or the reference fails for every candidate.
            TargetError: no device can run the task's target.
        """

    def stream(self) -> MeasureStream:
        """Make a stream that measures several jobs. Close it before you use the runner again.

        By default, the stream measures one job after another. A runner with many devices should let
        jobs overlap, so that no device waits for the last candidate of a batch.
        """
        return JobAfterJob(self.measure)

    def plan_comparison(self, plan: ComparisonPlan) -> None:
        """Accept the time limit and the progress function of a comparison.

        Chameleon calls this method right before ``compare``.

        If time is short, the runner should time contenders fewer times, but often enough for a
        reliable median. The time limit does not apply to compiling.
        """

    @abstractmethod
    def compare(self, task: Task, contenders: Sequence[Contender]) -> list[Measurement]:
        """Time the contenders of a comparison in turns.

        Args:
            task: the task that all contenders compute.
            contenders: the programs to compare.

        Returns:
            One measurement for each contender, in the order of ``contenders``.

        Raises:
            PluginError: no contender can compute the expected outputs.
            TargetError: no device can run the task's target.
        """

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Describe the device, its threads and the versions in use, as JSON values."""

    def conditions(self) -> Mapping[str, Any] | None:
        """All facts that times depend on, except for task and space, as JSON values.

        They include threads, the compiler's version and the state of the caches. If they are equal,
        another machine of the same kind can reuse the records (``RecordDatabase.Key.conditions``).
        So they must not include facts about a single machine. None means that records are not
        shared. Chameleon calls this method after it has entered the runner's context.
        """
        return None

    def resume(self, disturbance: Disturbance) -> None:
        """Continue a run, so that new times are comparable with earlier ones.

        Chameleon calls this method once, after it has entered the runner's context.

        Args:
            disturbance: the sum of what earlier processes of the run returned from ``disturbance``.
        """

    def disturbance(self) -> Disturbance:
        """How much other programs disturbed the timing so far; empty if the runner cannot tell."""
        return Disturbance()

    def now(self) -> float:
        """The runner's clock in seconds, from which budgets are read. Only differences count.

        By default it is real time. A runner that replays recorded measurements adds their original
        seconds, so that the wall-clock time of a search is known without waiting.
        """
        return time.perf_counter()

    def best_known(self, task: Task) -> float | None:  # noqa: ARG002 - optional hook
        """The lowest time in seconds that any configuration of a task has, or None if unknown.

        A runner that replays a complete table knows this time; hardware does not.
        """
        return None

    def interrupt(self) -> None:
        """Ask the runner to stop after the measurements that are running.

        Chameleon calls this method in a separate thread when a signal arrives.
        """

    def close(self) -> None:
        """Stop the workers and remove all temporary files. A second call does nothing."""


class Device(ABC):
    """A device to which one worker process has exclusive access.

    The worker makes the object from a ``StageRef``, so a crash ends the worker and not the search.
    If a call hangs, Chameleon ends the worker.
    """

    @abstractmethod
    def connect(self, target: str) -> dict[str, Any]:
        """Connect to the device, also after it was lost.

        Args:
            target: the canonical target that artifacts are compiled for.

        Returns:
            The device's description as JSON values, which has ``name`` at least.

        Raises:
            DeviceLostError: the device cannot be reached now. Chameleon tries again later.
            TargetError: the device can never run such artifacts, for example because it has another
                architecture. Chameleon then stops before the first measurement.
        """

    @abstractmethod
    def load(self, artifact: Path) -> Kernel:
        """Load a folder that ``Builder.export`` wrote, and return its kernel on the device.

        Args:
            artifact: the folder, which may be removed after the call.

        Raises:
            DeviceLostError: the device is gone.
            Exception: any other exception is a failure of the candidate.
        """

    @property
    def identity(self) -> str:
        """The name of the device that is connected now.

        The name is empty if every connection leads to the same device.
        """
        return ""

    def probe(self) -> None:  # noqa: B027 - optional hook
        """Test quickly whether the device computes correct results.

        Raises:
            DeviceLostError: the device does not compute correct results.
        """

    def close(self) -> None:  # noqa: B027 - optional hook
        """Release the device, even if it is lost. A second call does nothing."""


class Rival(ABC):
    """A rival: another tuner.

    Attributes:
        measures_hardware: whether the rival times real hardware, so that nothing else may run
            meanwhile. If it replays recorded tables, several rivals may run in parallel.
    """

    measures_hardware: ClassVar[bool] = True

    @attrs.frozen(kw_only=True)
    class Trace:
        """The progress of a rival (another tuner) on one task, as points over time.

        Attributes:
            at_seconds: for each point, the wall-clock time in seconds since the rival's start,
                rising.
            measurements: for each point, the number of configurations that the rival had measured.
            best_seconds: for each point, the rival's lowest kernel time so far in seconds, scaled
                so that it can be compared with ``final_seconds``. Infinity before the rival's first
                success.
            failed: the number of failed measurements.
            final_seconds: the time of the rival's best kernel in seconds, measured in the same way
                as Chameleon's kernels. None if the rival has no valid kernel.
            details: facts about the rival's run as JSON values, which are stored with the trace.
        """

        at_seconds: tuple[float, ...]
        measurements: tuple[int, ...]
        best_seconds: tuple[float, ...]
        failed: int = 0
        final_seconds: float | None = None
        details: Mapping[str, Any] = attrs.field(factory=dict)

    @abstractmethod
    def tune(
        self, task: Task, *, measurements: int | None, wall_seconds: float | None, seed: int
    ) -> Rival.Trace:
        """Tune a task until a limit is reached.

        Args:
            task: the task.
            measurements: the largest number of configurations to measure, or None for no limit.
            wall_seconds: the wall-clock time in seconds after which the rival stops, or None for no
                limit. The time of starting the rival counts.
            seed: the seed of the rival's search.

        Raises:
            ChameleonError: the rival cannot tune such a task, or it ended with an error.
        """
