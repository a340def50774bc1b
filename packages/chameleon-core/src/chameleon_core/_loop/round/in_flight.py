"""A runner whose return values are checked, and the batches that it is measuring."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self, TypeVar

import numpy as np
from chameleon_system.api import Closeable

from chameleon_core._loop.interruption import Interruption, RunInterrupted
from chameleon_core._loop.plugin_contract import PluginContract, contract_of
from chameleon_core._loop.round.batch import Batch, Proposal
from chameleon_core._loop.round.task_run import TaskRun
from chameleon_core._measurement import Measurement
from chameleon_core._pipeline.schema import AtOnce, StageSpec
from chameleon_core._stages.disturbance import Disturbance
from chameleon_core._stages.jobs import ComparisonPlan, Contender, MeasureJob, StageRef
from chameleon_core._stages.runner import JobAfterJob, MeasureStream, Runner
from chameleon_core._store.records import RecordStore
from chameleon_core._task import Task


class CheckedRunner:
    """A started runner whose return values are checked, and which the user may interrupt.

    Args:
        runner: the runner, whose context the caller has entered.
        contract: the object that checks the runner's return values, and names the runner in errors.
        interruption: the object that holds the user's request to stop the run, if any.

    Attributes:
        runner: the runner itself, whose return values are not checked.
        contract: the object that checks the runner's return values.
        interruption: the object that holds the user's request to stop the run.
        measures_hardware: whether the runner times real hardware (``Runner.measures_hardware``).
        now: a function that returns the runner's clock in seconds (``Runner.now``).
        disturbance: a function that returns how much other programs disturbed the timing
            (``Runner.disturbance``).
    """

    def __init__(
        self, runner: Runner, contract: PluginContract, interruption: Interruption
    ) -> None:
        self.measures_hardware = runner.measures_hardware
        self.now = runner.now
        self.disturbance = runner.disturbance
        self.runner = runner
        self.contract = contract
        self.interruption = interruption

    @property
    def batch_size(self) -> int:
        """The number of configurations per batch that keeps the runner busy.

        Raises:
            PluginError: the runner's value is not a positive integer.
        """
        with self.contract.call("say how many configurations keep it busy"):
            size = self.runner.batch_size
        if not isinstance(size, int) or size < 1:
            raise self.contract.broken(f"has the batch size {size!r}")
        return size

    @property
    def lanes(self) -> int:
        """The number of devices that can time candidates during a search (``Runner.lanes``).

        It is 0 if a search in this process would disturb the timing.

        Raises:
            PluginError: the runner's value is not an integer from 0.
        """
        with self.contract.call("say how many candidates it times beside a search"):
            lanes = self.runner.lanes
        if not isinstance(lanes, int) or lanes < 0:
            raise self.contract.broken(f"has {lanes!r} lanes")
        return lanes

    def describe(self) -> dict[str, Any]:
        """The runner's description of itself (``Runner.describe``).

        Raises:
            PluginError: the runner raises an unexpected exception.
        """
        with self.contract.call("describe itself"):
            return self.runner.describe()

    def conditions(self) -> Mapping[str, Any] | None:
        """The conditions that the runner's times depend on (``Runner.conditions``).

        The value is None if the runner replays recorded times, or if its measurements must not be
        shared with other runs.

        Raises:
            PluginError: the runner raises an unexpected exception, or returns something else than
                JSON values.
        """
        if not self.measures_hardware:
            return None
        with self.contract.call("say what its times depend on"):
            conditions = self.runner.conditions()
            if conditions is not None:
                json.dumps(dict(conditions))
        return conditions

    @property
    def threads(self) -> int:
        """Number of threads that kernels are measured with."""
        return int(self.describe().get("threads") or 1)

    def resume(self, disturbance: Disturbance) -> None:
        """Tell the runner what earlier processes of the run met (``Runner.resume``).

        Raises:
            PluginError: the runner raises an unexpected exception.
        """
        with self.contract.call("continue a run"):
            self.runner.resume(disturbance)

    def measure(self, job: MeasureJob) -> list[Measurement]:
        """Measure a job outside the search, such as a test of layouts, and return its measurements.

        Raises:
            PluginError: the runner raises, returns a measurement that was not requested, repeats
                one, or leaves one out.
            RunInterrupted: the user asked the run to stop.
        """
        batch = Batch(Proposal(configs=np.array(job.configs)), {})
        with self.stream() as stream:
            stream.submit(job, batch)
            while stream.expected:
                stream.poll()
            stream.rest()
        return batch.measurements

    def stream(self, *, side_by_side: bool = False) -> CheckedStream:
        """Open a stream, to which the search submits jobs, and from which it gets measurements.

        A job is a list of configurations of one task.

        Args:
            side_by_side: whether jobs may overlap, if the runner can measure several jobs at once.
                If False, each job is complete before the next one begins.

        Raises:
            PluginError: the runner fails to start measuring.
            RunInterrupted: the user asked the run to stop.
        """
        self.interruption.check()
        return CheckedStream(self, side_by_side=side_by_side)

    def compare(
        self, task: Task, contenders: Sequence[Contender], plan: ComparisonPlan
    ) -> tuple[Measurement, ...]:
        """Time the contenders of a final comparison in turns, and return a measurement for each.

        Args:
            task: the task that all contenders compute.
            contenders: the programs to compare.
            plan: the time limit, and a function that shows the progress.

        Raises:
            PluginError: the runner breaks its contract.
        """
        with self.contract.call(f"compare the winners of task {task.name!r}"):
            self.runner.plan_comparison(plan)
            measurements = tuple(self.runner.compare(task, contenders))
        if len(measurements) != len(contenders) or not all(
            isinstance(measurement, Measurement) for measurement in measurements
        ):
            raise self.contract.broken(
                f"compared {len(contenders)} programs and returned {len(measurements)} measurements"
            )
        return measurements


class CheckedStream(Closeable):
    """The batches that a runner is measuring, and their measurements. A context manager.

    Args:
        checked: the runner.
        side_by_side: whether jobs may overlap (``CheckedRunner.stream``).
    """

    def __init__(self, checked: CheckedRunner, *, side_by_side: bool) -> None:
        runner, self._contract = checked.runner, checked.contract
        self._interruption, self._now = checked.interruption, runner.now
        # A runner without its own ``interrupt`` is stopped between measurements.
        self._deaf = type(runner).interrupt is Runner.interrupt
        self._batches: dict[MeasureJob, Batch] = {}
        with self._contract.call("start measuring"):
            self._stream = runner.stream() if side_by_side else JobAfterJob(runner.measure)

    @property
    def expected(self) -> bool:
        """Whether measurements of submitted batches are missing."""
        return bool(self._batches)

    def submit(self, job: MeasureJob, batch: Batch) -> None:
        """Submit a job for measurement.

        Args:
            job: the job with the missing configurations of the batch.
            batch: the batch that receives the measurements.

        Raises:
            PluginError: the runner raises an unexpected exception.
        """
        batch.submit(self._now())
        with self._contract.call(f"take task {job.task.name!r} on"):
            self._stream.submit(job)
        self._batches[job] = batch

    def poll(self, timeout: float | None = None) -> tuple[Batch, Measurement] | None:
        """Wait for the next measurement, and return it with its batch.

        The result is None if no measurement came before the timeout, or if ``wake`` was called.

        Args:
            timeout: the time limit in seconds of the runner's clock, or None for no limit.

        Raises:
            PluginError: the runner raises, returns a measurement that was not requested, repeats
                one, or leaves one out.
            RunInterrupted: the user asked the run to stop, and the measurements that were running
                have arrived.
        """
        if self._deaf:
            self._interruption.check()
        with self._contract.call(f"measure {self._tasks}"):
            arrival = self._stream.poll(timeout)
            over = arrival is None and not self._stream.busy
        if arrival is not None:
            return self._arrived(arrival)
        if over and self._batches:
            self._interruption.check()
            left_out = sum(len(batch.missing) for batch in self._batches.values())
            asked = sum(len(job.configs) for job in self._batches)
            raise self._contract.broken(f"left out {left_out} of {asked} measurements")
        return None

    def rest(self) -> None:
        """Wait until the runner is idle. Call this method after all measurements have arrived.

        A runner may still be busy after its last measurement.

        Raises:
            PluginError: the runner raises, or returns a measurement that was not requested.
        """
        with self._contract.call("finish measuring"):
            while not self._batches and self._stream.busy:
                arrival = self._stream.poll()
                if arrival is not None:
                    self._arrived(arrival)

    @property
    def _tasks(self) -> str:
        names = ", ".join(repr(job.task.name) for job in self._batches)
        return f"task {names}" if len(self._batches) == 1 else f"tasks {names}"

    def _arrived(self, arrival: object) -> tuple[Batch, Measurement]:
        if not isinstance(arrival, MeasureStream.Arrival):
            raise self._contract.broken(f"streamed a {type(arrival).__name__}, not an Arrival")
        measurement: object = arrival.measurement
        if not isinstance(measurement, Measurement):
            kind = type(measurement).__name__
            raise self._contract.broken(f"yielded a {kind}, not a Measurement")
        batch = self._batches.get(arrival.job)
        if batch is None or measurement.config not in batch.missing:
            raise self._contract.broken(
                f"yielded a measurement of {measurement.config} that was not asked for, "
                "or a second one"
            )
        if not all(0.0 < seconds < math.inf for seconds in measurement.seconds):
            raise self._contract.broken(f"yielded the times {measurement.seconds}")
        batch.arrive(measurement, self._now())
        if not batch.missing:
            del self._batches[arrival.job]
        return batch, measurement

    def wake(self) -> None:
        """Make ``poll`` return soon. It may be called from any thread."""
        self._stream.wake()

    def close(self) -> None:
        """Give up the jobs that are not complete."""
        with self._contract.call("stop measuring"):
            self._stream.close()


@contextlib.contextmanager
def running_runner(
    spec: StageSpec,
    space: StageRef | None,
    interruption: Interruption,
    described: Callable[[dict[str, Any]], None],
) -> Iterator[CheckedRunner]:
    """Start a runner, and stop it at the end of the context.

    The runner's workers import their modules while this process makes tasks and spaces.

    Args:
        spec: the runner of the pipeline.
        space: the provider of design spaces with which workers build candidates. None if the run
            will probably build no candidates.
        interruption: the object that holds the user's request to stop the run. It is passed to the
            runner.
        described: a function that is called with the runner's description of itself, at the start
            and at the end.

    Raises:
        PluginError: the runner fails to start or to stop.
    """
    contract = contract_of(spec)
    stack = contextlib.ExitStack()
    try:
        with contract.call("start"):
            runner: Runner = spec.create()
            if space is None:
                runner.start_late()
            else:
                runner.prepare(space)
            stack.enter_context(runner)
            interruption.soft = runner.interrupt
            interruption.hard = runner.close
            described(runner.describe())
        checked = CheckedRunner(runner, contract, interruption)
        yield checked
        # A fleet can describe its devices only after it has reached them.
        described(checked.describe())
    finally:
        interruption.soft = interruption.hard = None
        with contract.call("stop"):
            stack.close()


T = TypeVar("T")

_SEARCHED_AND_BUILT = 2
"""Number of batches that occupy no device: one is being searched, one is being built."""


def tasks_at_once(wanted: AtOnce, *, lanes: int, batch_size: int, tasks: int) -> int:
    """The number of tasks of a run that may have a batch in flight at the same time.

    Args:
        wanted: the value of ``tasks_at_once`` in the pipeline: a number, or ``"auto"``.
        lanes: the number of devices that can time candidates while a search runs
            (``Runner.lanes``).
        batch_size: the number of configurations per batch.
        tasks: the number of tasks in the run.
    """
    if wanted == "auto":
        wanted = _SEARCHED_AND_BUILT + math.ceil(lanes / batch_size) if lanes else 1
    return max(1, min(wanted, tasks))


def guesses_at_once(wanted: AtOnce, *, batch_size: int) -> int:
    """The number of tasks whose first guesses may be in flight at the same time.

    A single configuration does not keep a runner busy, so the first guesses of several tasks are
    measured together.

    Args:
        wanted: the value of ``tasks_at_once`` in the pipeline. If it is a number, it is returned.
        batch_size: the number of configurations per batch.
    """
    return batch_size if wanted == "auto" else wanted


class BatchesInFlight:
    """Lets the runner measure batches of several tasks while the next batches are searched for.

    The order in which batches are complete depends on the devices; a resumed run reads it from the
    order of the records. Everything else depends only on the seed. The object is a context manager.

    Args:
        stream: the stream of the runner's measurements, which is closed with this object.
        now: the runner's clock, which returns seconds.
        beside: whether searches run in another thread, so that this one can serve the devices. If
            False, no measurement runs during a search, because its time would be longer.
        together: a function that returns a context whose measurements the store commits together.
            It is used for runners whose measurements cost nothing to repeat, such as replays.
    """

    def __init__(
        self,
        stream: CheckedStream,
        *,
        now: Callable[[], float],
        beside: bool = False,
        together: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        self._stream = stream
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="search") if beside else None
        self._together = together
        self._shares = WallClockShares(now)
        self._runs: dict[Batch, TaskRun] = {}

    def __len__(self) -> int:
        return len(self._runs)

    def search(self, work: Callable[[], T]) -> tuple[T, float]:
        """Run a step of a search, such as a proposal, while measurements go on.

        Args:
            work: the step, a function without arguments.

        Returns:
            The result of ``work``, and the seconds of wall-clock time that count for ``work``. Each
            second is divided equally among the steps and measurements that run in it.
        """
        self._shares.start(work)
        try:
            result = self._do(work)
        finally:
            seconds = self._shares.stop(work)
        return result, seconds

    def _do(self, work: Callable[[], T]) -> T:
        """Run one step of a search at a time, so that timing does not decide the steps' order."""
        if self._thread is None:
            return work()
        # The runner stays in this thread: the main thread handles signals, and some processes end
        # with the thread that started them.
        future = self._thread.submit(work)
        future.add_done_callback(lambda _: self._stream.wake())
        # A request to stop waits until this step is done, because the next measurement raises it
        # again.
        with contextlib.suppress(RunInterrupted):
            while self._stream.expected and not future.done():
                self._step()
        return future.result()

    def begin(self, run: TaskRun, batch: Batch, search_seconds: float) -> None:
        """Submit the missing configurations of a batch to the runner.

        Args:
            run: the search of the batch's task.
            batch: the batch, which is not empty.
            search_seconds: the wall-clock time in seconds that proposing the batch took.
        """
        job = run.begin(batch, search_seconds)
        self._runs[batch] = run
        if job is not None:
            self._stream.submit(job, batch)
            self._shares.start(batch)

    def first(self) -> tuple[TaskRun, Batch]:
        """Wait until a batch is complete, and return the first complete batch with its task.

        If the store already has all measurements of a batch, the batch was complete in an earlier
        process, and is returned without waiting. Several complete batches are returned in the order
        in which they were completed.

        Raises:
            PluginError: the runner breaks its contract.
            RunInterrupted: the user asked the run to stop.
        """
        with self._together():
            while not (complete := [batch for batch in self._runs if not batch.missing]):
                self._step()
        if not self._stream.expected:
            self._stream.rest()
        first = min(complete, key=lambda batch: self._runs[batch].records.last_place(batch.configs))
        return self._runs[first], first

    def learn(self, batch: Batch) -> float:
        """Let the task of a complete batch learn from it.

        The result is the seconds of wall-clock time that count for learning. Each second is divided
        equally among the steps and measurements that run in it.
        """
        run = self._runs[batch]
        _, seconds = self.search(lambda: run.learn(batch))
        del self._runs[batch]
        return seconds

    def _step(self, timeout: float | None = None) -> None:
        """Wait for the next measurement of any batch, and store it."""
        arrived = self._stream.poll(timeout)
        if arrived is None:
            return
        batch, measurement = arrived
        take = self._shares.take if batch.missing else self._shares.stop
        self._runs[batch].save(measurement, batch, take(batch))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        try:
            # Measurements that are running when the run stops are waited for and stored.
            with contextlib.suppress(RunInterrupted):
                while isinstance(error, RunInterrupted) and self._stream.expected:
                    self._step()
            if self._thread is not None:
                self._thread.shutdown()
        finally:
            self._stream.close()


