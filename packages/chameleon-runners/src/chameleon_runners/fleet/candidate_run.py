"""One configuration on its way through a fleet."""

from __future__ import annotations

import shutil
from pathlib import Path

import attrs
from chameleon_core.measurement import FailureKind, Measurement

from chameleon_runners.engine.candidate_run import CandidateRun
from chameleon_runners.engine.context import checked_and_timed
from chameleon_runners.engine.references import Reference
from chameleon_runners.engine.workers import WorkerEvent
from chameleon_runners.fleet.verdicts import (
    FailureReport,
    Reliability,
    Verdict,
    awaited,
    conclusive,
    judge,
)
from chameleon_runners.timing import TimingPolicy
from chameleon_runners.worker.protocol import Message


@attrs.define(kw_only=True, eq=False)
class FleetCandidateRun(CandidateRun):
    """A candidate, what was built of it, and what devices made of that.

    Attributes:
        artifact: the folder that a builder exports it to.
        tries: how often it may still be tried on a device.
        reports: of its failures on devices.
        passed: its measurement, if it succeeded.
        passed_on: the device on which it did.
        passed_after: how many reports there were before.
    """

    artifact: Path
    tries: int
    reports: list[FailureReport] = attrs.field(factory=list)
    passed: Measurement | None = None
    passed_on: str = ""
    passed_after: int = 0

    @property
    def asked(self) -> set[str]:
        """Names of the devices that know it."""
        return {*(report.device for report in self.reports), self.passed_on}

    def fail(
        self, device: str, event: WorkerEvent, *, reliability: Reliability, identity: str
    ) -> FailureReport:
        """Take in that it failed on a device.

        Args:
            device: the device's name.
            event: how it failed.
            reliability: the device's history.
            identity: which device that name stands for now.
        """
        end, reply = event.end, event.reply
        self.run_seconds = event.seconds
        if end is not None:
            failure = self.ended(end, building=False)
        elif reply is not None and reply["status"] == "failed":
            failure = self.failed_reply(reply, event.worker.log)
        else:
            words = reply["message"] if reply is not None else "it did not answer"
            failure = self.failed(FailureKind.DEVICE_LOST, words)
        kind = failure.failure or FailureKind.RUN_ERROR
        report = FailureReport(
            device=device,
            failure=attrs.evolve(failure, message=f"{failure.message} (on {device})"),
            outside=end is not None and end.from_outside,
            back=None if end is not None or awaited(kind) else True,
            reliability=reliability,
            identity=identity,
        )
        self.reports.append(report)
        return report

    def judge(self, *, elsewhere: bool) -> Measurement | Verdict:
        """Decide what becomes of it.

        Args:
            elsewhere: whether there is a device that does not know it.
        """
        if self.passed is None:
            return judge(self.reports, tries=self.tries, elsewhere=elsewhere)
        # Outputs were right once and wrong once before: a third device decides, if there is one.
        if len(self.reports) == self.passed_after:
            return Verdict.AGAIN if elsewhere else self.passed
        last = self.reports[-1]
        outvoted = last.kind is FailureKind.WRONG_OUTPUT and conclusive(self._wrong)
        return last.failure if outvoted else self.passed

    def succeed(self, device: str, *, elsewhere: bool) -> Measurement | Verdict:
        """Take in that it was right and timed on a device.

        A candidate that was wrong elsewhere goes to a third device if there is one. It may be right
        by luck, as programs with races are.
        """
        if self.passed is None:
            self.passed, self.passed_on = self.succeeded(), device
            self.passed_after = len(self.reports)
            if self._wrong and elsewhere and self.tries > 0:
                return Verdict.AGAIN
        return self.passed

    @property
    def _wrong(self) -> list[FailureReport]:
        """Reports of devices on which its outputs were wrong."""
        return [o for o in self.reports if o.kind is FailureKind.WRONG_OUTPUT]

    @property
    def build_command(self) -> Message:
        """Have a worker export it for devices."""
        return {"command": "export", "config": self.config, "artifact": str(self.artifact)}

    def run_command(
        self, reference: Reference, policy: TimingPolicy, best_seconds: float
    ) -> Message:
        """The command to a device's worker that has it run.

        Args:
            reference: its expected outputs.
            policy: the clock policy.
            best_seconds: the best cost so far.
        """
        asked = checked_and_timed(reference, policy, best_seconds)
        return {"command": "run", "artifact": str(self.artifact), **asked}

    def discard(self) -> None:
        """Remove what was built."""
        shutil.rmtree(self.artifact, ignore_errors=True)
