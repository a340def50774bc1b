"""The workers that build, kept from job to job."""

from __future__ import annotations

from collections import deque

import attrs

from chameleon_runners.engine.workers import Worker, WorkerEvent, WorkerPool


@attrs.define(kw_only=True, eq=False)
class BuilderPool:
    """Hands out idle builders and replaces those that end.

    Attributes:
        pool: starts the builders.
        size: how many there are at most.
        cores: of which each builder has one to build on; all of them if there are none.
        recycle_after: builds after which a builder is replaced when it is given back; None if
            it may still hold kernels then.
        preload: ``"module:Class"`` of the space provider that is going to be asked for.
    """

    pool: WorkerPool
    size: int
    cores: list[int] = attrs.field(factory=list)
    recycle_after: int | None = None
    preload: str | None = None
    _idle: deque[Worker] = attrs.field(factory=deque, init=False)
    _numbers: dict[Worker, int] = attrs.field(factory=dict, init=False)

    def fill(self, count: int) -> None:
        """Start builders until there are ``count`` (at most as many as the size)."""
        while len(self._numbers) < min(count, self.size):
            vacant = set(range(self.size)).difference(self._numbers.values())
            worker = self.pool.start_worker(self._heard, preload=self.preload)
            self._numbers[worker] = max(vacant)

    def _heard(self, event: WorkerEvent) -> None:
        if event.end is None:
            self._idle.append(event.worker)
        else:
            self.forget(event.worker)

    def forget(self, worker: Worker) -> None:
        """A builder has ended; another one may take its place."""
        self._numbers.pop(worker, None)

    @property
    def busy(self) -> bool:
        """Whether a builder starts, or does anything else."""
        return any(worker.work is not None for worker in self._numbers)

    def take(self, key: str) -> Worker | None:
        """An idle builder, which its borrower gives back or ends; None if there is none.

        Args:
            key: what it is to build; who has built that before comes first.
        """
        while self._idle and not self._ready(self._idle[0]):
            self._idle.popleft()
        if not self._idle:
            return None
        experienced = (idle for idle in self._idle if idle.opened == key and self._ready(idle))
        worker = next(experienced, self._idle[0])
        self._idle.remove(worker)
        return worker

    def _ready(self, worker: Worker) -> bool:
        return worker in self._numbers and worker.idle and self.pool.lives(worker)

    def give_back(self, worker: Worker) -> None:
        """A builder is done with what it was taken for, or has ended over it."""
        if not worker.alive:
            self.forget(worker)
        elif self.recycle_after is not None and worker.built >= self.recycle_after:
            self.end(worker)
        else:
            self._idle.append(worker)

    def end(self, worker: Worker) -> None:
        """End a builder, whatever it does."""
        self.pool.end_worker(worker)
        self.forget(worker)

    def cores_of(self, worker: Worker) -> list[int]:
        """The core on which a builder builds; empty if that may be any."""
        return [self.cores[self._numbers[worker] % len(self.cores)]] if self.cores else []
