"""The contract of measuring several jobs side by side, and how any runner does it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterator
from typing import Self

import attrs

from chameleon_core.measurement import Measurement
from chameleon_core.stages.jobs import MeasureJob


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
                long as it takes. What cannot be left half-way may take longer.

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
