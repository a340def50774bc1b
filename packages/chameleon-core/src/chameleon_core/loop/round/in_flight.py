"""The run's runner, checked in all it says, and the batches that it has in flight."""

from __future__ import annotations

import contextlib
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self, TypeVar

from chameleon_core.loop.interruption import Interruption, RunInterrupted
from chameleon_core.loop.plugin_contract import PluginContract, contract_of
from chameleon_core.loop.round.batch import Batch
from chameleon_core.loop.round.task_run import TaskRun
from chameleon_core.measurement import Measurement
from chameleon_core.pipeline.schema import AtOnce, StageSpec
from chameleon_core.stages import Arrival, ComparisonPlan, Contender, MeasureJob, Runner, StageRef
from chameleon_core.stages.runner import JobAfterJob
from chameleon_core.store import RecordStore
from chameleon_core.task import Task


class CheckedRunner:
    """A started runner that may break its contract or be interrupted.

    Args:
        runner: entered by whoever made it.
        contract: names it when it breaks its contract.
        interruption: the request to stop.

    Attributes:
        measures_hardware: ``Runner.measures_hardware``.
        now: ``Runner.now``.
        disturbance: ``Runner.disturbance``.
    """

    def __init__(
        self, runner: Runner, contract: PluginContract, interruption: Interruption
    ) -> None:
        self.measures_hardware = runner.measures_hardware
        self.now = runner.now
        self.disturbance = runner.disturbance
        self._runner = runner
        self._contract = contract
        self._interruption = interruption

    @property
    def batch_size(self) -> int:
        """Configurations per batch that keep the runner busy.

        Raises:
            PluginError: the runner says something else than a positive number.
        """
        with self._contract.call("say how many configurations keep it busy"):
            size = self._runner.batch_size
        if not isinstance(size, int) or size < 1:
            raise self._contract.broken(f"has the batch size {size!r}")
        return size

    @property
    def lanes(self) -> int:
        """``Runner.lanes``, checked.

        Raises:
            PluginError: the runner says something else than a number from 0.
        """
        with self._contract.call("say how many candidates it times beside a search"):
            lanes = self._runner.lanes
        if not isinstance(lanes, int) or lanes < 0:
            raise self._contract.broken(f"has {lanes!r} lanes")
        return lanes

    def describe(self) -> dict[str, Any]:
        """``Runner.describe``.

        Raises:
            PluginError: the runner raises.
        """
        with self._contract.call("describe itself"):
            return self._runner.describe()

    def conditions(self) -> Mapping[str, Any] | None:
        """``Runner.conditions``; None where what it measures is recorded already.

        Raises:
            PluginError: the runner raises, or says something else than JSON values.
        """
        if not self.measures_hardware:
            return None
        with self._contract.call("say what its times depend on"):
            conditions = self._runner.conditions()
            if conditions is not None:
                json.dumps(dict(conditions))
        return conditions

    @property
    def threads(self) -> int:
        """Threads that kernels are measured with."""
        return int(self.describe().get("threads") or 1)

    def measure(self, job: MeasureJob) -> list[Measurement]:
        """Measure a job that belongs to no task of the run.

        Raises:
            PluginError: the runner raises, invents, repeats or leaves out a measurement.
            RunInterrupted: the run is to stop.
        """
        batch = Batch(job.configs, stored={}, origins={})
        with self.stream() as stream:
            stream.submit(job, batch)
            while stream.expected:
                stream.poll()
            stream.rest()
        return batch.measurements

    def stream(self, *, side_by_side: bool = False) -> CheckedStream:
        """Measure jobs that are submitted one by one.

        Args:
            side_by_side: whether jobs may overlap, if the runner can; otherwise one comes after
                the other whatever it can.

        Raises:
            PluginError: the runner does not start measuring.
            RunInterrupted: the run is to stop.
        """
        self._interruption.check()
        return CheckedStream(
            self._runner, self._contract, self._interruption, side_by_side=side_by_side
        )

    def compare(
        self, task: Task, contenders: Sequence[Contender], plan: ComparisonPlan
    ) -> tuple[Measurement, ...]:
        """Time contenders against each other, one measurement each.

        Raises:
            PluginError: the runner breaks its contract.
        """
        with self._contract.call(f"compare the winners of task {task.name!r}"):
            self._runner.plan_comparison(plan)
            measurements = tuple(self._runner.compare(task, contenders))
        if len(measurements) != len(contenders) or not all(
            isinstance(measurement, Measurement) for measurement in measurements
        ):
            raise self._contract.broken(
                f"compared {len(contenders)} programs and returned {len(measurements)} measurements"
            )
        return measurements


