"""The state of one configuration while a fleet builds and measures it."""

from __future__ import annotations

import shutil
from pathlib import Path

import attrs
from chameleon_core.plugin_api import FailureKind, Measurement

from chameleon_runners._engine.context import CandidateRun, measure_fields
from chameleon_runners._engine.references import Reference
from chameleon_runners._engine.workers import WorkerEvent
from chameleon_runners._fleet.device_state import DeviceState
from chameleon_runners._fleet.verdicts import (
    FailureReport,
    Verdict,
    is_candidate_fault,
    judge,
    needs_device_test,
)
from chameleon_runners._timing import TimingPolicy
from chameleon_runners._worker.protocol import Message


@attrs.define(kw_only=True, eq=False)
class FleetCandidateRun(CandidateRun):
    """The state of one configuration while a fleet builds and measures it.

    Attributes:
        artifact: the folder that a builder exports the kernel to.
        tries: the number of runs that are left, on any device.
        success: the measurement, if the candidate succeeded on a device; else None.
        success_device: the name of that device.
        failures_before_success: the number of failures that were reported before.
    """

    artifact: Path
    tries: int
    reports: list[FailureReport] = attrs.field(factory=list)
    success: Measurement | None = None
    success_device: str = ""
    failures_before_success: int = 0

    @property
    def tried_devices(self) -> set[str]:
        """The names of the devices that have tried the candidate."""
        return {*(report.device for report in self.reports), self.success_device}

    def fail(self, device: DeviceState, event: WorkerEvent) -> FailureReport:
        """Record that the candidate failed on a device, and return a report of the failure."""
        end, reply = event.end, event.reply
        self.run_seconds = event.seconds
        if end is not None:
            failure = self.ended(end, building=False)
        elif reply is not None and reply["status"] == "failed":
            failure = self.failed_reply(reply, event.worker.log)
        else:
            failure = self.failed(FailureKind.DEVICE_LOST, event.reason)
        kind = failure.failure or FailureKind.RUN_ERROR
        report = FailureReport(
            device=device.name,
            failure=attrs.evolve(failure, message=f"{failure.message} (on {device.name})"),
            killed_externally=end is not None and end.killed_externally,
            device_recovered=None if end is not None or needs_device_test(kind) else True,
            reliability=device.reliability,
            identity=device.actual_name,
        )
        self.reports.append(report)
        return report

    def judge(self, *, has_other_device: bool) -> Measurement | Verdict:
        """Decide after failures whether the candidate is at fault, or what to do next."""
        if self.success is None:
            return judge(self.reports, tries=self.tries, has_other_device=has_other_device)
        # If one device computed right outputs and another wrong ones, a third device decides.
        if len(self.reports) == self.failures_before_success:
            return Verdict.RETRY if has_other_device else self.success
        last = self.reports[-1]
        outvoted = last.kind is FailureKind.WRONG_OUTPUT and is_candidate_fault(self._wrong)
        return last.failure if outvoted else self.success

    def succeed(self, device: str, *, has_other_device: bool) -> Measurement | Verdict:
        """Record a success on a device, and return the measurement or the next step.

        After wrong outputs on another device, a third device decides, because of possible race
        conditions.
        """
        if self.success is None:
            self.success, self.success_device = self.succeeded(), device
            self.failures_before_success = len(self.reports)
            if self._wrong and has_other_device and self.tries > 0:
                return Verdict.RETRY
        return self.success

    @property
    def _wrong(self) -> list[FailureReport]:
        """The reports of devices on which the candidate's outputs were wrong."""
        return [o for o in self.reports if o.kind is FailureKind.WRONG_OUTPUT]

    @property
    def build_command(self) -> Message:
        """The command that makes a worker export the kernel for devices."""
        return {"command": "export", "config": self.config, "artifact": str(self.artifact)}

    def run_command(
        self, reference: Reference, policy: TimingPolicy, best_seconds: float
    ) -> Message:
        """The command that makes a device's worker check and time the kernel."""
        asked = measure_fields(reference, policy, best_seconds)
        return {"command": "run", "artifact": str(self.artifact), **asked}

    def discard(self) -> None:
        """Remove the folder with the exported kernel."""
        shutil.rmtree(self.artifact, ignore_errors=True)
