"""The workers that build candidates, which are kept from job to job."""

from __future__ import annotations

from collections import deque

import attrs

from chameleon_runners.engine.workers import Worker, WorkerEvent, WorkerPool


@attrs.define(kw_only=True, eq=False)
class BuilderPool:
    """Lends idle builders (workers that build), and replaces those that end.

    Attributes:
        pool: The pool that starts the builders.
        size: The largest number of builders.
        cores: The cores to build on, one per builder. If it is empty, builders may use all cores.
        recycle_after: The number of builds after which a builder that is given back is replaced.
            None to replace none, because builders may still hold kernels.
        preload: ``"module:Class"`` of the space provider that new builders import early.
    """

    pool: WorkerPool
    size: int
    cores: list[int] = attrs.field(factory=list)
    recycle_after: int | None = None
    preload: str | None = None
    _idle: deque[Worker] = attrs.field(factory=deque, init=False)
    _numbers: dict[Worker, int] = attrs.field(factory=dict, init=False)

    def fill(self, count: int) -> None:
        """Start builders until there are ``count``, but at most ``size``."""
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
        """Remove a builder that has ended, so that the pool can start another in its place."""
        self._numbers.pop(worker, None)

    @property
    def busy(self) -> bool:
        """Whether any builder is starting or has work."""
        return any(worker.work is not None for worker in self._numbers)

    def take(self, key: str) -> Worker | None:
        """Borrow an idle builder, or return None if all builders are busy.

        The caller must give the builder back or end it.

        Args:
            key: The identity of the stage (``stage_key``) to build with. Builders that have made
                this stage already are preferred.
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
        """Return a borrowed builder, also if it has ended."""
        if not worker.alive:
            self.forget(worker)
        elif self.recycle_after is not None and worker.built >= self.recycle_after:
            self.end(worker)
        else:
            self._idle.append(worker)

    def end(self, worker: Worker) -> None:
        """End a builder, even if it is busy."""
        self.pool.end_worker(worker)
        self.forget(worker)

    def cores_of(self, worker: Worker) -> list[int]:
        """The core on which a builder works, as a list; empty if it may use all cores."""
        return [self.cores[self._numbers[worker] % len(self.cores)]] if self.cores else []
