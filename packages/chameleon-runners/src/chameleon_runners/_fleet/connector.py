"""Connects devices: a worker starts, connects to its device, and the device is tested."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import attrs
import structlog

from chameleon_runners._engine.workers import Listener, WorkerEvent, WorkerPool
from chameleon_runners._fleet.availability import Availability
from chameleon_runners._fleet.device_state import DeviceState, DeviceStatus
from chameleon_runners._fleet.options import FleetOptions
from chameleon_runners._worker.protocol import Message

_log = structlog.get_logger()

LONGEST_PAUSE = 60.0
"""The longest pause between two attempts to connect a device, in seconds."""


@attrs.define(eq=False)
class Connector:
    """Connects and tests devices; if a device fails, it is tried again after a pause.

    Attributes:
        target: the target that devices are connected for; None until it is known.
    """

    _pool: WorkerPool
    _options: FleetOptions
    _availability: Availability
    _on_ready: Callable[[DeviceState], None]
    target: str | None = attrs.field(default=None, init=False)

    def start_connecting(self, device: DeviceState) -> None:
        """Connect a device through its worker, or a new one if the worker has ended."""
        device.new_worker = device.worker is None or not device.worker.alive
        if not device.new_worker:
            self.connect(device)
            return
        self._availability.move(device, DeviceStatus.STARTING)
        device.worker = self._pool.start_worker(
            partial(self._heard, device), preload=device.ref.device.factory
        )

    def drop_worker(self, device: DeviceState) -> None:
        """End the worker of a device."""
        if device.worker is not None:
            self._pool.end_worker(device.worker)
            device.worker = None

    def connect(self, device: DeviceState) -> None:
        """Send a device's worker the command to connect the device for the current target."""
        self._availability.move(device, DeviceStatus.CONNECTING)
        device.target = self.target
        stage = device.ref.device
        message = {
            "command": "connect",
            "factory": stage.factory,
            "options": stage.options,
            "target": self.target,
        }
        self._ask(device, partial(self._connected, device), message)

    def test(self, device: DeviceState) -> None:
        """Let a device run its self-test."""
        self._availability.move(device, DeviceStatus.CONNECTING)
        self._ask(device, partial(self._tested, device), {"command": "probe"})

    def _heard(self, device: DeviceState, event: WorkerEvent) -> None:
        """Handle a worker that is ready for its first command, or that ended while idle."""
        if event.worker is not device.worker:
            return
        if event.end is None:
            if self.target is not None:
                self.connect(device)
        elif device.status is DeviceStatus.READY:
            device.worker = None
            self.start_connecting(device)
        elif device.status is DeviceStatus.STARTING:
            self._attempt_failed(device, event.end.explain())
        # In other states, the listener of the device's work handles the end.

    def _ask(self, device: DeviceState, then: Listener, message: Message) -> None:
        if device.worker is not None:
            timeout = self._options.connect_timeout
            self._pool.submit(device.worker, then, message, timeout)

    def _connected(self, device: DeviceState, event: WorkerEvent) -> None:
        device.record_identity(event)
        reply = event.reply
        if reply is None or reply["status"] == "lost":
            self._attempt_failed(device, event.reason)
        elif reply["status"] != "ok":
            self._exclude(device, reply)
        elif device.target != self.target:
            self.connect(device)
        else:
            device.description = reply["description"]
            self.test(device)

    def _tested(self, device: DeviceState, event: WorkerEvent) -> None:
        device.record_identity(event)
        if event.reply is None or event.reply["status"] != "ok":
            self._attempt_failed(device, event.reason)
        elif device.target != self.target:
            self.connect(device)
        else:
            self._ready(device)

    def _ready(self, device: DeviceState) -> None:
        if device.reason:
            _log.info("device_is_back", device=device.name, was=device.reason)
        had_reports = device.resolve_reports(recovered=True)
        self._availability.changed |= had_reports or bool(device.reason)
        self._availability.ever_connected = True
        device.failures, device.reason, device.refusal = 0, "", None
        self._on_ready(device)

    def _attempt_failed(self, device: DeviceState, reason: str) -> None:
        """Try at once with a new worker, or later after a pause."""
        self.drop_worker(device)
        if not device.new_worker:
            self.start_connecting(device)
            return
        device.failures += 1
        if not device.reason:
            _log.warning("device_lost", device=device.name, reason=reason)
        pause = self._options.probe_after * 2.0 ** min(device.failures - 1, 10)
        self._availability.mark_unusable(device, DeviceStatus.AWAY, reason)
        due = self._pool.now() + min(pause, LONGEST_PAUSE)
        self._availability.schedule_retry(device, due)

    def _exclude(self, device: DeviceState, refusal: Message) -> None:
        device.refusal = refusal
        self.drop_worker(device)
        self._availability.mark_unusable(device, DeviceStatus.EXCLUDED, refusal["message"])
        _log.warning("device_excluded", device=device.name, reason=device.reason)
