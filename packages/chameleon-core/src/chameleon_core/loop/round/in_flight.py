"""Batches in flight: measured side by side, learnt in the order in which they were complete."""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self, TypeVar

from chameleon_core.loop.interruption import RunInterrupted
from chameleon_core.loop.round.batch import Batch
from chameleon_core.loop.round.measure import CheckedRunner, CheckedStream
from chameleon_core.loop.round.task_run import TaskRun
from chameleon_core.pipeline.schema import AtOnce
from chameleon_core.store import RecordStore

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
            What the work returned, and its share of the wall-clock in seconds.
        """
        self._shares.start(work)
        try:
            found = self._executor.do(work, self)
        finally:
            seconds = self._shares.stop(work)
        return found, seconds

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
            while not (complete := [one for one in self._runs if not one.missing]):
                self.step()
        if not self._stream.expected:
            self._stream.rest()
        first = min(complete, key=lambda one: self._runs[one].records.last_place(one.configs))
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
    """The search has a thread of its own, so that this one can look after the devices.

    It is not the other way round: signals are handled in the main thread, and processes may end
    with the thread that started them, which should live as long as their runner.
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
        found: T = future.result()
        return found

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
    """What measures the batches of a run.

    Args:
        runner: the run's.
        at_once: tasks that have a batch in flight at the same time, at most.
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
