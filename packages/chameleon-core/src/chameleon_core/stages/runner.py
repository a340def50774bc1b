"""Contracts of runners, of devices that they send kernels to, and of rival tuners.

With devices, building and running are apart. A builder exports a configuration as a folder, and any
process that has a device loads the folder there. So a builder never waits for a device, and a
device is never busy with a build. A candidate whose device is lost runs on another one.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import attrs

from chameleon_core.measurement import Measurement
from chameleon_core.stages.code import Kernel
from chameleon_core.stages.disturbance import Disturbance
from chameleon_core.stages.jobs import ComparisonPlan, Contender, MeasureJob, StageRef
from chameleon_core.task import Task


@attrs.frozen(kw_only=True, eq=False)
class Arrival:
    """A measurement and its job.

    Attributes:
        job: the object that was submitted.
        measurement: the measurement of one of the job's configurations.
    """

    job: MeasureJob
    measurement: Measurement


class MeasureStream(ABC):
    """Measures overlapping jobs for one target. It is a context manager.

    Only the thread that uses the runner calls it; other threads may call ``wake``. Every
    configuration of every job gets exactly one measurement. The stream may choose the order of
    jobs, but an earlier job should not wait for a later one.
    """

    @abstractmethod
    def submit(self, job: MeasureJob) -> None:
        """Queue a job for measurement, and return at once.

        Raises:
            TargetError: no device known so far can run the job's target.
        """

    @abstractmethod
    def poll(self, timeout: float | None = None) -> Arrival | None:
        """Wait for the next measurement.

        Args:
            timeout: seconds to wait at most, on the runner's clock; None for no limit. A step that
                cannot be interrupted may take longer.

        Returns:
            The measurement, or None if the time is over, ``wake`` was called, or no job is left.

        Raises:
            PluginError: as for ``Runner.measure``, for any of the jobs.
            TargetError: as for ``Runner.measure``, for any of the jobs.
        """

    @property
    @abstractmethod
    def busy(self) -> bool:
        """Whether measurements are still to come.

        False when all jobs are done. After ``Runner.interrupt`` it is False when the measurements
        in flight have arrived.
        """

    def wake(self) -> None:  # noqa: B027 - optional hook
        """Make the current or the next call of ``poll`` return soon. Any thread may call it.

        A stream without this ability returns with its next measurement.
        """

    @abstractmethod
    def close(self) -> None:
        """Drop the jobs in flight, so that the runner is free again. A second call does nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class OrderedStream(MeasureStream):
    """Measures jobs in the order of their arrival, each to its end."""

    def __init__(self) -> None:
        self._waiting: deque[MeasureJob] = deque()
        self._current: Generator[Arrival, None, None] | None = None

    @abstractmethod
    def _begin(self) -> Generator[Arrival, None, None]:
        """Take a job, or several, from those that wait, and measure them."""

    @property
    def busy(self) -> bool:
        return self._current is not None or bool(self._waiting)

    def submit(self, job: MeasureJob) -> None:
        self._waiting.append(job)

    def poll(self, timeout: float | None = None) -> Arrival | None:
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
        measure: ``Runner.measure``.
    """

    def __init__(self, measure: Callable[[MeasureJob], Iterator[Measurement]]) -> None:
        super().__init__()
        self._measure = measure

    def _begin(self) -> Generator[Arrival, None, None]:
        job = self._waiting.popleft()
        measurements = self._measure(job)
        try:
            for measurement in measurements:
                yield Arrival(job=job, measurement=measurement)
        finally:
            # A runner's measurements need not come from a generator.
            getattr(measurements, "close", lambda: None)()


class Runner(ABC):
    """Compiles, runs, checks and times candidates. A context manager that starts its workers.

    Attributes:
        measures_hardware: whether the runner times real hardware. Then nothing else should run
            beside it, and each measurement is written to disk when it arrives. False for recorded
            results, which are written batch by batch.
    """

    measures_hardware: ClassVar[bool] = True

    @property
    def batch_size(self) -> int:
        """The number of configurations per batch if the pipeline names none.

        It should be as small as keeps the runner busy, since a search learns between batches.
        """
        return 16

    @property
    def lanes(self) -> int:
        """Number of candidates that are timed at once while a search goes on, as on remote devices.

        0 means that a search would disturb the timing. Chameleon then tunes one task after another.
        Otherwise it tunes as many tasks at once as keep the lanes busy. The runner is entered
        before this is read.
        """
        return 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def prepare(self, space: StageRef) -> None:  # noqa: B027 - optional hook
        """Learn the space provider before the runner is entered.

        Workers can then import it while the main process still makes tasks and design spaces.
        """

    @abstractmethod
    def measure(self, job: MeasureJob) -> Iterator[Measurement]:
        """Yield one measurement for each configuration, as soon as it is known.

        A bad candidate is a failed measurement, never an exception. Measurements may come in any
        order; ``Measurement.config`` names the configuration.

        Raises:
            PluginError: the space or the reference fails for every candidate.
            TargetError: no device can run the task's target.
        """

    def stream(self) -> MeasureStream:
        """A stream that measures several jobs at once. Close it before you use the runner again.

        By default, jobs run one after another. A runner with many devices overlaps them, so that no
        device waits for the last candidate of a batch.
        """
        return JobAfterJob(self.measure)

    def plan_comparison(self, plan: ComparisonPlan) -> None:  # noqa: B027 - optional hook
        """Accept the plan of a comparison. Chameleon calls this right before ``compare``.

        If time is short, contenders are timed fewer times, but often enough for a sound median.
        Compiling is not limited.
        """

    @abstractmethod
    def compare(self, task: Task, contenders: Sequence[Contender]) -> list[Measurement]:
        """Time the programs of a comparison in turns.

        Returns:
            One measurement for each program, in their order.

        Raises:
            PluginError: no program can compute the expected outputs.
            TargetError: as for ``measure``.
        """

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """The device, its threads and the versions in use, as JSON values for the record."""

    def conditions(self) -> Mapping[str, Any] | None:
        """All facts that times depend on beside task and space, as JSON values.

        They include threads, the compiler's version and the state of the caches. If they are equal,
        another machine of the same kind can reuse the records (``RecordKey.conditions``). Facts
        about one machine alone do not belong here. None means that records are not shared. The
        runner is entered before this is called.
        """
        return None

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
        """The lowest time in seconds that any configuration can have, or None if unknown.

        An exhaustive table knows it; hardware does not.
        """
        return None

    def interrupt(self) -> None:  # noqa: B027 - optional hook
        """Ask the runner to stop after the measurement in flight.

        Chameleon calls this in a thread of its own when a signal arrives.
        """

    def close(self) -> None:  # noqa: B027 - optional hook
        """Stop the workers and remove all temporary files. A second call does nothing."""


class Device(ABC):
    """A device that one worker process uses alone.

    The worker makes the object from a ``StageRef``, so a crash ends the worker and not the search.
    If a call hangs, Chameleon ends the worker.
    """

    @abstractmethod
    def connect(self, target: str) -> dict[str, Any]:
        """Connect to the device, also after it was lost.

        Args:
            target: the canonical target that artifacts are compiled for.

        Returns:
            The device's description as JSON values, with ``name`` at least.

        Raises:
            DeviceLostError: the device cannot be reached now; Chameleon tries again later.
            TargetError: the device can never run such artifacts, for instance because of another
                architecture. Chameleon then stops before the first measurement.
        """

    @abstractmethod
    def load(self, artifact: Path) -> Kernel:
        """Load on the device what ``Builder.export`` wrote.

        Args:
            artifact: the folder; it may be removed after the call.

        Raises:
            DeviceLostError: the device is gone.
            Exception: any other exception is a failure of the candidate.
        """

    @property
    def identity(self) -> str:
        """The current device's name if a new connection may lead to another device, else empty."""
        return ""

    def probe(self) -> None:  # noqa: B027 - optional hook
        """Test quickly whether the device computes right answers.

        Raises:
            DeviceLostError: it does not.
        """

    def close(self) -> None:  # noqa: B027 - optional hook
        """Release the device, also if it is lost. A second call does nothing."""


