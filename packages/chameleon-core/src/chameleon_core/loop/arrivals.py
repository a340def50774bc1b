"""What comes from a runner that may break its contract or be interrupted, checked."""

from __future__ import annotations

import math
from types import TracebackType
from typing import Self

from chameleon_core.loop.guard import Guard
from chameleon_core.loop.interruption import Interruption
from chameleon_core.measurement import Measurement
from chameleon_core.stages import Arrival, MeasureJob, Runner
from chameleon_core.stages.streams import JobAfterJob


class Arrivals:
    """The measurements of jobs that a runner has. A context manager.

    Args:
        runner: entered by whoever made it.
        guard: names it when it breaks its contract.
        interruption: the request to stop.
        side_by_side: whether jobs may overlap, if the runner can; otherwise one comes after
            the other whatever it can.
    """

    def __init__(
        self, runner: Runner, guard: Guard, interruption: Interruption, *, side_by_side: bool
    ) -> None:
        self._guard = guard
        self._interruption = interruption
        # A runner that does not know how to be interrupted is stopped between measurements.
        self._deaf = type(runner).interrupt is Runner.interrupt
        self._missing: dict[MeasureJob, set[tuple[int, ...]]] = {}
        with guard.call("start measuring"):
            self._stream = runner.stream() if side_by_side else JobAfterJob(runner.measure)

    @property
    def expected(self) -> bool:
        """Whether a measurement is still to come."""
        return bool(self._missing)

    def submit(self, job: MeasureJob) -> None:
        """Have a job measured.

        Raises:
            PluginError: the runner raises.
        """
        with self._guard.call(f"take task {job.task.name!r} on"):
            self._stream.submit(job)
        self._missing[job] = set(job.configs)

    def poll(self, timeout: float | None = None) -> Arrival | None:
        """The next measurement; None where none came in time, or somebody woke the runner.

        Args:
            timeout: in seconds of the runner's clock; None for no limit.

        Raises:
            PluginError: the runner raises, invents, repeats or leaves out a measurement.
            RunInterrupted: the run is to stop, and what was in flight has come.
        """
        if self._deaf:
            self._interruption.check()
        with self._guard.call(f"measure {self._tasks}"):
            arrival = self._stream.poll(timeout)
            over = arrival is None and not self._stream.busy
        if arrival is not None:
            self._check(arrival)
        elif over and self._missing:
            self._interruption.check()
            left_out = sum(len(configs) for configs in self._missing.values())
            asked = sum(len(job.configs) for job in self._missing)
            raise self._guard.broken(f"left out {left_out} of {asked} measurements")
        return arrival

    def rest(self) -> None:
        """Let the runner put its things away once it has measured everything.

        Raises:
            PluginError: the runner raises, or has yet another measurement.
        """
        with self._guard.call("finish measuring"):
            while not self._missing and self._stream.busy:
                arrival = self._stream.poll()
                if arrival is not None:
                    self._check(arrival)

    @property
    def _tasks(self) -> str:
        names = ", ".join(repr(job.task.name) for job in self._missing)
        return f"task {names}" if len(self._missing) == 1 else f"tasks {names}"

    def _check(self, arrival: object) -> None:
        if not isinstance(arrival, Arrival):
            raise self._guard.broken(f"streamed a {type(arrival).__name__}, not an Arrival")
        job = arrival.job
        measurement: object = arrival.measurement
        if not isinstance(measurement, Measurement):
            kind = type(measurement).__name__
            raise self._guard.broken(f"yielded a {kind}, not a Measurement")
        missing = self._missing.get(job, set())
        if measurement.config not in missing:
            raise self._guard.broken(
                f"yielded a measurement of {measurement.config} that was not asked for, "
                "or a second one"
            )
        if not all(0.0 < seconds < math.inf for seconds in measurement.seconds):
            raise self._guard.broken(f"yielded the times {measurement.seconds}")
        missing.remove(measurement.config)
        if not missing:
            del self._missing[job]

    def wake(self) -> None:
        """Make ``poll`` return soon; from any thread."""
        self._stream.wake()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._guard.call("stop measuring"):
            self._stream.close()


__all__ = ["Arrivals"]
