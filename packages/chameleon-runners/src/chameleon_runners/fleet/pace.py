"""How fast devices are, compared by a candidate that all of them run now and then.

Times are compared between candidates, so devices of one fleet have to be equally fast. A device
that was clocked down, is hot, shares its processor or is another model is told by a yardstick: a
candidate that one device has measured is measured on every other as well, at the start and once
in fifty measurements of each. Noise makes a reading slower, never faster; so nobody is judged
before all who seem slow have been read three times, and the fastest reading counts.
"""

from __future__ import annotations

import shutil
import statistics
from functools import partial
from pathlib import Path

import attrs
import structlog
from chameleon_core.measurement import Measurement

from chameleon_runners.fleet.lanes import LaneEvent, Switchboard
from chameleon_runners.fleet.options import FleetOptions
from chameleon_runners.fleet.roster import Roster
from chameleon_runners.fleet.shipments import Shipment
from chameleon_runners.fleet.stations import Station
from chameleon_runners.references import Reference
from chameleon_runners.timing import TimingPolicy

_log = structlog.get_logger()

_EVERY = 50
"""Measurements of each device between two readings."""

_READINGS = 3
"""Readings of a device that seems slow before anybody is judged."""


@attrs.frozen(kw_only=True, eq=False)
class Yardstick:
    """A candidate that every device is to run.

    Attributes:
        target: that it was built for.
        config: its knob indices.
        artifact: the folder it was exported to.
        reference: its expected outputs.
    """

    target: str
    config: tuple[int, ...]
    artifact: Path
    reference: Reference


class Paces:
    """Reads how fast the devices are, and tells the roster who differs from the others.

    Readings go on between batches: nobody waits for one but its device.

    Args:
        switchboard: the lanes.
        roster: the devices.
        options: the runner's options.
        policy: the clock policy.
    """

    def __init__(
        self,
        switchboard: Switchboard,
        roster: Roster,
        options: FleetOptions,
        policy: TimingPolicy,
    ) -> None:
        self._switchboard = switchboard
        self._roster = roster
        self._options = options
        self._policy = attrs.asdict(policy)
        self._yardstick: Yardstick | None = None
        self._readings: dict[str, list[float]] = {}
        self._suspects: set[str] = set()
        self._under_way = 0
        self._measured = 0

    # -- the yardstick ----------------------------------------------------------------------

    def measured(
        self,
        shipment: Shipment,
        measurement: Measurement,
        *,
        precise: bool,
        target: str,
        reference: Reference,
    ) -> bool:
        """Hear of a candidate that was measured, and make it the yardstick if it is time for one.

        Args:
            shipment: the candidate.
            measurement: its measurement, which is the reading of the device that made it.
            precise: whether it was timed as fast candidates are; others are timed in haste.
            target: that it was built for.
            reference: its expected outputs.

        Returns:
            Whether it is the yardstick now, and its artifact is to be kept.
        """
        self._measured += 1
        measurer = self._roster.stations.get(shipment.passed_on)
        if not (precise and measurer is not None and self._wanted(target)):
            return False
        if self._yardstick is not None:
            shutil.rmtree(self._yardstick.artifact, ignore_errors=True)
        self._yardstick = Yardstick(
            target=target,
            config=shipment.config,
            artifact=shipment.artifact,
            reference=reference,
        )
        self._measured = 0
        self._suspects.clear()
        self._readings = {measurer.device: [min(measurement.seconds)]}
        return True

    def _wanted(self, target: str) -> bool:
        """Whether it is time for a new yardstick."""
        devices = len(self._roster.stations)
        if self._options.pace_tolerance is None or devices == 1 or self._under_way:
            return False
        useless = self._yardstick is None or self._yardstick.target != target
        return useless or self._measured >= _EVERY * devices

    # -- readings ---------------------------------------------------------------------------

    def due(self, station: Station) -> bool:
        """Whether a device is to run the yardstick before anything else."""
        if self._yardstick is None or self._yardstick.target != station.target:
            return False
        return station.device not in self._readings or station.device in self._suspects

    def read(self, station: Station) -> None:
        """Have a device, which was taken, run the yardstick; it is free again afterwards."""
        yardstick = self._yardstick
        if yardstick is None or station.lane is None:
            raise RuntimeError("a device is read that nobody has, or with nothing")
        shipment = Shipment(config=yardstick.config, slot=0, artifact=yardstick.artifact, tries=0)
        # The best is not told: however slow the device, the reading is to be precise.
        message = shipment.run_command(yardstick.reference, self._policy, float("inf"))
        self._under_way += 1
        then = partial(self._heard, station, shipment)
        self._switchboard.submit(station.lane, then, message, self._options.run_timeout)

    def _heard(self, station: Station, shipment: Shipment, event: LaneEvent) -> None:
        """A device has run the yardstick, or failed to, though it is known to be good."""
        self._under_way -= 1
        station.heard(event)
        reply = event.reply
        if reply is not None and reply["status"] == "ok":
            self._readings.setdefault(station.device, []).append(min(reply["seconds"]))
            self.compare()
            self._roster.finished(station)
            return
        opinion = shipment.fail(
            station.name, event, witness=station.witness, identity=station.device
        )
        if not opinion.outside:
            self._readings.setdefault(station.device, [])
            self._suspects.discard(station.device)
            self._roster.strike(station.name)
        self._roster.failed(station, opinion)

    # -- judging ----------------------------------------------------------------------------

    def compare(self) -> None:
        """Judge the devices that there are, once there are readings enough of all of them."""
        tolerance = self._options.pace_tolerance
        working = [station for station in self._roster.stations.values() if station.hopeful]
        if tolerance is None or any(one.device not in self._readings for one in working):
            return
        seconds = {one: min(some) for one in working if (some := self._readings[one.device])}
        limit = tolerance * min(seconds.values(), default=0.0)
        self._suspects = {
            one.device
            for one, own in seconds.items()
            if own > limit and len(self._readings[one.device]) < _READINGS
        }
        if self._suspects or not seconds:
            return
        # Of two that differ, the slower one is to blame.
        median = statistics.median_low(seconds.values())
        for station, own in seconds.items():
            station.pace = own / median
            if 1.0 / tolerance <= station.pace <= tolerance:
                station.out_of_pace = ""
            else:
                self._differs(station, station.pace)

    def _differs(self, station: Station, ratio: float) -> None:
        if not station.out_of_pace:
            _log.warning("device_out_of_pace", device=station.name, ratio=round(ratio, 3))
        station.out_of_pace = f"its times are {ratio:.2f} times those of the fleet's median device"
        if self._options.pace_aside:
            # When it is back it is read again, before it gets any work.
            self._readings.pop(station.device, None)
            self._roster.condemn(station)
