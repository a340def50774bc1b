"""One job on its way through a fleet: built here, run wherever a device is free."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import attrs
from chameleon_core.measurement import Measurement
from chameleon_core.stages import MeasureJob

from chameleon_runners.deadlines import Deadlines
from chameleon_runners.fleet.builder_pool import BuilderPool
from chameleon_runners.fleet.device_pool import DevicePool
from chameleon_runners.fleet.device_state import DeviceState
from chameleon_runners.fleet.export_phase import ExportPhase
from chameleon_runners.fleet.options import FleetOptions
from chameleon_runners.fleet.pace import Paces
from chameleon_runners.fleet.remote_candidate import RemoteCandidate
from chameleon_runners.fleet.verdicts import Verdict
from chameleon_runners.fleet.workers import WorkerEvent, WorkerPool
from chameleon_runners.references import Reference
from chameleon_runners.timing import TimingPolicy

_LOOK_AHEAD = 8
"""Candidates to be tried again that are looked at for whether a free device may take them."""


@attrs.frozen(kw_only=True, eq=False)
class FleetContext:
    """What jobs of one task are measured with.

    Attributes:
        pool: the workers.
        devices: the devices.
        paces: how fast they are.
        builders: the builders.
        options: the runner's options.
        policy: the clock policy.
        reference: the task's expected outputs.
        deadlines: the task's time-outs.
        folder: where artifacts are put.
    """

    pool: WorkerPool
    devices: DevicePool
    paces: Paces
    builders: BuilderPool
    options: FleetOptions
    policy: TimingPolicy
    reference: Reference
    deadlines: Deadlines
    folder: Path


class Dispatch:
    """Measures one job, in steps that leave room for those of others.

    Args:
        job: the job.
        key: identity of the job's builder.
        context: what it is measured with.
        numbers: numbers that no artifact in the folder has.

    Attributes:
        job: the job.
        key: identity of its builder.
        open: how many of its candidates have no result yet.
        results: what was not handed out yet.
    """

    def __init__(
        self, job: MeasureJob, key: str, *, context: FleetContext, numbers: Iterator[int]
    ) -> None:
        self.job = job
        self.key = key
        self.open = len(job.configs)
        self.results: deque[Measurement] = deque()
        self._context = context
        self._devices = context.devices
        self._best = job.best_seconds
        self._policy = attrs.asdict(context.policy)
        self._built: deque[RemoteCandidate] = deque()
        self._again: deque[RemoteCandidate] = deque()
        self._parked: list[RemoteCandidate] = []
        self._running: dict[DeviceState, RemoteCandidate] = {}
        pending = deque(
            RemoteCandidate(
                config=tuple(int(index) for index in config),
                slot=(number := next(numbers)),
                artifact=context.folder / f"artifact-{number}",
                tries=context.options.retries + 1,
            )
            for config in job.configs
        )
        self._exports = ExportPhase(
            job,
            key,
            pending=pending,
            builders=context.builders,
            reference=context.reference,
            deadlines=context.deadlines,
            options=context.options,
            built=self._built.append,
            failed=self._finish,
        )

    @property
    def prepared(self) -> bool:
        """Whether the expected outputs are known."""
        return self._context.reference.ready

    @property
    def running(self) -> bool:
        """Whether a device has one of its candidates."""
        return bool(self._running)

    @property
    def waiting(self) -> int:
        """Built candidates that wait for a device."""
        return len(self._built)

    @property
    def building(self) -> int:
        """Builds that are under way."""
        return self._exports.under_way

    def employ(self, room: int) -> None:
        """Give idle builders work.

        Args:
            room: how many builds may be under way.
        """
        self._exports.employ(room)

    # -- devices ----------------------------------------------------------------------------

    def assign(self) -> None:
        """Give free devices work: first what others failed on."""
        if not self.prepared:
            return
        for _ in range(min(_LOOK_AHEAD, len(self._again))):
            candidate = self._again.popleft()
            asked = candidate.asked
            avoid = asked if self._devices.elsewhere(asked) else ()
            device = self._devices.take(avoid)
            if device is None:
                self._again.append(candidate)
            else:
                self._start(candidate, device)
        while self._built and (device := self._devices.take()) is not None:
            if self._context.paces.due(device):
                self._context.paces.read(device)
            else:
                self._start(self._built.popleft(), device)

    def _start(self, candidate: RemoteCandidate, device: DeviceState) -> None:
        context = self._context
        if device.worker is None:
            raise RuntimeError("a device is free that nobody has")
        self._running[device] = candidate
        candidate.tries -= 1
        message = candidate.run_command(context.reference, self._policy, self._best)
        then = partial(self._ran, device)
        context.pool.submit(device.worker, then, message, context.deadlines.run(self._best))

    def _ran(self, device: DeviceState, event: WorkerEvent) -> None:
        """A device is done with a candidate, or gone."""
        candidate = self._running.pop(device)
        device.heard(event)
        reply = event.reply
        if reply is not None and reply["status"] == "ok":
            candidate.run_seconds = event.seconds
            candidate.repeats, candidate.error = tuple(reply["seconds"]), reply["error"]
            self._context.deadlines.ran(event.seconds)
            self._devices.succeeded(device)
            self._devices.finished(device)
            elsewhere = self._devices.elsewhere({*candidate.asked, device.name})
            self._settle(candidate, candidate.succeed(device.name, elsewhere=elsewhere))
            return
        report = candidate.fail(
            device.name, event, reliability=device.reliability, identity=device.actual_name
        )
        self._devices.failed(device, report)
        self._consider(candidate)

    # -- judging ----------------------------------------------------------------------------

    def _consider(self, candidate: RemoteCandidate) -> None:
        elsewhere = self._devices.elsewhere(candidate.asked)
        self._settle(candidate, candidate.judge(elsewhere=elsewhere))

    def _settle(self, candidate: RemoteCandidate, verdict: Measurement | Verdict) -> None:
        if verdict is Verdict.AGAIN:
            self._again.append(candidate)
        elif verdict is Verdict.WAIT:
            self._parked.append(candidate)
        elif isinstance(verdict, Measurement):
            self._finish(candidate, verdict)

    def reconsider(self) -> None:
        """Devices came or went: judge again what depends on who there is."""
        waiting, self._parked = [*self._parked, *self._again], []
        self._again.clear()
        for candidate in waiting:
            self._consider(candidate)
        self._context.paces.compare()

    def _finish(self, candidate: RemoteCandidate, measurement: Measurement) -> None:
        self.open -= 1
        if not (measurement.ok and self._becomes_yardstick(candidate, measurement)):
            candidate.discard()
        self.results.append(measurement)
        if measurement.ok:
            self._best = min(self._best, measurement.cost)
            for report in candidate.reports:
                if not report.outside:
                    self._devices.strike(report.device)

    def _becomes_yardstick(self, candidate: RemoteCandidate, measurement: Measurement) -> bool:
        """Whether devices are compared by this candidate from now on."""
        context = self._context
        return context.paces.measured(
            candidate,
            measurement,
            precise=measurement.cost <= context.policy.slow_factor * self._best,
            target=self.job.task.target,
            reference=context.reference,
        )

    def release(self) -> None:
        """Let go of what nobody waits for any more."""
        if self._context.pool.closed:
            return
        self._exports.release()
        for device, candidate in self._running.items():
            candidate.discard()
            self._devices.abandon(device)
        for candidate in (*self._built, *self._again, *self._parked):
            candidate.discard()
        self._running.clear()
