"""The workers that build, kept from job to job."""

from __future__ import annotations

from collections import deque

from chameleon_runners.engine.workers import Worker, WorkerEvent, WorkerPool


class BuilderPool:
    """Hands out idle builders and replaces those that end.

    Args:
        pool: starts the builders.
        size: how many there are at most.
        cores: of which each builder has one to build on; where there are none it has all.
        recycle_after: builds after which a builder is replaced when it is given back; None where
            it may still hold kernels then.
        preload: ``"module:Class"`` of the space provider that is going to be asked for.
    """

    def __init__(
        self,
        pool: WorkerPool,
        *,
        size: int,
        cores: list[int],
        recycle_after: int | None,
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
            self.forget(event.worker)

    def forget(self, worker: Worker) -> None:
        """A builder has ended; another one may take its place."""
        place = self._places.pop(worker, None)
        if place is not None:
            self._vacant.append(place)

    @property
    def busy(self) -> bool:
        """Whether a builder starts, or does anything else."""
        return any(worker.work is not None for worker in self._places)

    def take(self, key: str) -> Worker | None:
        """An idle builder, which its borrower gives back or ends; None where there is none.

        Args:
            key: what it is to build; who has built that before comes first.
        """
        while self._idle and not self._ready(self._idle[0]):
            self._idle.popleft()
        if not self._idle:
            return None
        found = (one for one in self._idle if one.opened == key and self._ready(one))
        worker = next(found, self._idle[0])
        self._idle.remove(worker)
        return worker

    def _ready(self, worker: Worker) -> bool:
        return worker in self._places and worker.idle and self._pool.lives(worker)

    def give_back(self, worker: Worker) -> None:
        """A builder is done with what it was taken for, or has ended over it."""
        if not worker.alive:
            self.forget(worker)
        elif self._recycle_after is not None and worker.built >= self._recycle_after:
            self.end(worker)
        else:
            self._idle.append(worker)

    def end(self, worker: Worker) -> None:
        """End a builder, whatever it does."""
        self._pool.end_worker(worker)
        self.forget(worker)

    def cores_of(self, worker: Worker) -> list[int]:
        """The core on which a builder builds; empty where that may be any."""
        return [self._cores[self._places[worker] % len(self._cores)]] if self._cores else []