class CheckedStream:
    """The measurements of batches that a runner has. A context manager.

    Args:
        runner: entered by whoever made it.
        contract: names it when it breaks its contract.
        interruption: the request to stop.
        side_by_side: as in ``CheckedRunner.stream``.
    """

    def __init__(
        self,
        runner: Runner,
        contract: PluginContract,
        interruption: Interruption,
        *,
        side_by_side: bool,
    ) -> None:
        self._contract = contract
        self._interruption = interruption
        self._now = runner.now
        # A runner that does not know how to be interrupted is stopped between measurements.
        self._deaf = type(runner).interrupt is Runner.interrupt
        self._batches: dict[MeasureJob, Batch] = {}
        with contract.call("start measuring"):
            self._stream = runner.stream() if side_by_side else JobAfterJob(runner.measure)

    @property
    def expected(self) -> bool:
        """Whether a measurement is still to come."""
        return bool(self._batches)

    def submit(self, job: MeasureJob, batch: Batch) -> None:
        """Have a job measured.

        Args:
            job: what is missing of the batch.
            batch: hears what arrives.

        Raises:
            PluginError: the runner raises.
        """
        batch.submit(self._now())
        with self._contract.call(f"take task {job.task.name!r} on"):
            self._stream.submit(job)
        self._batches[job] = batch

    def poll(self, timeout: float | None = None) -> tuple[Batch, Measurement] | None:
        """The next measurement; None where none came in time, or somebody woke the runner.

        Args:
            timeout: in seconds of the runner's clock; None for no limit.

        Raises:
            PluginError: the runner raises, invents, repeats or leaves out a measurement.
            RunInterrupted: the run is to stop, and what was in flight has come.
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
        """Let the runner come to its end once it has measured everything.

        Raises:
            PluginError: the runner raises, or has yet another measurement.
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
        if not isinstance(arrival, Arrival):
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
        """Make ``poll`` return soon; from any thread."""
        self._stream.wake()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._contract.call("stop measuring"):
            self._stream.close()


@contextlib.contextmanager
def started(
    spec: StageSpec,
    space: StageRef,
    interruption: Interruption,
    described: Callable[[dict[str, Any]], None],
) -> Iterator[CheckedRunner]:
    """Start a runner, and stop it at the end of the context.

    Its workers import what they need while tasks and spaces are made in this process.

    Args:
        spec: the pipeline's runner.
        space: what candidates are built with.
        interruption: passed on to the runner.
        described: called with the runner's description of itself, at its start and at its end.

    Raises:
        PluginError: it does not start, or not stop.
    """
    contract = contract_of(spec)
    stack = contextlib.ExitStack()
    try:
        with contract.call("start"):
            runner: Runner = spec.create()
            runner.prepare(space)
            stack.enter_context(runner)
            interruption.soft = runner.interrupt
            interruption.hard = runner.close
            described(runner.describe())
        checked = CheckedRunner(runner, contract, interruption)
        yield checked
        # A fleet knows its devices only when it has reached them.
        described(checked.describe())
    finally:
        interruption.soft = interruption.hard = None
        with contract.call("stop"):
            stack.close()


T = TypeVar("T")

_SEARCHED_AND_BUILT = 2
"""Batches that keep no device busy: one is being searched, one is being built."""


def tasks_at_once(wanted: AtOnce, *, lanes: int, batch_size: int, tasks: int) -> int:
    """How many tasks of a run have a batch in flight at the same time.

    Args:
        wanted: what the pipeline says.
        lanes: ``Runner.lanes``.
        batch_size: configurations per batch.
        tasks: the run's tasks.
    """
    if wanted == "auto":
        wanted = _SEARCHED_AND_BUILT + math.ceil(lanes / batch_size) if lanes else 1
    return max(1, min(wanted, tasks))


def guesses_at_once(wanted: AtOnce, *, batch_size: int) -> int:
    """How many tasks have their first guess in flight at the same time.

    One configuration keeps no runner busy, so those of several tasks make up a batch.

    Args:
        wanted: ``tasks_at_once`` of the pipeline; a number holds for guesses as well.
        batch_size: configurations per batch.
    """
    return batch_size if wanted == "auto" else wanted


