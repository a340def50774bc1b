"""Several jobs on their way through one fleet: whoever is free takes the oldest job's work."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from chameleon_core.stages import Arrival, MeasureJob, MeasureStream

from chameleon_runners.engine.workers import StoppedError, WorkerPool
from chameleon_runners.fleet.device_pool import DevicePool
from chameleon_runners.fleet.job_run import FleetJobRun
from chameleon_runners.fleet.options import FleetOptions


class FleetStream(MeasureStream):
    """Measures jobs that overlap, on all devices at once.

    Builders and devices turn to a job as soon as the older ones leave them idle: at the end of
    a batch, or where a batch is smaller than the fleet.

    Args:
        pool: the workers.
        devices: the devices.
        options: the runner's options.
        begin: makes what measures one job.
        closed: told once that the stream is closed.
    """

    def __init__(
        self,
        pool: WorkerPool,
        devices: DevicePool,
        options: FleetOptions,
        *,
        begin: Callable[[MeasureJob], FleetJobRun],
        closed: Callable[[], None],
    ) -> None:
        self._pool = pool
        self._devices = devices
        self._options = options
        self._begin = begin
        self._told_closed = closed
        self._runs: list[FleetJobRun] = []
        self._interrupted = False
        self._woken = False
        self._closed = False

    def submit(self, job: MeasureJob) -> None:
        if job.configs:
            self._devices.aim(job.task.target)
            self._runs.append(self._begin(job))

    @property
    def busy(self) -> bool:
        return self._going_on or any(run.results for run in self._runs)

    @property
    def _going_on(self) -> bool:
        """Whether something is still done for results."""
        if self._pool.closed:
            return False
        if self._interrupted:
            return any(run.running for run in self._runs)
        return any(run.open for run in self._runs)

    def interrupt(self) -> None:
        """Finish what runs on devices, and begin nothing."""
        self._interrupted = True
        self._pool.wake()

    def wake(self) -> None:
        self._woken = True
        self._pool.wake()

    def poll(self, timeout: float | None = None) -> Arrival | None:
        """See ``MeasureStream``.

        Raises:
            ChameleonError: no device is to be had, or the stage is broken.
        """
        until = None if timeout is None else self._pool.now() + timeout
        with contextlib.suppress(StoppedError):
            while self._going_on:
                if not self._interrupted:
                    self._employ()
                due = self._devices.attend()
                arrival = self._arrival()
                if arrival is not None:
                    return arrival
                if self._woken or (until is not None and self._pool.now() >= until):
                    self._woken = False
                    return None
                self._pool.run_once(due if until is None else min(due, until))
                if self._devices.news():
                    for run in self._runs:
                        run.reconsider()
        return self._arrival(whatever=True)

    def _employ(self) -> None:
        """Give free devices and idle builders work: the oldest job's, where it has any for them."""
        for run in self._runs:
            run.assign()
        room = self._options.build_ahead * max(1, self._devices.hopeful)
        room -= sum(run.waiting + run.building for run in self._runs)
        for run in self._runs:
            before = run.building
            run.employ(max(0, before + room))
            room -= run.building - before

    def _arrival(self, *, whatever: bool = False) -> Arrival | None:
        """The next result, of the oldest job that has one.

        Args:
            whatever: whether also of jobs that no device has been reached for.
        """
        for run in self._runs:
            if run.results and (whatever or self._devices.reached or not run.open):
                measurement = run.results.popleft()
                if not (run.open or run.results):
                    self._runs.remove(run)
                    run.release()
                return Arrival(job=run.job, measurement=measurement)
        return None

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for run in self._runs:
            run.release()
        self._runs.clear()
        self._told_closed()