class WallClockShares:
    """Divides every second of wall-clock time equally among the activities that run in it.

    Activities are steps of a search and measurements. So the shares of all activities add up to the
    time that has passed, and an activity that runs alone gets all of it.

    Args:
        now: the clock, which returns seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._mark = now()
        self._shares: dict[Hashable, float] = {}

    def start(self, key: Hashable) -> None:
        """Record that the activity ``key`` begins."""
        self._share_out()
        self._shares[key] = 0.0

    def take(self, key: Hashable) -> float:
        """The seconds that count for an activity since its start or the last call of ``take``.

        Each second is divided equally among the activities that run in it.

        Args:
            key: the object that identifies the activity, as for ``start``.
        """
        self._share_out()
        share, self._shares[key] = self._shares[key], 0.0
        return share

    def stop(self, key: Hashable) -> float:
        """Record that an activity ends, and return the seconds that count for the activity.

        They are counted since the last call of ``take``, or since the start of the activity. Each
        second is divided equally among the activities that run in it.

        Args:
            key: the object that identifies the activity, as for ``start``.
        """
        share = self.take(key)
        del self._shares[key]
        return share

    def _share_out(self) -> None:
        now = self._now()
        passed, self._mark = now - self._mark, now
        for key in self._shares:
            self._shares[key] += passed / len(self._shares)


def batches_in_flight(runner: CheckedRunner, at_once: int, store: RecordStore) -> BatchesInFlight:
    """Make the object that measures the batches of a run.

    Args:
        runner: the run's runner.
        at_once: the largest number of tasks with a batch in flight at the same time.
        store: the run's record store.

    Raises:
        PluginError: the runner fails to start measuring.
        RunInterrupted: the user asked the run to stop.
    """
    several = at_once > 1
    # Recorded and simulated devices have simulated clocks, beside which no search thread may run.
    beside = several and runner.measures_hardware and runner.lanes > 0
    return BatchesInFlight(
        runner.stream(side_by_side=several),
        now=runner.now,
        beside=beside,
        # Measurements of a batch are committed together only if losing them would cost nothing.
        together=contextlib.nullcontext if runner.measures_hardware else store.transaction,
    )
