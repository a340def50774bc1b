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
        paces: compares how fast the devices are.
    """

    options: FleetOptions
    devices: DevicePool
    paces: PaceMonitor
    folder: Path

    def candidate(self, config: Sequence[int], number: int) -> FleetCandidateRun:
        """The initial state of a configuration."""
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
        open: the number of candidates that have no result yet.
        results: the results that the stream has not returned yet.
    """

    def __init__(self, job: MeasureJob, *, context: FleetContext, numbers: Iterator[int]) -> None:
        self.job = job
        self.open = len(job.configs)
        self.results: deque[Measurement] = deque()
        self._context = context
        self._devices = context.devices
        self._best = job.best_seconds
        self._built: deque[FleetCandidateRun] = deque()
        self._retries: deque[FleetCandidateRun] = deque()
        self._undecided: list[FleetCandidateRun] = []
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

    def dispatch(self, room: int | None) -> None:
        """Give idle builders the reference to compute, or their next candidates to build."""
        self._builds.dispatch(room)

    def assign(self) -> None:
        """Give built candidates to free devices; candidates that failed elsewhere come first."""
        if not self._context.reference.ready:
            return
        for _ in range(min(_LOOK_AHEAD, len(self._retries))):
            candidate = self._retries.popleft()
            asked = candidate.tried_devices
            avoid = asked if self._devices.has_other_device(asked) else ()
            device = self._devices.take(avoid)
            if device is None:
                self._retries.append(candidate)
            else:
                self._start(candidate, device)
        while self._built and (device := self._devices.take()) is not None:
            if self._context.paces.due(device):
                self._context.paces.time_benchmark(device)
            else:
                self._start(self._built.popleft(), device)

    def _start(self, candidate: FleetCandidateRun, device: DeviceState) -> None:
        context = self._context
        if device.worker is None:
            raise RuntimeError("a free device has no worker")
        self._running[device] = candidate
        candidate.tries -= 1
        message = candidate.run_command(context.reference, context.policy, self._best)
        then = partial(self._ran, device)
        context.pool.submit(device.worker, then, message, context.deadlines.run(self._best))

    def _ran(self, device: DeviceState, event: WorkerEvent) -> None:
        """Handle a device that measured a candidate, failed, or was lost."""
        candidate = self._running.pop(device)
        device.record_identity(event)
        reply = event.reply
        if reply is not None and reply["status"] == "ok":
            candidate.run_seconds = event.seconds
            candidate.repeats, candidate.error = tuple(reply["seconds"]), reply["error"]
            self._context.deadlines.ran(event.seconds)
            self._devices.succeeded(device)
            self._devices.finished(device)
            has_other_device = self._devices.has_other_device(
                {*candidate.tried_devices, device.name}
            )
            self._settle(
                candidate, candidate.succeed(device.name, has_other_device=has_other_device)
            )
            return
        report = candidate.fail(device, event)
        self._devices.failed(device, report)
        self._judge_failure(candidate)

    def _judge_failure(self, candidate: FleetCandidateRun) -> None:
        has_other_device = self._devices.has_other_device(candidate.tried_devices)
        self._settle(candidate, candidate.judge(has_other_device=has_other_device))

    def _settle(self, candidate: FleetCandidateRun, verdict: Measurement | Verdict) -> None:
        if verdict is Verdict.RETRY:
            self._retries.append(candidate)
        elif verdict is Verdict.WAIT:
            self._undecided.append(candidate)
        elif isinstance(verdict, Measurement):
            self._finish(candidate, verdict)

    def rejudge(self) -> None:
        """Judge undecided candidates again after devices came or went."""
        waiting, self._undecided = [*self._undecided, *self._retries], []
        self._retries.clear()
        for candidate in waiting:
            self._judge_failure(candidate)
        self._context.paces.compare()

    def _finish(self, candidate: FleetCandidateRun, measurement: Measurement) -> None:
        self.open -= 1
        if not (measurement.ok and self._becomes_benchmark(candidate, measurement)):
            candidate.discard()
        self.results.append(measurement)
        if measurement.ok:
            self._best = min(self._best, measurement.cost)
            for report in candidate.reports:
                if not report.killed_externally:
                    self._devices.strike(report.device)

    def _becomes_benchmark(self, candidate: FleetCandidateRun, measurement: Measurement) -> bool:
        """Whether devices are compared by their times for this candidate from now on."""
        context = self._context
        return context.paces.offer(
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
            self._devices.restart_worker(device)
        for candidate in (*self._built, *self._retries, *self._undecided):
            candidate.discard()
        self._running.clear()
