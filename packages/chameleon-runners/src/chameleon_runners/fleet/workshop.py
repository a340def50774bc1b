"""The lanes that build, kept from batch to batch."""

from __future__ import annotations

from collections import deque

from chameleon_runners.fleet.lanes import Lane, LaneEvent, Listener, Switchboard
from chameleon_runners.worker.protocol import Message


class Workshop:
    """Hands out idle builders and replaces those that end.

    Args:
        switchboard: starts the builders.
        size: how many there are at most.
        cores: usable cores; each builder is bound to one.
        recycle_after: builds after which a builder is replaced.
        preload: ``"module:Class"`` of the space provider that is going to be asked for.
    """

    def __init__(
        self,
        switchboard: Switchboard,
        *,
        size: int,
        cores: list[int],
        recycle_after: int,
        preload: str | None,
    ) -> None:
        self.size = size
        self._switchboard = switchboard
        self._recycle_after = recycle_after
        self._preload = preload
        self._idle: deque[Lane] = deque()
        self._places: dict[Lane, int] = {}
        self._vacant = list(range(size))
        self._cores = cores

    def fill(self, count: int) -> None:
        """Start builders until there are ``count`` (at most as many as the size)."""
        while len(self._places) < min(count, self.size):
            lane = self._switchboard.hire(self._heard, preload=self._preload)
            self._places[lane] = self._vacant.pop()

    def _heard(self, event: LaneEvent) -> None:
        if event.end is None:
            self._idle.append(event.lane)
        else:
            self._forget(event.lane)

    def _forget(self, lane: Lane) -> None:
        place = self._places.pop(lane, None)
        if place is not None:
            self._vacant.append(place)

    def take(self) -> Lane | None:
        """An idle builder, which its borrower gives back or ends; None where there is none."""
        while self._idle:
            lane = self._idle.popleft()
            if lane.idle and lane in self._places:
                return lane
        return None

    def give_back(self, lane: Lane) -> None:
        """A builder is done with what it was taken for, or has ended over it."""
        if not lane.alive:
            self._forget(lane)
        elif lane.built >= self._recycle_after:
            self.end(lane)
        else:
            self._idle.append(lane)

    def end(self, lane: Lane) -> None:
        """End a builder, whatever it does."""
        self._switchboard.dismiss(lane)
        self._forget(lane)

    def submit(self, lane: Lane, then: Listener, message: Message, timeout: float) -> None:
        """Give a builder a command, on the core that is its own."""
        core = self._cores[self._places[lane] % len(self._cores)]
        self._switchboard.submit(lane, then, {**message, "cores": [core]}, timeout)