class BatchesInFlight:
    """Has batches of several tasks measured, and searches for the next ones meanwhile.

    Which batch is complete first depends on the devices; a resumed run finds it in the order of
    the records. All else depends on the seed alone. A context manager.

    Args:
        stream: the runner's measurements; closed with this object.
        executor: does the searching; closed with this object.
        now: the runner's clock, in seconds.
        together: a context whose inside is committed to the store at once, for measurements that
            cost nothing to repeat.
    """

    def __init__(
        self,
        stream: CheckedStream,
        executor: SearchExecutor,
        *,
        now: Callable[[], float],
        together: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        self._stream = stream
        self._executor = executor
        self._together = together
        self._shares = WallClockShares(now)
        self._runs: dict[Batch, TaskRun] = {}

    def __len__(self) -> int:
        return len(self._runs)

    def search(self, work: Callable[[], T]) -> tuple[T, float]:
        """Do a piece of a search while measurements go on.

        Returns:
            The result of the work, and its share of the wall-clock time in seconds.
        """
        self._shares.start(work)
        try:
            result = self._executor.do(work, self)
        finally:
            seconds = self._shares.stop(work)
        return result, seconds

    def begin(self, run: TaskRun, batch: Batch, search_seconds: float) -> None:
        """Have the missing part of a batch measured.

        Args:
            run: its task.
            batch: not empty.
            search_seconds: wall-clock that proposing it took.
        """
        job = run.begin(batch, search_seconds)
        self._runs[batch] = run
        if job is not None:
            self._stream.submit(job, batch)
            self._shares.start(batch)

    def first(self) -> tuple[TaskRun, Batch]:
        """Wait until a batch is complete: the first one that is, with its task.

        A batch that the store knows as a whole was complete in an earlier process.

        Raises:
            PluginError: the runner breaks its contract.
            RunInterrupted: the run is to stop.
        """
        with self._together():
            while not (complete := [batch for batch in self._runs if not batch.missing]):
                self.step()
        if not self._stream.expected:
            self._stream.rest()
        first = min(complete, key=lambda batch: self._runs[batch].records.last_place(batch.configs))
        return self._runs[first], first

    def learn(self, batch: Batch) -> float:
        """Have the task of a complete batch learn it; its share of the wall-clock in seconds."""
        run = self._runs[batch]
        _, seconds = self.search(lambda: run.learn(batch))
        del self._runs[batch]
        return seconds

    def drain(self) -> None:
        """Store what is still in flight when the run is to stop."""
        with contextlib.suppress(RunInterrupted):
            while self._stream.expected:
                self.step()

    # -- what goes on while somebody searches ---------------------------------------------------

    @property
    def expected(self) -> bool:
        """Whether a measurement is still to come."""
        return self._stream.expected

    def wake(self) -> None:
        """Make ``step`` return soon; from any thread."""
        self._stream.wake()

    def step(self, timeout: float | None = None) -> None:
        """Wait for the next measurement and store it.

        Args:
            timeout: for how long at most, in seconds of the runner's clock.
        """
        arrived = self._stream.poll(timeout)
        if arrived is None:
            return
        batch, measurement = arrived
        take = self._shares.take if batch.missing else self._shares.stop
        self._runs[batch].save(measurement, batch, take(batch))

    def __enter__(self) -> Self:
        self._stream.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._executor.close()
        finally:
            self._stream.__exit__()


class SearchExecutor(ABC):
    """Does one piece of a search at a time: their order must not depend on a clock."""

    @abstractmethod
    def do(self, work: Callable[[], T], meanwhile: BatchesInFlight) -> T:
        """Do a piece of work and return what it returns.

        Args:
            work: the piece.
            meanwhile: what is measured while it is done.
        """

    def close(self) -> None:  # noqa: B027 - optional hook
        """Let go of threads; what is being done is finished first."""


class SameThread(SearchExecutor):
    """Nothing goes on meanwhile: for runners whose timings a search would disturb."""

    def do(self, work: Callable[[], T], meanwhile: BatchesInFlight) -> T:
        del meanwhile
        return work()


class SearchThread(SearchExecutor):
    """A thread for the search, so that the main thread can serve the devices.

    The runner stays in the main thread for two reasons. Signals are handled there, and some
    processes end with the thread that started them.
    """

    def __init__(self) -> None:
        self._thread: Any = ThreadPoolExecutor(1, thread_name_prefix="search")

    def do(self, work: Callable[[], T], meanwhile: BatchesInFlight) -> T:
        future = self._thread.submit(work)
        future.add_done_callback(lambda _: meanwhile.wake())
        # A run that is to stop stops when this is done: the next measurement would say it again.
        with contextlib.suppress(RunInterrupted):
            while meanwhile.expected and not future.done():
                meanwhile.step()
        result: T = future.result()
        return result

    def close(self) -> None:
        self._thread.shutdown()


class WallClockShares:
    """Shares every second out equally among what goes on in it.

    So what all of them are given adds up to the time that has passed, and one that goes on alone
    gets all of it.

    Args:
        now: the clock, in seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._mark = now()
        self._shares: dict[Hashable, float] = {}

    def start(self, key: Hashable) -> None:
        """Something begins."""
        self._share_out()
        self._shares[key] = 0.0

    def take(self, key: Hashable) -> float:
        """Its seconds since it began, or since this was last asked."""
        self._share_out()
        share, self._shares[key] = self._shares[key], 0.0
        return share

    def stop(self, key: Hashable) -> float:
        """It ends: as ``take``."""
        share = self.take(key)
        del self._shares[key]
        return share

    def _share_out(self) -> None:
        now = self._now()
        passed, self._mark = now - self._mark, now
        for key in self._shares:
            self._shares[key] += passed / len(self._shares)


def batches_in_flight(runner: CheckedRunner, at_once: int, store: RecordStore) -> BatchesInFlight:
    """The object that measures the batches of a run.

    Args:
        runner: the run's runner.
        at_once: the largest number of tasks with a batch in flight at the same time.
        store: the run's records.

    Raises:
        PluginError: the runner does not start measuring.
        RunInterrupted: the run is to stop.
    """
    several = at_once > 1
    # Recorded and simulated devices have clocks of their own, which no thread may run beside.
    beside = several and runner.measures_hardware and runner.lanes > 0
    return BatchesInFlight(
        runner.stream(side_by_side=several),
        SearchThread() if beside else SameThread(),
        now=runner.now,
        # One commit for a batch only where losing it would cost nothing.
        together=contextlib.nullcontext if runner.measures_hardware else store.transaction,
    )
