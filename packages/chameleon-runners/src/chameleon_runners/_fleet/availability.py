"""The devices of a fleet by status: free, busy, lost or due for another attempt."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Collection, Iterator

from chameleon_runners._fleet.device_state import DeviceState, DeviceStatus


class Availability:
    """The devices of a fleet, sorted by status, so that queries need not visit all of them.

    Attributes:
        changed: whether a device came or went since the caller last reset this flag.
        ever_connected: whether a device was connected for the current target so far.
    """

    def __init__(self) -> None:
        self.known: dict[str, DeviceState] = {}
        self.changed = False
        self.ever_connected = False
        self._free: deque[DeviceState] = deque()
        self._may_work: set[DeviceState] = set()
        self._timers: list[tuple[float, int, DeviceState]] = []
        self._numbers = itertools.count()

    @property
    def may_work(self) -> int:
        """The number of devices that work, or are being connected for the first time."""
        return len(self._may_work)

    def has_other_device(self, names: Collection[str]) -> bool:
        """Whether the fleet has a device that works, or may still work, besides some devices."""
        named = {self.known[name] for name in names if name in self.known}
        return len(self._may_work) > len(named & self._may_work)

    def take(self, avoid: Collection[str] = ()) -> DeviceState | None:
        """Take a free device and mark it as busy, or return None if no device is free."""
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
        """Set the status of a device."""
        device.status = state
        if device.may_work:
            self._may_work.add(device)
        else:
            self._may_work.discard(device)

    def release(self, device: DeviceState) -> None:
        """Mark a device as free."""
        self.move(device, DeviceStatus.READY)
        self._free.append(device)

    def mark_unusable(self, device: DeviceState, state: DeviceStatus, reason: str) -> None:
        """Mark a device as unusable."""
        device.reason = reason
        device.resolve_reports(recovered=False)
        self.move(device, state)
        self.changed = True

    def remove(self, device: DeviceState) -> None:
        """Remove a device that no longer exists."""
        self._may_work.discard(device)
        self.known.pop(device.name, None)
        self.changed = True

    def schedule_retry(self, device: DeviceState, when: float) -> None:
        """Let ``due`` yield an unusable device at a time on the pool's clock, in seconds."""
        heapq.heappush(self._timers, (when, next(self._numbers), device))

    def due(self, now: float) -> Iterator[DeviceState]:
        """The unusable devices that should be tried again now."""
        while self._timers and self._timers[0][0] <= now:
            _, _, device = heapq.heappop(self._timers)
            if device.status is DeviceStatus.AWAY and self.known.get(device.name) is device:
                yield device

    @property
    def next_retry(self) -> float:
        """The time at which to try the next lost device again; infinity if there is none."""
        return self._timers[0][0] if self._timers else float("inf")
