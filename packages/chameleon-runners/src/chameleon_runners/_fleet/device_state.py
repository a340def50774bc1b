"""The state of a device of a fleet: its status, its history, and why it is unusable."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import attrs
from chameleon_core.plugin_api import StageRef

from chameleon_runners._engine.workers import Worker, WorkerEvent
from chameleon_runners._fleet.verdicts import FailureReport, Reliability
from chameleon_runners._worker.protocol import Message


@attrs.frozen(kw_only=True)
class DeviceRef:
    """One device of a fleet.

    Attributes:
        name: the device's name in messages and records, which identifies it.
        device: a class of ``chameleon_core.stages.Device`` with its options, of which one worker
            process makes the object.
        shared: whether builders may use the device's CPU. If so, nothing is built while a device is
            busy.
        here: whether the device is the CPU of this machine, so that a search would disturb its
            times.
    """

    name: str
    device: StageRef
    shared: bool = False
    here: bool = False


class DeviceStatus(StrEnum):
    """The current status of a device."""

    STARTING = "starting"
    CONNECTING = "connecting"
    READY = "ready"
    BUSY = "busy"
    AWAY = "away"
    EXCLUDED = "excluded"


_WORKING = frozenset({DeviceStatus.READY, DeviceStatus.BUSY})
_CONNECTING = frozenset({DeviceStatus.STARTING, DeviceStatus.CONNECTING})


@attrs.define(kw_only=True, eq=False)
class DeviceState:
    """The state of one device and its worker.

    Attributes:
        new_worker: whether the worker was started for the current attempt to connect.
        identity: the actual device that answered last, if several share one name; otherwise empty.
        reason: why the device is away or excluded; otherwise empty.
        quarantine_reason: why the device is quarantined after its current work; otherwise empty. A
            candidate that succeeds clears it.
        pace: the ratio of the device's times to those of the fleet's median device; None if
            unknown.
        out_of_pace: how the device's times differ too much from the median device's; otherwise
            empty.
        quarantine_pending: whether the device is quarantined after its current work for its pace.
        last_used: the time of the device's last answer, on the pool's clock.
        strikes: the number of candidates in a row that failed here and succeeded on another device.
        failures: the number of failed connections in a row.
        quarantines: the number of quarantines since the last success.
        pending_reports: failures that can be judged only when it is known whether the device works.
    """

    ref: DeviceRef
    status: DeviceStatus = DeviceStatus.AWAY
    worker: Worker | None = None
    new_worker: bool = False
    target: str | None = None
    description: dict[str, Any] = attrs.field(factory=dict)
    identity: str = ""
    reason: str = ""
    refusal: Message | None = None
    quarantine_reason: str = ""
    pace: float | None = None
    out_of_pace: str = ""
    quarantine_pending: bool = False
    last_used: float = 0.0
    strikes: int = 0
    reliability: Reliability = attrs.field(factory=Reliability)
    failures: int = 0
    quarantines: int = 0
    pending_reports: list[FailureReport] = attrs.field(factory=list)

    @property
    def name(self) -> str:
        """The device's name."""
        return self.ref.name

    @property
    def actual_name(self) -> str:
        """The name of the device that answered last."""
        return self.identity or self.name

    def record_identity(self, event: WorkerEvent) -> None:
        """Record which device answered."""
        if event.reply is not None:
            self.identity = event.reply.get("device", self.identity)

    @property
    def may_work(self) -> bool:
        """Whether the device works, or is being connected for the first time."""
        arriving = self.status in _CONNECTING and not self.failures and not self.quarantines
        return self.status in _WORKING or arriving

    @property
    def unusable(self) -> bool:
        """Whether the device is away or excluded."""
        return self.status in {DeviceStatus.AWAY, DeviceStatus.EXCLUDED}

    @property
    def should_quarantine(self) -> bool:
        """Whether the device is quarantined after its current work."""
        return bool(self.quarantine_reason) or self.quarantine_pending

    def resolve_reports(self, *, recovered: bool) -> bool:
        """Tell pending reports whether the device works; return whether there were any."""
        for report in self.pending_reports:
            report.device_recovered = recovered
        pending = bool(self.pending_reports)
        self.pending_reports.clear()
        return pending

    def to_json(self) -> dict[str, Any]:
        """A description of the device for the run's records."""
        reason = {"reason": self.reason} if self.reason else {}
        pace = {"pace": round(self.pace, 3)} if self.pace is not None else {}
        identity = {"identity": self.identity} if self.identity else {}
        state = {"name": self.name, "state": self.status.value}
        return {**self.description, **identity, **state, **pace, **reason}
