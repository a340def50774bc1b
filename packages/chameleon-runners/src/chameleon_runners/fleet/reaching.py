"""How a device is reached: a lane is started, it connects, and the device tests itself."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import structlog

from chameleon_runners.fleet.lanes import LaneEvent, Listener, Switchboard
from chameleon_runners.fleet.options import FleetOptions
from chameleon_runners.fleet.presence import Presence
from chameleon_runners.fleet.stations import State, Station
from chameleon_runners.worker.protocol import Message

_log = structlog.get_logger()

LONGEST_PAUSE = 60.0
"""Seconds between two attempts to reach a device, at most."""


class Reaching:
    """Reaches devices, and tries again those that cannot be reached.

    Args:
        switchboard: starts the lanes that have the devices.
        options: the runner's options.
        presence: where it is told what becomes of a device.
        arrived: told of each device that works.

    Attributes:
        target: what devices are connected for; None while that is not known.
    """

    def __init__(
        self,
        switchboard: Switchboard,
        options: FleetOptions,
        presence: Presence,
        arrived: Callable[[Station], None],
    ) -> None:
        self._switchboard = switchboard
        self._options = options
        self._presence = presence
        self._arrived = arrived
        self.target: str | None = None

    def reach(self, station: Station) -> None:
        """Begin to reach a device, with the lane it has, or a fresh one."""
        station.fresh = station.lane is None or not station.lane.alive
        if not station.fresh:
            self.connect(station)
            return
        self._presence.move(station, State.STARTING)
        station.lane = self._switchboard.hire(
            partial(self._heard, station), preload=station.place.device.factory
        )

    def drop_lane(self, station: Station) -> None:
        """End the lane that has a device."""
        if station.lane is not None:
            self._switchboard.dismiss(station.lane)
            station.lane = None

    def connect(self, station: Station) -> None:
        """Have the lane of a device connect to it for the present target."""
        self._presence.move(station, State.CONNECTING)
        station.target = self.target
        device = station.place.device
        message = {
            "command": "connect",
            "factory": device.factory,
            "options": device.options,
            "target": self.target,
        }
        self._ask(station, partial(self._connected, station), message)

    def test(self, station: Station) -> None:
        """Have a device test itself."""
        self._presence.move(station, State.CONNECTING)
        self._ask(station, partial(self._tested, station), {"command": "probe"})

    def _heard(self, station: Station, event: LaneEvent) -> None:
        """A lane is ready for its first command, or ended without having one."""
        if event.lane is not station.lane:
            return
        if event.end is None:
            if self.target is not None:
                self.connect(station)
        elif station.state is State.READY:
            station.lane = None
            self.reach(station)
        elif station.state is State.STARTING:
            self._stumbled(station, event.end.explain())
        # Otherwise it was given something to do meanwhile, and who waits for that is told.

    def _ask(self, station: Station, then: Listener, message: Message) -> None:
        if station.lane is not None:
            timeout = self._options.connect_timeout
            self._switchboard.submit(station.lane, then, message, timeout)

    def _connected(self, station: Station, event: LaneEvent) -> None:
        station.heard(event)
        reply = event.reply
        if reply is None or reply["status"] == "lost":
            self._stumbled(station, _words(event))
        elif reply["status"] != "ok":
            self._exclude(station, reply)
        elif station.target != self.target:
            self.connect(station)
        else:
            station.description = reply["description"]
            self.test(station)

    def _tested(self, station: Station, event: LaneEvent) -> None:
        station.heard(event)
        if event.reply is None or event.reply["status"] != "ok":
            self._stumbled(station, _words(event))
        elif station.target != self.target:
            self.connect(station)
        else:
            self._ready(station)

    def _ready(self, station: Station) -> None:
        if station.reason:
            _log.info("device_is_back", device=station.name, was=station.reason)
        awaited = station.answer(back=True)
        self._presence.changed |= awaited or bool(station.reason)
        self._presence.reached = True
        station.failures, station.reason, station.refusal = 0, "", None
        self._arrived(station)

    def _stumbled(self, station: Station, reason: str) -> None:
        """An attempt to reach a device failed: once more with a fresh lane, then later."""
        self.drop_lane(station)
        if not station.fresh:
            self.reach(station)
            return
        station.failures += 1
        if not station.reason:
            _log.warning("device_lost", device=station.name, reason=reason)
        pause = self._options.probe_after * 2.0 ** min(station.failures - 1, 10)
        self._presence.leave(station, State.AWAY, reason)
        due = self._switchboard.now() + min(pause, LONGEST_PAUSE)
        self._presence.remind(station, due)

    def _exclude(self, station: Station, refusal: Message) -> None:
        station.refusal = refusal
        self.drop_lane(station)
        self._presence.leave(station, State.EXCLUDED, refusal["message"])
        _log.warning("device_excluded", device=station.name, reason=station.reason)


def _words(event: LaneEvent) -> str:
    if event.reply is not None:
        return str(event.reply["message"])
    return event.end.explain() if event.end is not None else "it did not answer"
