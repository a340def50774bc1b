"""The measurement of one job by a fleet: local workers build, free devices measure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import attrs
from chameleon_core.plugin_api import MeasureJob, Measurement

from chameleon_runners._engine.build_phase import BuildPhase
from chameleon_runners._engine.context import MeasureContext
from chameleon_runners._engine.preparation import JobPreparation
from chameleon_runners._engine.workers import WorkerEvent
from chameleon_runners._fleet.candidate_run import FleetCandidateRun
from chameleon_runners._fleet.device_pool import DevicePool
from chameleon_runners._fleet.device_state import DeviceState
from chameleon_runners._fleet.options import FleetOptions
from chameleon_runners._fleet.pace import PaceMonitor
from chameleon_runners._fleet.verdicts import Verdict


@attrs.frozen(kw_only=True, eq=False)
class FleetContext(MeasureContext):
    """A ``MeasureContext`` with the devices of a fleet.

    Attributes:
        paces: The object that compares how fast the devices are.
    """

    options: FleetOptions
    devices: DevicePool
    paces: PaceMonitor
    folder: Path

    def candidate(self, config: Sequence[int], number: int) -> FleetCandidateRun:
        """Make the initial state of a configuration that is to be built and measured."""
        return FleetCandidateRun(
            config=tuple(int(index) for index in config),
            slot=number,
            artifact=self.folder / f"artifact-{number}",
            tries=self.retries + 1,
        )


_LOOK_AHEAD = 8
"""The number of candidates to try again for which a free device is sought at a time."""


class FleetJobRun:
    """Measures the candidates of one job, step by step, so that several jobs can overlap.

    Attributes:
        open: The number of candidates that have no result yet.
        results: The results that the stream has not returned yet.
    """

    def __init__(self, job: MeasureJob, *, context: FleetContext, numbers: Iterator[int]) -> None:
        self.job = job
        self.open = len(job.configs)
        self.results: deque[Measurement] = deque()
        self._context = context
        self._devices = context.devices
        self._best = job.best_seconds
        self._built: deque[FleetCandidateRun] = deque()
        self._again: deque[FleetCandidateRun] = deque()
        self._parked: list[FleetCandidateRun] = []
        self._running: dict[DeviceState, FleetCandidateRun] = {}
        self._builds = BuildPhase(
            preparation=JobPreparation(stage=job.space, task=job.task, context=context),
            pending=deque(context.candidate(config, next(numbers)) for config in job.configs),
            context=context,
            built=self._built.append,
            failed=self._finish,
        )

    @property
    def running(self) -> bool:
        """Whether a device is measuring one of the job's candidates."""
        return bool(self._running)

    @property
    def waiting(self) -> int:
        """The number of built candidates that wait for a device."""
        return len(self._built)

    def employ(self, room: int | None) -> None:
        """Give idle builders the reference to compute, or their next candidates to build."""
        self._builds.employ(room)

    # -- devices ----------------------------------------------------------------------------

    def assign(self) -> None:
        """Give built candidates to free devices; candidates that failed elsewhere come first."""
        if not self._context.reference.ready:
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

    def _start(self, candidate: FleetCandidateRun, device: DeviceState) -> None:
        context = self._context
        if device.worker is None:
            raise RuntimeError("a device is free that nobody has")
        self._running[device] = candidate
        candidate.tries -= 1
        message = candidate.run_command(context.reference, context.policy, self._best)
        then = partial(self._ran, device)
        context.pool.submit(device.worker, then, message, context.deadlines.run(self._best))

    def _ran(self, device: DeviceState, event: WorkerEvent) -> None:
        """Handle a device that measured a candidate, failed, or was lost."""
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
        report = candidate.fail(device, event)
        self._devices.failed(device, report)
        self._consider(candidate)

    # -- judging ----------------------------------------------------------------------------

    def _consider(self, candidate: FleetCandidateRun) -> None:
        elsewhere = self._devices.elsewhere(candidate.asked)
        self._settle(candidate, candidate.judge(elsewhere=elsewhere))

    def _settle(self, candidate: FleetCandidateRun, verdict: Measurement | Verdict) -> None:
        if verdict is Verdict.AGAIN:
            self._again.append(candidate)
        elif verdict is Verdict.WAIT:
            self._parked.append(candidate)
        elif isinstance(verdict, Measurement):
            self._finish(candidate, verdict)

    def reconsider(self) -> None:
        """Judge waiting candidates again after devices came or went."""
        waiting, self._parked = [*self._parked, *self._again], []
        self._again.clear()
        for candidate in waiting:
            self._consider(candidate)
        self._context.paces.compare()

    def _finish(self, candidate: FleetCandidateRun, measurement: Measurement) -> None:
        self.open -= 1
        if not (measurement.ok and self._becomes_yardstick(candidate, measurement)):
            candidate.discard()
        self.results.append(measurement)
        if measurement.ok:
            self._best = min(self._best, measurement.cost)
            for report in candidate.reports:
                if not report.outside:
                    self._devices.strike(report.device)

    def _becomes_yardstick(self, candidate: FleetCandidateRun, measurement: Measurement) -> bool:
        """Whether devices are compared by their times for this candidate from now on."""
        context = self._context
        return context.paces.measured(
            candidate,
            measurement,
            precise=measurement.cost <= context.policy.slow_factor * self._best,
            target=self.job.task.target,
            reference=context.reference,
        )

    def release(self) -> None:
        """Stop the job's work and remove its exported kernels."""
        if self._context.pool.closed:
            return
        self._builds.release()
        for device, candidate in self._running.items():
            candidate.discard()
            self._devices.abandon(device)
        for candidate in (*self._built, *self._again, *self._parked):
            candidate.discard()
        self._running.clear()
