"""All devices of a fleet: listed, reached, lent out, tested, set aside, let go."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial

import structlog
from chameleon_core.errors import ChameleonError
from chameleon_core.measurement import FailureKind

from chameleon_runners.fleet.lanes import LaneEvent, Switchboard
from chameleon_runners.fleet.options import FleetOptions
from chameleon_runners.fleet.patience import Patience
from chameleon_runners.fleet.places import Place
from chameleon_runners.fleet.presence import Presence
from chameleon_runners.fleet.reaching import LONGEST_PAUSE, Reaching
from chameleon_runners.fleet.stations import State, Station
from chameleon_runners.fleet.verdicts import Opinion, Witness
from chameleon_runners.worker.protocol import Message

_log = structlog.get_logger()

_ASIDE_PAUSES = 8.0
"""A device that was set aside is left alone for so many times the pause after a loss."""

_BREAKING = frozenset({FailureKind.RUN_ERROR, FailureKind.OUT_OF_MEMORY})
"""Failures that may leave a device unable to run anything else."""

_STALE_SECONDS = 10.0
"""A device that was idle for so long is tested before it gets work: sessions expire."""

_FAREWELL_SECONDS = 1.0

_LIST_SECONDS = 10.0
"""How often the devices are listed anew."""


class Roster:
    """Knows the devices, lends out who is free, and hears how they did.

    Args:
        switchboard: starts the lanes that have the devices.
        options: the runner's options.
        places: lists the devices there are now.
    """

    def __init__(
        self,
        switchboard: Switchboard,
        options: FleetOptions,
        places: Callable[[], Sequence[Place]],
    ) -> None:
        self._switchboard = switchboard
        self._options = options
        self._places = places
        self._patience = Patience(options.patience)
        self._presence = Presence()
        self._fleet = Witness()
        self._reaching = Reaching(switchboard, options, self._presence, self.finished)
        self._list_due: float | None = None

    # -- who there is -----------------------------------------------------------------------

    @property
    def stations(self) -> dict[str, Station]:
        """Every device by its name."""
        return self._presence.stations

    @property
    def hopeful(self) -> int:
        """How many devices work, or may do so in a moment."""
        return self._presence.hopeful

    @property
    def reached(self) -> bool:
        """Whether a device was reached for the present target."""
        return self._presence.reached

    def elsewhere(self, names: Collection[str]) -> bool:
        """Whether there is a hopeful device besides the named ones."""
        return self._presence.elsewhere(names)

    def take(self, avoid: Collection[str] = ()) -> Station | None:
        """A free device, which is busy from now on; None where there is none."""
        return self._presence.take(avoid)

    def news(self) -> bool:
        """Whether devices came or went since this was last asked."""
        changed, self._presence.changed = self._presence.changed, False
        return changed

    # -- listing ----------------------------------------------------------------------------

    def start(self) -> None:
        """List the devices and start their lanes, before it is known what they are for.

        Raises:
            ChameleonError: they cannot be listed.
        """
        self._list()

    def aim(self, target: str) -> None:
        """Have every device ready for artifacts of a target."""
        self._list()
        anew = target != self._reaching.target
        self._reaching.target = target
        self._presence.reached &= not anew
        now = self._switchboard.now()
        for station in list(self.stations.values()):
            waiting = station.lane is not None and station.lane.idle
            if station.state is State.READY and station.target != target:
                self._reaching.connect(station)
            elif station.state is State.READY and now - station.used > _STALE_SECONDS:
                self._reaching.test(station)
            elif station.state is State.EXCLUDED and anew:
                self._reaching.reach(station)
            elif station.state is State.STARTING and waiting:
                self._reaching.connect(station)

    def _list(self) -> None:
        now = self._switchboard.now()
        if self._list_due is not None and now < self._list_due:
            return
        first = self._list_due is None
        self._list_due = now + _LIST_SECONDS
        try:
            places = self._places()
        except ChameleonError as error:
            if first:
                raise
            _log.warning("devices_not_listed", reason=str(error))
            return
        self._compare({place.name: place for place in places})

    def _compare(self, places: dict[str, Place]) -> None:
        """Take in devices that appeared, let go of those that vanished and do not answer."""
        for name in set(self.stations) - set(places):
            station = self.stations[name]
            if station.unusable:
                self._reaching.drop_lane(station)
                self._presence.remove(station)
                _log.info("device_vanished", device=name, reason=station.reason)
        for name, place in places.items():
            known = self.stations.get(name)
            if known is None:
                self.stations[name] = Station(place=place, witness=Witness(fleet=self._fleet))
                self._reaching.reach(self.stations[name])
            elif known.place != place:
                known.place = place
                if known.unusable:
                    self._reaching.reach(known)

    # -- time -------------------------------------------------------------------------------

    def attend(self) -> float:
        """Do what is due.

        Returns:
            When there is something to do again, on the switchboard's clock.

        Raises:
            ChameleonError: there is no device, and it is no use to wait, or no longer.
        """
        now = self._switchboard.now()
        for station in self._presence.due(now):
            self._reaching.reach(station)
        self._list()
        limits = [self._list_due or now, self._presence.next_due]
        if self._presence.hopeful:
            self._patience.rest()
        else:
            limits.append(self._patience.wait(now, list(self.stations.values())))
        return min(limits)

    # -- after work -------------------------------------------------------------------------

    def finished(self, station: Station) -> None:
        """A device did what it was asked to and is free again."""
        if station.doomed:
            self._put_aside(station)
        elif station.target != self._reaching.target:
            self._reaching.connect(station)
        else:
            station.used = self._switchboard.now()
            self._presence.release(station)

    def succeeded(self, station: Station) -> None:
        """A candidate was right on a device, which is thereby trusted again."""
        station.witness.succeeded()
        station.strikes, station.asides, station.condemned = 0, 0, ""

    def failed(self, station: Station, opinion: Opinion) -> None:
        """A candidate failed on a device: see what that says of the device itself."""
        if opinion.back is None:
            self.lost(station, opinion)
        elif opinion.kind in _BREAKING:
            self.suspected(station)
        else:
            self.finished(station)

    def suspected(self, station: Station) -> None:
        """A candidate failed in a way that may have broken the device: test it."""
        if station.doomed:
            self._put_aside(station)
        else:
            station.fresh = False
            self._reaching.test(station)

    def lost(self, station: Station, opinion: Opinion | None = None) -> None:
        """A device, or the lane that had it, went away at work: see whether it comes back.

        Args:
            station: the device.
            opinion: depends on whether it does.
        """
        if station.lane is not None and not station.lane.alive:
            station.lane = None
        if opinion is not None:
            station.awaiting.append(opinion)
        if station.doomed:
            self._put_aside(station)
        else:
            self._reaching.reach(station)

    def strike(self, name: str) -> None:
        """A candidate that failed on a device succeeded elsewhere."""
        station = self.stations.get(name)
        if station is None:
            return
        station.witness.failed()
        station.strikes += 1
        if station.strikes < self._options.set_aside_after or station.unusable:
            return
        station.condemned = (
            f"{station.strikes} candidates in a row failed here and succeeded elsewhere"
        )
        if station.state is State.READY:
            self._put_aside(station)

    def condemn(self, station: Station) -> None:
        """Set a device aside that is out of pace, now or once its present work is done."""
        station.leaving = not station.unusable
        if station.state is State.READY:
            self._put_aside(station)

    def _put_aside(self, station: Station) -> None:
        reason = station.condemned or station.out_of_pace
        if station.condemned:
            # It comes back on probation: the next such candidate sends it away again, for longer.
            station.strikes = self._options.set_aside_after - 1
        station.condemned, station.leaving = "", False
        station.asides += 1
        self._reaching.drop_lane(station)
        pause = _ASIDE_PAUSES * self._options.probe_after * 2.0 ** min(station.asides - 1, 10)
        pause = min(pause, _ASIDE_PAUSES * LONGEST_PAUSE)
        _log.warning("device_set_aside", device=station.name, reason=reason, seconds=pause)
        self._presence.leave(station, State.AWAY, reason)
        self._presence.remind(station, self._switchboard.now() + pause)

    # -- the end ----------------------------------------------------------------------------

    def abandon(self, station: Station) -> None:
        """Nobody waits for what a device is doing any more."""
        self._reaching.drop_lane(station)
        self._reaching.reach(station)

    def farewell(self) -> None:
        """Let go of the devices that are idle, so that others may have them at once."""
        leaving: set[str] = set()

        def left(name: str, _event: LaneEvent) -> None:
            leaving.discard(name)

        for station in self.stations.values():
            if station.state is State.READY and station.lane is not None and station.lane.idle:
                leaving.add(station.name)
                then = partial(left, station.name)
                message: Message = {"command": "disconnect"}
                self._switchboard.submit(station.lane, then, message, _FAREWELL_SECONDS)
        limit = self._switchboard.now() + _FAREWELL_SECONDS
        while leaving and self._switchboard.now() < limit and not self._switchboard.closed:
            self._switchboard.turn(limit)
