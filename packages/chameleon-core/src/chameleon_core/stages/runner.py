"""The contracts of what measures: runners, devices that kernels are sent to, and rival tuners.

With devices building and running are apart. A builder exports a configuration as a folder (an
artifact); any process that has a device loads it there. So builders never wait for devices, a
device never shares its time with a build, and a candidate whose device is lost runs on another.
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
    """A measurement and the job it belongs to.

    Attributes:
        job: the very object that was submitted.
        measurement: of one of its configurations.
    """

    job: MeasureJob
    measurement: Measurement


class MeasureStream(ABC):
    """Measures jobs that overlap, all of them for one target. A context manager.

    Used by one thread, that which uses the runner; others call ``wake`` alone. Every configuration
    of every job gets exactly one measurement. Which job is served first is the stream's business,
    but one submitted earlier should not wait for a later one.
    """

    @abstractmethod
    def submit(self, job: MeasureJob) -> None:
        """Take a job on; returns at once.

        Raises:
            TargetError: no device can run the job's target, as far as is known already.
        """

    @abstractmethod
    def poll(self, timeout: float | None = None) -> Arrival | None:
        """The next measurement.

        Args:
            timeout: how long to wait for it at most, in seconds of the runner's clock; None for as
                long as it takes. Work that cannot be left half-way may take longer.

        Returns:
            The measurement; None when the time is over, ``wake`` was called, or nothing is
            under way any more.

        Raises:
            PluginError: as ``Runner.measure`` raises it, of any of the jobs.
            TargetError: as ``Runner.measure`` raises it, of any of the jobs.
        """

    @property
    @abstractmethod
    def busy(self) -> bool:
        """Whether measurements are still to come.

        False once all jobs are done, and after ``Runner.interrupt`` as soon as what was in flight
        has been handed out.
        """

    def wake(self) -> None:  # noqa: B027 - optional hook
        """Make ``poll`` return soon, the present call or the next; from any thread.

        A stream that cannot do that returns with its next measurement.
        """

    @abstractmethod
    def close(self) -> None:
        """Give up what is under way; the runner can go on with other things. Safe to call twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class OrderedStream(MeasureStream):
    """Measures jobs in the order of their arrival; what was begun is finished first."""

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
    """Measures one job after the other, as every runner can.

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
    """Builds, runs, checks and times. A context manager; workers start when it is entered.

    Attributes:
        live: whether it times real hardware, so that nothing else should run beside it, and each
            measurement is on disk when it arrives. False for recorded results, which cost nothing
            to repeat: one transaction commits a batch of them.
    """

    measures_hardware: ClassVar[bool] = True

    @property
    def batch_size(self) -> int:
        """Configurations per batch that keep it busy; what a pipeline gets that names no number.

        A search learns between batches, so fewer are better, as long as nothing stands idle.
        """
        return 16

    @property
    def lanes(self) -> int:
        """Candidates it times at once while a search goes on beside, such as devices elsewhere.

        0 if a search would disturb what is timed. Then one task after the other is tuned,
        otherwise as many at once as keep the lanes busy. Asked when the runner was entered.
        """
        return 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def prepare(self, space: StageRef) -> None:  # noqa: B027 - optional hook
        """Take note of what candidates will be built with, before the runner is entered.

        Workers can import it while the parent still makes tasks and design spaces.
        """

    @abstractmethod
    def measure(self, job: MeasureJob) -> Iterator[Measurement]:
        """Yield exactly one measurement per configuration, each as soon as it is known.

        A bad candidate is a failed measurement, never an exception. The order
        may differ from the job's; ``Measurement.config`` tells which it is.

        Raises:
            PluginError: the space or the reference outputs fail for every candidate alike.
            TargetError: no device that there is can run the task's target.
        """

    def stream(self) -> MeasureStream:
        """Measure several jobs side by side; closed before anything else is asked of the runner.

        By default they are measured one after the other. A runner of many devices overlaps them,
        so that no device waits for the last candidate of a batch.
        """
        return JobAfterJob(self.measure)

    def plan_comparison(self, plan: ComparisonPlan) -> None:  # noqa: B027 - optional hook
        """Called right before ``compare``: how long that may take, and whom to tell how far it is.

        Contenders are timed less often if time is short, but never so rarely that their
        medians say nothing; building takes as long as it takes.
        """

    @abstractmethod
    def compare(self, task: Task, contenders: Sequence[Contender]) -> list[Measurement]:
        """Time contenders against each other, interleaved, one measurement each, in order.

        Raises:
            PluginError: no contender can compute the expected outputs.
            TargetError: as for ``measure``.
        """

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """The measuring device, threads and versions, for the record (JSON values)."""

    def conditions(self) -> Mapping[str, Any] | None:
        """Everything its times depend on beside task and space, as JSON; None keeps them its own.

        Threads, the compiler's version, the state of the caches: if all are the same, a machine
        like this one need not measure again (``RecordKey.conditions``). Nothing that tells one
        machine from another like it belongs here. Asked when the runner was entered.
        """
        return None

    def disturbance(self) -> Disturbance:
        """Tell how much its timing was disturbed since it was made; nothing unless it can."""
        return Disturbance()

    def now(self) -> float:
        """Seconds on the clock that budgets and wall-clocks are read from; only differences count.

        Real time, unless the runner knows better. One that replays recorded measurements adds their
        original seconds, so that a search's wall-clock is known without spending it.
        """
        return time.perf_counter()

    def best_known(self, task: Task) -> float | None:  # noqa: ARG002 - optional hook
        """The lowest cost in seconds that any configuration can have, if that is known.

        An exhaustive table knows it; hardware does not.
        """
        return None

    def interrupt(self) -> None:  # noqa: B027 - optional hook
        """Called from a signal handler's thread: finish the measurement in flight, then stop."""

    def close(self) -> None:  # noqa: B027 - optional hook
        """Stop the workers and remove every temporary file; safe to call twice."""