@attrs.frozen(kw_only=True)
class RivalTrace:
    """Another tuner's progress with one task, point by point.

    Attributes:
        at_seconds: wall-clock time of each point in seconds since the rival's start, rising.
        measurements: number of configurations that the rival had measured at each point.
        best_seconds: the rival's lowest kernel time so far in seconds at each point, scaled so that
            it can be compared with ``final_seconds``. Infinity before the rival's first success.
        failed: number of failed measurements.
        final_seconds: time of the rival's best kernel, measured as Chameleon's kernels are; or
            None.
        details: further JSON values for the record.
    """

    at_seconds: tuple[float, ...]
    measurements: tuple[int, ...]
    best_seconds: tuple[float, ...]
    failed: int = 0
    final_seconds: float | None = None
    details: Mapping[str, Any] = attrs.field(factory=dict)


class Rival(ABC):
    """Another tuner, which runs in its own processes."""

    @abstractmethod
    def tune(
        self, task: Task, *, measurements: int | None, wall_seconds: float | None, seed: int
    ) -> RivalTrace:
        """Tune a task until a limit is reached.

        Args:
            task: the task.
            measurements: the largest number of configurations to measure, or None.
            wall_seconds: wall-clock time in seconds after which the rival stops, or None. Its start
                counts.
            seed: the seed of the rival's search.

        Raises:
            ChameleonError: the rival cannot tune such a task, or ended with an error.
        """
