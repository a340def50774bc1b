"""Which devices of a fleet there are, which of them work, are free, or are due to be tried."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Collection, Iterator

from chameleon_runners.fleet.device_state import DeviceState, DeviceStatus


class Availability:
    """Keeps the devices in order, so that no question needs a look at all of them.

    Attributes:
        known: every device by its name.
        changed: set when a device came or went, so that decisions may be different now.
        reached: whether a device was reached for the present target.
    """

    def __init__(self) -> None:
        self.known: dict[str, DeviceState] = {}
        self.changed = False
        self.reached = False
        self._free: deque[DeviceState] = deque()
        self._hopeful: set[DeviceState] = set()
        self._timers: list[tuple[float, int, DeviceState]] = []
        self._numbers = itertools.count()

    @property
    def hopeful(self) -> int:
        """How many devices work, or may do so in a moment."""
        return len(self._hopeful)

    def elsewhere(self, names: Collection[str]) -> bool:
        """Whether there is a hopeful device besides the named ones."""
        asked = {self.known[name] for name in names if name in self.known}
        return len(self._hopeful) > len(asked & self._hopeful)

    def take(self, avoid: Collection[str] = ()) -> DeviceState | None:
        """A free device, which is busy from now on; None if there is none."""
        skipped: list[DeviceState] = []
        free = None
        while self._free and free is None:
            device = self._free.popleft()
            if device.status is not DeviceStatus.READY:
                continue
            if device.name in avoid:
                skipped.append(device)
            else:
                free = device
        self._free.extendleft(reversed(skipped))
        if free is not None:
            self.move(free, DeviceStatus.BUSY)
        return free

    def move(self, device: DeviceState, state: DeviceStatus) -> None:
        """A device is at something else now."""
        device.status = state
        if device.hopeful:
            self._hopeful.add(device)
        else:
            self._hopeful.discard(device)

    def release(self, device: DeviceState) -> None:
        """A device is free."""
        self.move(device, DeviceStatus.READY)
        self._free.append(device)

    def leave(self, device: DeviceState, state: DeviceStatus, reason: str) -> None:
        """A device cannot be used."""
        device.reason = reason
        device.answer(back=False)
        self.move(device, state)
        self.changed = True

    def remove(self, device: DeviceState) -> None:
        """A device is no longer there."""
        self._hopeful.discard(device)
        self.known.pop(device.name, None)
        self.changed = True

    def remind(self, device: DeviceState, when: float) -> None:
        """Have a device that is away named again by ``due``."""
        heapq.heappush(self._timers, (when, next(self._numbers), device))

    def due(self, now: float) -> Iterator[DeviceState]:
        """The devices that are away and to be tried again."""
        while self._timers and self._timers[0][0] <= now:
            _, _, device = heapq.heappop(self._timers)
            if device.status is DeviceStatus.AWAY and self.known.get(device.name) is device:
                yield device

    @property
    def next_due(self) -> float:
        """When the next device is due; infinity if none is."""
        return self._timers[0][0] if self._timers else float("inf")