class Device(ABC):
    """One device, as the worker process that has it to itself sees it.

    Made from a ``StageRef`` in that process, so nothing it does can take the search with it. A call
    that hangs ends with its process.
    """

    @abstractmethod
    def connect(self, target: str) -> dict[str, Any]:
        """Reach the device, or reach it again after it was lost.

        Args:
            target: the canonical target that artifacts are built for.

        Returns:
            Its description for the record (JSON values): ``name`` at least.

        Raises:
            DeviceLostError: it cannot be reached now; it is asked again later.
            TargetError: it can never run such artifacts (another architecture, another version
                of the compiler's runtime); said before the first measurement.
        """

    @abstractmethod
    def load(self, artifact: Path) -> Kernel:
        """A kernel on the device, made of what ``Builder.export`` wrote.

        Args:
            artifact: the folder; it may be removed when this returns.

        Raises:
            DeviceLostError: the device went away.
            Exception: anything else is a failure of the candidate.
        """

    @property
    def identity(self) -> str:
        """Which device it is now, if reaching it again may lead to another one; else empty."""
        return ""

    def probe(self) -> None:  # noqa: B027 - optional hook
        """Test quickly whether it computes and answers rightly.

        Raises:
            DeviceLostError: it does not.
        """

    def close(self) -> None:  # noqa: B027 - optional hook
        """Let go of the device; safe to call twice, and when it is lost."""


@attrs.frozen(kw_only=True)
class RivalTrace:
    """The trace of another tuner with one task, point by point.

    Attributes:
        at_seconds: wall-clock in seconds since the rival's start, rising, one per point.
        measurements: configurations it had measured by then.
        best_seconds: its lowest kernel time by then in seconds, infinity while there was none,
            on the clock of ``final_seconds``.
        failed: how many of its measurements failed.
        final_seconds: its best kernel timed as the pipelines' kernels are, or None.
        details: more for the record (JSON values).
    """

    at_seconds: tuple[float, ...]
    measurements: tuple[int, ...]
    best_seconds: tuple[float, ...]
    failed: int = 0
    final_seconds: float | None = None
    details: Mapping[str, Any] = attrs.field(factory=dict)


class Rival(ABC):
    """Another tuner, run in processes of its own."""

    @abstractmethod
    def tune(
        self, task: Task, *, measurements: int | None, wall_seconds: float | None, seed: int
    ) -> RivalTrace:
        """Tune a task until a limit is reached.

        Args:
            task: the task.
            measurements: configurations it may measure, or None for any number.
            wall_seconds: wall-clock in seconds after which it stops, its start included, or None.
            seed: of its search.

        Raises:
            ChameleonError: it cannot tune such a task, or ended with an error.
        """
