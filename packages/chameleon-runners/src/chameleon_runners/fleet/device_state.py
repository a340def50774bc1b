"""One device of a fleet as the runner sees it: where it is, what it has done, why it is away."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import attrs

from chameleon_runners.engine.workers import Worker, WorkerEvent
from chameleon_runners.fleet.device_ref import DeviceRef
from chameleon_runners.fleet.verdicts import FailureReport, Reliability
from chameleon_runners.worker.protocol import Message


class DeviceStatus(StrEnum):
    """The present occupation of a device."""

    STARTING = "starting"
    CONNECTING = "connecting"
    READY = "ready"
    BUSY = "busy"
    AWAY = "away"
    EXCLUDED = "excluded"


_WORKING = frozenset({DeviceStatus.READY, DeviceStatus.BUSY})
_ARRIVING = frozenset({DeviceStatus.STARTING, DeviceStatus.CONNECTING})


@attrs.define(kw_only=True, eq=False)
class DeviceState:
    """A device and the worker that has it.

    Attributes:
        ref: the device as data.
        status: what it is at.
        worker: who has it; None if nobody does.
        fresh: whether the worker was started for the present attempt to reach the device.
        target: what it was last connected for.
        description: what it says it is.
        identity: which device of several it was when it last answered; empty if it is but one.
        reason: why it is away or excluded; empty if it is neither.
        refusal: the reply that excluded it.
        condemned: why it is to be set aside once its present work is done, unless that succeeds.
        pace: its times, relative to those of the fleet's median device; None if not known.
        out_of_pace: how its times differ from the others'; empty if they do not.
        leaving: whether it is to be set aside for that once its present work is done.
        used: when it last answered, on the pool's clock.
        strikes: candidates in a row that failed here and nowhere else.
        reliability: how often it failed by its own fault.
        failures: attempts in a row to reach it that failed.
        asides: how often it was set aside since a candidate last succeeded here.
        awaiting: reports that depend on whether it works again.
    """

    ref: DeviceRef
    status: DeviceStatus = DeviceStatus.AWAY
    worker: Worker | None = None
    fresh: bool = False
    target: str | None = None
    description: dict[str, Any] = attrs.field(factory=dict)
    identity: str = ""
    reason: str = ""
    refusal: Message | None = None
    condemned: str = ""
    pace: float | None = None
    out_of_pace: str = ""
    leaving: bool = False
    used: float = 0.0
    strikes: int = 0
    reliability: Reliability = attrs.field(factory=Reliability)
    failures: int = 0
    asides: int = 0
    awaiting: list[FailureReport] = attrs.field(factory=list)

    @property
    def name(self) -> str:
        """The device's name."""
        return self.ref.name

    @property
    def actual_name(self) -> str:
        """The name of the device that answers here now: one may answer for several in turn."""
        return self.identity or self.name

    def heard(self, event: WorkerEvent) -> None:
        """Take in which device has answered."""
        if event.reply is not None:
            self.identity = event.reply.get("device", self.identity)

    @property
    def hopeful(self) -> bool:
        """Whether it works, or may do so in a moment."""
        arriving = self.status in _ARRIVING and not self.failures and not self.asides
        return self.status in _WORKING or arriving

    @property
    def unusable(self) -> bool:
        """Whether it is away, or excluded."""
        return self.status in {DeviceStatus.AWAY, DeviceStatus.EXCLUDED}

    @property
    def doomed(self) -> bool:
        """Whether it is to be set aside once its present work is done."""
        return bool(self.condemned) or self.leaving

    def answer(self, *, back: bool) -> bool:
        """Tell those who wait whether it works again; returns whether anybody did."""
        for report in self.awaiting:
            report.back = back
        pending = bool(self.awaiting)
        self.awaiting.clear()
        return pending

    def to_json(self) -> dict[str, Any]:
        """The device for the record."""
        reason = {"reason": self.reason} if self.reason else {}
        pace = {"pace": round(self.pace, 3)} if self.pace is not None else {}
        identity = {"identity": self.identity} if self.identity else {}
        state = {"name": self.name, "state": self.status.value}
        return {**self.description, **identity, **state, **pace, **reason}
