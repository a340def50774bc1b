"""Batches in flight: measured side by side, learnt in the order in which they were complete."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

import attrs

from chameleon_core.loop.arrivals import Arrivals
from chameleon_core.loop.batch import Batch
from chameleon_core.loop.desk import Desk, SameThread, SearchThread
from chameleon_core.loop.interruption import RunInterrupted
from chameleon_core.loop.measuring import Measuring
from chameleon_core.loop.task_run import TaskRun
from chameleon_core.loop.timesheet import Timesheet
from chameleon_core.pipeline.schema import AtOnce
from chameleon_core.stages import MeasureJob
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


@attrs.define(kw_only=True, eq=False)
class Flight:
    """A batch that was proposed and is not learnt yet.

    Attributes:
        run: its task.
        batch: the batch.
        job: what is being measured of it; None where the store knew all of it.
        missing: measurements that are still to come.
        began: when it was submitted, on the runner's clock.
        seconds: wall-clock of measuring it, once it is complete.
        place: where its last measurement is in the order of arrival, once it is complete: those
            of earlier processes come first.
    """

    run: TaskRun
    batch: Batch
    job: MeasureJob | None = None
    missing: int = 0
    began: float = 0.0
    seconds: float = 0.0
    place: tuple[int, int] = (0, 0)


class Flights:
    """Has batches of several tasks measured, and searches for the next ones meanwhile.

    Which batch is complete first depends on the devices; a resumed run finds it in the order of
    the records. All else depends on the seed alone. A context manager.

    Args:
        arrivals: the runner's measurements; closed with this object.
        desk: where searching is done; closed with this object.
        now: the runner's clock, in seconds.
        together: a context whose inside is committed to the store at once, for measurements that
            cost nothing to repeat.
    """

    def __init__(
        self,
        arrivals: Arrivals,
        desk: Desk,
        *,
        now: Callable[[], float],
        together: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        self._arrivals = arrivals
        self._desk = desk
        self._now = now
        self._together = together
        self._sheet = Timesheet(now)
        self._flights: list[Flight] = []
        self._of_job: dict[MeasureJob, Flight] = {}
        self._completed = 0

    def __len__(self) -> int:
        return len(self._flights)

    def search(self, work: Callable[[], T]) -> tuple[T, float]:
        """Do a piece of a search while measurements go on.

        Returns:
            What the work returned, and its share of the wall-clock in seconds.
        """
        self._sheet.start(work)
        try:
            found = self._desk.do(work, self)
        finally:
            seconds = self._sheet.stop(work)
        return found, seconds

    def begin(self, run: TaskRun, batch: Batch, search_seconds: float) -> None:
        """Have the missing part of a batch measured.

        Args:
            run: its task.
            batch: not empty.
            search_seconds: wall-clock that proposing it took.
        """
        began, job = self._now(), run.begin(batch, search_seconds)
        flight = Flight(run=run, batch=batch, job=job, missing=len(batch.missing), began=began)
        if job is not None:
            self._of_job[job] = flight
            self._arrivals.submit(job)
            self._sheet.start(flight)
        else:
            flight.place = (0, run.last_place(batch))
        self._flights.append(flight)

    def first(self) -> Flight:
        """The batch that was complete first, or is to be.

        Raises:
            PluginError: the runner breaks its contract.
            RunInterrupted: the run is to stop.
        """
        with self._together():
            while not (complete := [flight for flight in self._flights if not flight.missing]):
                self.step()
        if not self._arrivals.expected:
            self._arrivals.rest()
        return min(complete, key=lambda flight: flight.place)

    def learn(self, flight: Flight) -> float:
        """Have the task of a complete batch learn it; its share of the wall-clock in seconds."""
        _, seconds = self.search(lambda: flight.run.learn(flight.batch))
        self._flights.remove(flight)
        return seconds

    def drain(self) -> None:
        """Store what is still in flight when the run is to stop."""
        with contextlib.suppress(RunInterrupted):
            while self._arrivals.expected:
                self.step()

    # -- what goes on while somebody searches ---------------------------------------------------

    @property
    def expected(self) -> bool:
        """Whether a measurement is still to come."""
        return self._arrivals.expected

    def wake(self) -> None:
        """Make ``step`` return soon; from any thread."""
        self._arrivals.wake()

    def step(self, timeout: float | None = None) -> None:
        """Wait for the next measurement and store it.

        Args:
            timeout: for how long at most, in seconds of the runner's clock.
        """
        arrival = self._arrivals.poll(timeout)
        if arrival is None:
            return
        flight = self._of_job[arrival.job]
        flight.missing -= 1
        if flight.missing:
            seconds = self._sheet.take(flight)
        else:
            seconds = self._sheet.stop(flight)
            del self._of_job[arrival.job]
            flight.seconds = self._now() - flight.began
            self._completed += 1
            flight.place = (1, self._completed)
        flight.run.take(arrival.measurement, seconds)

    def __enter__(self) -> Self:
        self._arrivals.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._desk.close()
        finally:
            self._arrivals.__exit__(kind, error, trace)


def flights_of(measuring: Measuring, at_once: int, store: RecordStore) -> Flights:
    """What measures the batches of a run.

    Args:
        measuring: asks the run's runner.
        at_once: tasks that have a batch in flight at the same time, at most.
        store: the run's records.

    Raises:
        PluginError: the runner does not start.
        RunInterrupted: the run is to stop.
    """
    several = at_once > 1
    # Recorded and simulated devices have clocks of their own, which no thread may run beside.
    beside = several and measuring.live and measuring.runner.lanes > 0
    return Flights(
        measuring.arrivals(side_by_side=several),
        SearchThread() if beside else SameThread(),
        now=measuring.runner.now,
        # One commit for a batch only where losing it would cost nothing.
        together=contextlib.nullcontext if measuring.live else store.transaction,
    )


__all__ = ["Flight", "Flights", "flights_of", "guesses_at_once", "tasks_at_once"]
