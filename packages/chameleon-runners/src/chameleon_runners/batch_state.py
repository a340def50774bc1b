"""Where the candidates of one batch are: waiting, built, or timed and held for the rounds."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from chameleon_core.measurement import Measurement
from chameleon_core.stages import MeasureJob

from chameleon_runners.candidates import Candidate
from chameleon_runners.local_pool import Event, Workers
from chameleon_runners.options import LocalOptions
from chameleon_runners.rounds import Rounds
from chameleon_runners.worker_process import WorkerProcess


class BatchState:
    """The candidates of a job, each in one place until its measurement is handed out.

    Args:
        job: the job.
        pool: the workers.
        options: the runner's options.
        first_slot: a number from which on slots are unused.

    Attributes:
        pending: those to be built, or built again.
        built: those whose kernel waits to be timed.
        rounds: those that were timed and are held to be timed again.
        count: how many the job has.
    """

    def __init__(
        self, job: MeasureJob, *, pool: Workers, options: LocalOptions, first_slot: int
    ) -> None:
        self._pool = pool
        self._retries = options.retries
        self._interrupted = False
        self.pending = deque(
            Candidate(config=tuple(int(index) for index in config), slot=first_slot + place)
            for place, config in enumerate(job.configs)
        )
        self.count = len(self.pending)
        self.built: deque[Candidate] = deque()
        self.rounds = Rounds(options, job.best_seconds)

    def interrupt(self) -> None:
        """Have everyone end after the work in flight."""
        self._interrupted = True

    @property
    def stopped(self) -> bool:
        """Whether no more work is to be begun."""
        return self._interrupted or self._pool.closed

    def still_there(self, worker: WorkerProcess) -> bool:
        """Whether an idle worker lives; nobody is blamed for one killed while it was idle."""
        worker.poll()
        if worker.end is not None:
            self._rebuild(worker)
        return worker.alive

    def lost(self, event: Event) -> Iterator[Measurement]:
        """A worker ended: judge the candidate at work, build again what else it held."""
        candidate = event.tag if isinstance(event.tag, Candidate) else None
        self._rebuild(event.worker, spare=candidate)
        for leader in self.rounds.held:
            if leader.worker is event.worker:
                leader.worker = None
        if candidate is not None:
            yield from self._judge(candidate, event)

    def _rebuild(self, worker: WorkerProcess, *, spare: Candidate | None = None) -> None:
        for held in [kept for kept in self.built if kept.worker is worker]:
            self.built.remove(held)
            if held is not spare:
                self.pending.append(held)

    def _judge(self, candidate: Candidate, event: Event) -> Iterator[Measurement]:
        """Fail the candidate that was at work, unless its worker was killed from outside."""
        end = event.end
        if end is None:
            return
        building = not candidate.build_seconds
        if building:
            candidate.build_seconds = end.seconds
        else:
            candidate.run_seconds = end.seconds
        if end.from_outside and candidate.losses < self._retries:
            candidate.losses += 1
            self.pending.append(candidate)
        else:
            yield candidate.ended(end, building=building)


def drop(candidate: Candidate) -> None:
    """Have a candidate's kernel freed with its worker's next command."""
    if candidate.worker is not None:
        candidate.worker.garbage.append(candidate.slot)
        candidate.worker = None
