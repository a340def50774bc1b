"""Which devices of a fleet there are, who of them works, who is free, who is due to be tried."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Collection, Iterator

from chameleon_runners.fleet.stations import State, Station


class Presence:
    """Keeps the devices in order, so that no question needs a look at all of them.

    Attributes:
        stations: every device by its name.
        changed: set when a device came or went, so that decisions may be different now.
        reached: whether a device was reached for the present target.
    """

    def __init__(self) -> None:
        self.stations: dict[str, Station] = {}
        self.changed = False
        self.reached = False
        self._free: deque[Station] = deque()
        self._hopeful: set[Station] = set()
        self._timers: list[tuple[float, int, Station]] = []
        self._numbers = itertools.count()

    @property
    def hopeful(self) -> int:
        """How many devices work, or may do so in a moment."""
        return len(self._hopeful)

    def elsewhere(self, names: Collection[str]) -> bool:
        """Whether there is a hopeful device besides the named ones."""
        asked = {self.stations[name] for name in names if name in self.stations}
        return len(self._hopeful) > len(asked & self._hopeful)

    def take(self, avoid: Collection[str] = ()) -> Station | None:
        """A free device, which is busy from now on; None where there is none."""
        skipped: list[Station] = []
        found = None
        while self._free and found is None:
            station = self._free.popleft()
            if station.state is not State.READY:
                continue
            if station.name in avoid:
                skipped.append(station)
            else:
                found = station
        self._free.extendleft(reversed(skipped))
        if found is not None:
            self.move(found, State.BUSY)
        return found

    def move(self, station: Station, state: State) -> None:
        """A device is at something else now."""
        station.state = state
        if station.hopeful:
            self._hopeful.add(station)
        else:
            self._hopeful.discard(station)

    def release(self, station: Station) -> None:
        """A device is free."""
        self.move(station, State.READY)
        self._free.append(station)

    def leave(self, station: Station, state: State, reason: str) -> None:
        """A device cannot be used."""
        station.reason = reason
        station.answer(back=False)
        self.move(station, state)
        self.changed = True

    def remove(self, station: Station) -> None:
        """A device is no longer there."""
        self._hopeful.discard(station)
        self.stations.pop(station.name, None)
        self.changed = True

    def remind(self, station: Station, when: float) -> None:
        """Have a device that is away named again by ``due``."""
        heapq.heappush(self._timers, (when, next(self._numbers), station))

    def due(self, now: float) -> Iterator[Station]:
        """The devices that are away and to be tried again."""
        while self._timers and self._timers[0][0] <= now:
            _, _, station = heapq.heappop(self._timers)
            if station.state is State.AWAY and self.stations.get(station.name) is station:
                yield station

    @property
    def next_due(self) -> float:
        """When the next device is due; infinity where none is."""
        return self._timers[0][0] if self._timers else float("inf")
