"""Single configurations of several tasks, built side by side and timed one after the other.

A batch of one keeps a single worker busy: the others wait for the builder to be made, the expected
outputs to be computed, and the kernel to be built, which is nearly all that it takes. Here as many
tasks as there are workers have that done at the same time. A worker holds the kernels of one task
only, so that each task has a worker of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

from chameleon_core.measurement import Measurement
from chameleon_core.stages import Arrival, MeasureJob, MeasureStream

from chameleon_runners.batch import Batch
from chameleon_runners.local_pool import Event, LocalPool
from chameleon_runners.worker_process import WorkerProcess


class PoolMember:
    """One place of a pool as a pool of its own; whoever is timed has all others be still.

    Args:
        pool: the whole pool.
        place: of the worker.
    """

    def __init__(self, pool: LocalPool, place: int) -> None:
        self._pool = pool
        self._place = place
        self.cores = pool.cores

    @property
    def size(self) -> int:
        """One."""
        return 1

    @property
    def workers(self) -> list[WorkerProcess]:
        """The worker at the place, where it lives."""
        worker = self.at(0)
        return [] if worker is None else [worker]

    @property
    def closed(self) -> bool:
        """Whether the workers were told to end for good."""
        return self._pool.closed

    def at(self, place: int) -> WorkerProcess | None:
        """The living worker, whose place here is 0, or None."""
        return None if place else self._pool.at(self._place)

    def position(self, worker: WorkerProcess) -> int:
        """As for the whole pool."""
        return self._pool.position(worker)

    def fill(self, count: int) -> None:
        """See that there is a worker."""
        if count:
            self._pool.fill(self._place + 1)

    def wait(self, among: Iterable[WorkerProcess] | None = None) -> list[Event]:
        """Wait for events of the worker."""
        return self._pool.wait(self.workers if among is None else among)

    def quiet(self, worker: WorkerProcess | None = None) -> None:
        """Stop every idle worker of the whole pool but one."""
        self._pool.quiet(worker)

    def wake(self) -> None:
        """Make ``wait`` return soon."""
        self._pool.wake()


class JobGroup:
    """Measures jobs of one configuration each, at most as many as there are workers.

    Args:
        batches: every job, with its batch at a member of the pool of its own.
        pool: the whole pool.
    """

    def __init__(self, batches: Sequence[tuple[MeasureJob, Batch]], pool: LocalPool) -> None:
        self._batches = batches
        self._pool = pool

    def interrupt(self) -> None:
        """Finish the measurement in flight and begin none after it."""
        for _, batch in self._batches:
            batch.interrupt()

    def run(self) -> Iterator[Arrival]:
        """Build all of them at once, then time one after the other."""
        try:
            while self._employed():
                for event in self._pool.wait():
                    yield from self._handled(event)
            for job, batch in self._batches:
                yield from _arrivals(job, batch.run())
        finally:
            for _, batch in self._batches:
                batch.release()

    def _employed(self) -> bool:
        """Give every worker what there is to do; whether anything is still to be waited for."""
        # All of them: the last worker is to begin although the first one is not done.
        waiting = [batch.build_phase.employ() for _, batch in self._batches]
        return any(waiting)

    def _handled(self, event: Event) -> Iterator[Arrival]:
        for place, (job, batch) in enumerate(self._batches):
            if self._pool.position(event.worker) == place:
                yield from _arrivals(job, batch.build_phase.handle(event))


def _arrivals(job: MeasureJob, measurements: Iterable[Measurement]) -> Iterator[Arrival]:
    return (Arrival(job=job, measurement=one) for one in measurements)


class LocalStream(MeasureStream):
    """Measures jobs in the order of their arrival, single configurations in groups.

    Args:
        group: measures jobs of one configuration each, or one of several.
        size: how many such jobs make up a group at most.
    """

    def __init__(
        self, group: Callable[[Sequence[MeasureJob]], Iterator[Arrival]], *, size: int
    ) -> None:
        self._group = group
        self._size = size
        self._waiting: deque[MeasureJob] = deque()
        self._current: Iterator[Arrival] | None = None

    @property
    def busy(self) -> bool:
        return self._current is not None or bool(self._waiting)

    def submit(self, job: MeasureJob) -> None:
        self._waiting.append(job)

    def poll(self, timeout: float | None = None) -> Arrival | None:
        del timeout  # a measurement cannot be left half-way
        while self.busy:
            if self._current is None:
                self._current = iter(self._group(self._next()))
            try:
                return next(self._current)
            except StopIteration:
                self._current = None
        return None

    def _next(self) -> list[MeasureJob]:
        """The jobs that are measured together next."""
        jobs = [self._waiting.popleft()]
        while (
            self._waiting
            and len(jobs) < self._size
            and all(len(job.configs) == 1 for job in (jobs[0], self._waiting[0]))
        ):
            jobs.append(self._waiting.popleft())
        return jobs

    def close(self) -> None:
        self._waiting.clear()
        current, self._current = self._current, None
        close = getattr(current, "close", None)
        if close is not None:
            close()


__all__ = ["JobGroup", "LocalStream", "PoolMember"]
