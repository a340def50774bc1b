"""How a device is reached: a worker is started, it connects, and the device tests itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import attrs
import structlog

from chameleon_runners.engine.workers import Listener, WorkerEvent, WorkerPool
from chameleon_runners.fleet.availability import Availability
from chameleon_runners.fleet.device_state import DeviceState, DeviceStatus
from chameleon_runners.fleet.options import FleetOptions
from chameleon_runners.worker.protocol import Message

_log = structlog.get_logger()

LONGEST_PAUSE = 60.0
"""Seconds between two attempts to reach a device, at most."""


@attrs.define(eq=False)
class Connector:
    """Reaches devices, and tries again those that cannot be reached.

    Attributes:
        pool: starts the workers that have the devices.
        options: the runner's options.
        availability: where it is told what becomes of a device.
        arrived: called with each device that works.
        target: what devices are connected for; None while that is not known.
    """

    _pool: WorkerPool
    _options: FleetOptions
    _availability: Availability
    _arrived: Callable[[DeviceState], None]
    target: str | None = attrs.field(default=None, init=False)

    def reach(self, device: DeviceState) -> None:
        """Begin to reach a device, with the worker it has, or a fresh one."""
        device.fresh = device.worker is None or not device.worker.alive
        if not device.fresh:
            self.connect(device)
            return
        self._availability.move(device, DeviceStatus.STARTING)
        device.worker = self._pool.start_worker(
            partial(self._heard, device), preload=device.ref.device.factory
        )

    def drop_worker(self, device: DeviceState) -> None:
        """End the worker that has a device."""
        if device.worker is not None:
            self._pool.end_worker(device.worker)
            device.worker = None

    def connect(self, device: DeviceState) -> None:
        """Have the worker of a device connect to it for the present target."""
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
        """Have a device test itself."""
        self._availability.move(device, DeviceStatus.CONNECTING)
        self._ask(device, partial(self._tested, device), {"command": "probe"})

    def _heard(self, device: DeviceState, event: WorkerEvent) -> None:
        """A worker is ready for its first command, or ended without having one."""
        if event.worker is not device.worker:
            return
        if event.end is None:
            if self.target is not None:
                self.connect(device)
        elif device.status is DeviceStatus.READY:
            device.worker = None
            self.reach(device)
        elif device.status is DeviceStatus.STARTING:
            self._stumbled(device, event.end.explain())
        # Otherwise it was given something to do meanwhile, and who waits for that is told.

    def _ask(self, device: DeviceState, then: Listener, message: Message) -> None:
        if device.worker is not None:
            timeout = self._options.connect_timeout
            self._pool.submit(device.worker, then, message, timeout)

    def _connected(self, device: DeviceState, event: WorkerEvent) -> None:
        device.heard(event)
        reply = event.reply
        if reply is None or reply["status"] == "lost":
            self._stumbled(device, event.reason)
        elif reply["status"] != "ok":
            self._exclude(device, reply)
        elif device.target != self.target:
            self.connect(device)
        else:
            device.description = reply["description"]
            self.test(device)

    def _tested(self, device: DeviceState, event: WorkerEvent) -> None:
        device.heard(event)
        if event.reply is None or event.reply["status"] != "ok":
            self._stumbled(device, event.reason)
        elif device.target != self.target:
            self.connect(device)
        else:
            self._ready(device)

    def _ready(self, device: DeviceState) -> None:
        if device.reason:
            _log.info("device_is_back", device=device.name, was=device.reason)
        awaited = device.answer(back=True)
        self._availability.changed |= awaited or bool(device.reason)
        self._availability.reached = True
        device.failures, device.reason, device.refusal = 0, "", None
        self._arrived(device)

    def _stumbled(self, device: DeviceState, reason: str) -> None:
        """An attempt to reach a device failed: once more with a fresh worker, then later."""
        self.drop_worker(device)
        if not device.fresh:
            self.reach(device)
            return
        device.failures += 1
        if not device.reason:
            _log.warning("device_lost", device=device.name, reason=reason)
        pause = self._options.probe_after * 2.0 ** min(device.failures - 1, 10)
        self._availability.leave(device, DeviceStatus.AWAY, reason)
        due = self._pool.now() + min(pause, LONGEST_PAUSE)
        self._availability.remind(device, due)

    def _exclude(self, device: DeviceState, refusal: Message) -> None:
        device.refusal = refusal
        self.drop_worker(device)
        self._availability.leave(device, DeviceStatus.EXCLUDED, refusal["message"])
        _log.warning("device_excluded", device=device.name, reason=device.reason)
