"""A device of a fleet: how a worker makes it, its status, history, and why it is unusable."""

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
        name: The device's name in messages and records. Two references with one name mean the same
            device.
        device: The name of a class of ``chameleon_core._stages.Device``, with its options. One
            worker process creates the object from them and has the device to itself.
        shared: Whether builders may use the device's CPU. If so, nothing is built while any device
            is busy.
        here: Whether the device is the CPU of this machine, so that a search would disturb its
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
_ARRIVING = frozenset({DeviceStatus.STARTING, DeviceStatus.CONNECTING})


@attrs.define(kw_only=True, eq=False)
class DeviceState:
    """The state of one device and its worker.

    Attributes:
        worker: The worker that controls the device, or None.
        fresh: Whether the worker was started just for the current attempt to connect.
        identity: The actual device that answered last, if several share one name; otherwise empty.
        reason: Why the device is away or excluded; otherwise empty.
        condemned: The reason why the device will be set aside after its current work; empty if it
            will not. A candidate that succeeds clears the reason.
        pace: The ratio of the device's times to the times of the fleet's median device; None if
            unknown.
        out_of_pace: A description of how the device's times differ too much from the median
            device's. Empty if they do not.
        leaving: Whether the device will be set aside after its current work because it is too slow
            or too fast.
        used: The time of the device's last answer, on the pool's clock.
        strikes: The number of candidates in a row that failed on this device and succeeded on
            another.
        reliability: The numbers of candidates that succeeded on the device, and that failed by the
            device's fault.
        failures: The number of failed connections in a row.
        asides: The number of times that the device was set aside since its last success.
        awaiting: Reports of failures that can be judged only when it is known whether the device
            works again.
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
        """The name of the device that answered last."""
        return self.identity or self.name

    def heard(self, event: WorkerEvent) -> None:
        """Record which device answered."""
        if event.reply is not None:
            self.identity = event.reply.get("device", self.identity)

    @property
    def hopeful(self) -> bool:
        """Whether the device works, or is being connected for the first time."""
        arriving = self.status in _ARRIVING and not self.failures and not self.asides
        return self.status in _WORKING or arriving

    @property
    def unusable(self) -> bool:
        """Whether the device is away or excluded."""
        return self.status in {DeviceStatus.AWAY, DeviceStatus.EXCLUDED}

    @property
    def doomed(self) -> bool:
        """Whether the device will be set aside after its current work."""
        return bool(self.condemned) or self.leaving

    def answer(self, *, back: bool) -> bool:
        """Tell all pending reports of failures whether this device works again."""
        for report in self.awaiting:
            report.back = back
        pending = bool(self.awaiting)
        self.awaiting.clear()
        return pending

    def to_json(self) -> dict[str, Any]:
        """A description of the device for the run's records."""
        reason = {"reason": self.reason} if self.reason else {}
        pace = {"pace": round(self.pace, 3)} if self.pace is not None else {}
        identity = {"identity": self.identity} if self.identity else {}
        state = {"name": self.name, "state": self.status.value}
        return {**self.description, **identity, **state, **pace, **reason}
