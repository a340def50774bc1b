"""The workers that build, kept from batch to batch."""

from __future__ import annotations

from collections import deque

from chameleon_runners.fleet.workers import Listener, Worker, WorkerEvent, WorkerPool
from chameleon_runners.worker.protocol import Message


class BuilderPool:
    """Hands out idle builders and replaces those that end.

    Args:
        pool: starts the builders.
        size: how many there are at most.
        cores: usable cores; each builder is bound to one.
        recycle_after: builds after which a builder is replaced.
        preload: ``"module:Class"`` of the space provider that is going to be asked for.
    """

    def __init__(
        self,
        pool: WorkerPool,
        *,
        size: int,
        cores: list[int],
        recycle_after: int,
        preload: str | None,
    ) -> None:
        self.size = size
        self._pool = pool
        self._recycle_after = recycle_after
        self._preload = preload
        self._idle: deque[Worker] = deque()
        self._places: dict[Worker, int] = {}
        self._vacant = list(range(size))
        self._cores = cores

    def fill(self, count: int) -> None:
        """Start builders until there are ``count`` (at most as many as the size)."""
        while len(self._places) < min(count, self.size):
            worker = self._pool.start_worker(self._heard, preload=self._preload)
            self._places[worker] = self._vacant.pop()

    def _heard(self, event: WorkerEvent) -> None:
        if event.end is None:
            self._idle.append(event.worker)
        else:
            self._forget(event.worker)

    def _forget(self, worker: Worker) -> None:
        place = self._places.pop(worker, None)
        if place is not None:
            self._vacant.append(place)

    def take(self) -> Worker | None:
        """An idle builder, which its borrower gives back or ends; None where there is none."""
        while self._idle:
            worker = self._idle.popleft()
            if worker.idle and worker in self._places:
                return worker
        return None

    def give_back(self, worker: Worker) -> None:
        """A builder is done with what it was taken for, or has ended over it."""
        if not worker.alive:
            self._forget(worker)
        elif worker.built >= self._recycle_after:
            self.end(worker)
        else:
            self._idle.append(worker)

    def end(self, worker: Worker) -> None:
        """End a builder, whatever it does."""
        self._pool.end_worker(worker)
        self._forget(worker)

    def submit(self, worker: Worker, then: Listener, message: Message, timeout: float) -> None:
        """Give a builder a command, on the core that is its own."""
        core = self._cores[self._places[worker] % len(self._cores)]
        self._pool.submit(worker, then, {**message, "cores": [core]}, timeout)
