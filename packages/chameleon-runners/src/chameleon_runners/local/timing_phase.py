"""The part of a job in which nobody builds: kernels are checked and timed, one at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

import numpy as np
from chameleon_core.measurement import FailureKind, Measurement

from chameleon_runners.engine.candidate_run import CandidateRun
from chameleon_runners.engine.workers import Worker, WorkerEvent
from chameleon_runners.local.context import LocalContext
from chameleon_runners.local.rounds import Rounds
from chameleon_runners.worker.protocol import Message


class TimingPhase:
    """Checks and times what is built, then the promising ones again, in turn.

    A worker that dies takes one candidate with it, the one at work: kernels it held besides are
    built again elsewhere.

    Args:
        context: what it is done with.
        pending: takes the candidates that have to be built again.
        best_seconds: the task's best cost so far.
        stopped: whether no more work is to be begun.

    Attributes:
        built: candidates whose kernel waits to be timed.
    """

    def __init__(
        self,
        context: LocalContext,
        *,
        pending: deque[CandidateRun],
        best_seconds: float,
        stopped: Callable[[], bool],
    ) -> None:
        self._context = context
        self._pending = pending
        self._best = best_seconds
        self._stopped = stopped
        self._rounds = Rounds(context.options, best_seconds)
        self.built: deque[CandidateRun] = deque()

    @property
    def held(self) -> list[CandidateRun]:
        """All whose kernels are of use yet."""
        return [*self.built, *self._rounds.held]

    def rebuild(self) -> None:
        """Have kernels built again whose worker is gone; nobody is blamed for that."""
        for candidate in list(self.built):
            if candidate.worker is None or not candidate.worker.alive:
                self.built.remove(candidate)
                self._pending.append(candidate)

    def first_timings(self) -> Iterator[Measurement]:
        """Check and time everything that is built; hand out what need not be timed again."""
        context = self._context
        while self.built and not self._stopped():
            candidate = self.built.popleft()
            worker = candidate.worker
            if worker is None or not context.pool.lives(worker):
                self._pending.append(candidate)
                continue
            message = context.measure_command(candidate, best=self._best, cores=context.clock_cores)
            event = context.clock(worker, message, context.deadlines.run(self._best))
            yield from self._hand_out(self._first_timed(candidate, event))

    def waits_in(self, worker: Worker) -> list[CandidateRun]:
        """Candidates whose kernel waits in a worker to be timed."""
        return [candidate for candidate in self.built if candidate.worker is worker]

    def part_with_leaders(self, worker: Worker) -> Iterator[Measurement]:
        """Free the kernels of the slower half of a worker's leaders; their measurements."""
        yield from self._hand_out(self._rounds.give_up(worker))

    def rounds(self) -> Iterator[Measurement]:
        """Time the promising candidates again, in turn."""
        yield from self._hand_out(self._rounds.play(self._time_again, self._stopped))
        self._context.disturbance.ranked(self._rounds.looks)

    def _first_timed(self, candidate: CandidateRun, event: WorkerEvent) -> list[CandidateRun]:
        """Take in how the first timing went; returns those that are done with."""
        reply, end = event.reply, event.end
        if end is not None:
            candidate.run_seconds = end.seconds
            if candidate.loses(end, self._context.retries):
                self._pending.append(candidate)
                return []
            candidate.failure = candidate.ended(end, building=False)
        elif reply is not None:
            candidate.run_seconds = reply["elapsed"]
            if reply["status"] == "ok":
                return self._timed(candidate, reply)
            candidate.failure = candidate.failed_reply(reply, event.worker.log)
            if candidate.failure.failure is FailureKind.OUT_OF_MEMORY:
                return self._with_more_room(candidate, event.worker)
        return [candidate]

    def _with_more_room(self, candidate: CandidateRun, worker: Worker) -> list[CandidateRun]:
        """Have a candidate timed again that lacked memory, where its worker can hold less.

        Cold caches need copies of the weights that only a kernel that is timed has.

        Returns:
            Those that are done with; the candidate itself where nothing was beside it.
        """
        waiting = self.waits_in(worker)
        for one in waiting[len(waiting) // 2 :]:
            self.built.remove(one)
            one.discard()
            self._pending.append(one)
        gone = [] if waiting else self._rounds.give_up(worker)
        if not waiting and not gone:
            return [candidate]
        candidate.failure = None
        self.built.appendleft(candidate)
        return gone

    def _timed(self, candidate: CandidateRun, reply: Message) -> list[CandidateRun]:
        self._context.deadlines.ran(candidate.run_seconds)
        candidate.repeats = tuple(reply["seconds"])
        candidate.number = reply["number"]
        candidate.error = reply["error"]
        self._best = min(self._best, float(np.median(candidate.repeats)))
        return self._rounds.admit(candidate)

    @staticmethod
    def _hand_out(candidates: Iterable[CandidateRun]) -> Iterator[Measurement]:
        """Yield the measurements of candidates that are done with, and free their kernels."""
        for candidate in candidates:
            candidate.discard()
            yield candidate.failure or candidate.succeeded()

    def _time_again(self, candidate: CandidateRun) -> None:
        """One more turn of a leader, unless the worker that held it is gone."""
        context, worker = self._context, candidate.worker
        if worker is None or not context.pool.lives(worker):
            candidate.worker = None
            return
        message = context.turn_command(candidate)
        event = context.clock(worker, message, context.options.run_timeout)
        if event.end is not None:
            candidate.worker = None
            # It ran before and does not now: a failure, unless somebody else killed its worker.
            if not event.end.from_outside:
                candidate.failure = candidate.ended(event.end, building=False)
        elif event.reply is not None and event.reply["status"] == "ok":
            candidate.take_turn(event.reply["seconds"], event.reply["disturbed"])
            candidate.run_seconds += event.reply["elapsed"]
        elif event.reply is not None:
            candidate.failure = candidate.failed_reply(event.reply, worker.log)
