"""The state of one configuration while a fleet builds and measures it."""

from __future__ import annotations

import shutil
from pathlib import Path

import attrs
from chameleon_core.plugin_api import FailureKind, Measurement

from chameleon_runners._engine.context import CandidateRun, checked_and_timed
from chameleon_runners._engine.references import Reference
from chameleon_runners._engine.workers import WorkerEvent
from chameleon_runners._fleet.device_state import DeviceState
from chameleon_runners._fleet.verdicts import (
    FailureReport,
    Verdict,
    awaited,
    conclusive,
    judge,
)
from chameleon_runners._timing import TimingPolicy
from chameleon_runners._worker.protocol import Message


@attrs.define(kw_only=True, eq=False)
class FleetCandidateRun(CandidateRun):
    """The state of one configuration while a fleet builds and measures it.

    Attributes:
        artifact: The folder that a builder exports the kernel to.
        tries: How many more times the candidate may be run, on any device.
        passed: The measurement, if the candidate succeeded on a device; else None.
        passed_on: The name of the device on which the candidate succeeded.
        passed_after: The number of failures that were reported before the success on ``passed_on``.
    """

    artifact: Path
    tries: int
    reports: list[FailureReport] = attrs.field(factory=list)
    passed: Measurement | None = None
    passed_on: str = ""
    passed_after: int = 0

    @property
    def asked(self) -> set[str]:
        """The names of the devices that have tried the candidate."""
        return {*(report.device for report in self.reports), self.passed_on}

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
            outside=end is not None and end.from_outside,
            back=None if end is not None or awaited(kind) else True,
            reliability=device.reliability,
            identity=device.actual_name,
        )
        self.reports.append(report)
        return report

    def judge(self, *, elsewhere: bool) -> Measurement | Verdict:
        """Decide after failures whether the candidate is at fault, or what to do next."""
        if self.passed is None:
            return judge(self.reports, tries=self.tries, elsewhere=elsewhere)
        # Outputs were right once and wrong once before: a third device decides, if there is one.
        if len(self.reports) == self.passed_after:
            return Verdict.AGAIN if elsewhere else self.passed
        last = self.reports[-1]
        outvoted = last.kind is FailureKind.WRONG_OUTPUT and conclusive(self._wrong)
        return last.failure if outvoted else self.passed

    def succeed(self, device: str, *, elsewhere: bool) -> Measurement | Verdict:
        """Record a success on a device, and return the measurement or what to do next.

        The success may be luck, because the program may have a race condition.
        """
        if self.passed is None:
            self.passed, self.passed_on = self.succeeded(), device
            self.passed_after = len(self.reports)
            if self._wrong and elsewhere and self.tries > 0:
                return Verdict.AGAIN
        return self.passed

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
        asked = checked_and_timed(reference, policy, best_seconds)
        return {"command": "run", "artifact": str(self.artifact), **asked}

    def discard(self) -> None:
        """Remove the folder with the exported kernel."""
        shutil.rmtree(self.artifact, ignore_errors=True)
