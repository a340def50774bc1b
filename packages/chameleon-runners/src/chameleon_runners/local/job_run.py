"""Jobs on their way through the workers: built in parallel, timed alone, leaders timed again.

Workers build while nobody looks at a clock; then one kernel at a time is checked and timed
while nobody builds.

A job of one configuration keeps a single worker busy. The others wait while the builder is made,
the expected outputs are computed, and the kernel is built, which is nearly all that it takes. So as
many such jobs as there are workers do that at the same time, each in one worker.
"""

from __future__ import annotations

import contextlib
import statistics
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
from chameleon_core.measurement import FailureKind, Measurement
from chameleon_core.stages import Arrival, MeasureJob

from chameleon_runners.engine.build_phase import BuildPhase
from chameleon_runners.engine.candidate_run import CandidateRun
from chameleon_runners.engine.preparation import JobPreparation
from chameleon_runners.engine.workers import StoppedError, Worker, WorkerEvent
from chameleon_runners.local.context import LocalContext
from chameleon_runners.local.disturbance import Looks
from chameleon_runners.local.options import LocalOptions
from chameleon_runners.timing import settled
from chameleon_runners.worker.protocol import Message

_LEAST_ROUNDS = 14
"""Rounds of the leaders, at least: one bad stretch must not decide between them."""

_LENIENCE = (40.0, 40.0, 8.0, 3.0)
"""What the margin of the leaders is multiplied with after the first rounds, in which a reading
may still be a disturbed one: whoever shares a core with somebody for a moment takes twice as
long, and must not be retired for it."""


class Rounds:
    """Candidates of one batch whose kernels are kept to be timed again.

    Args:
        options: the runner's options.
        best_seconds: the best cost before this batch; infinity if there is none.

    Attributes:
        candidates: those with turns, the fastest first.
        looks: the costs of those that had turns and left.
    """

    def __init__(self, options: LocalOptions, best_seconds: float) -> None:
        self._options = options
        self._best = best_seconds
        self.candidates: list[CandidateRun] = []
        self.looks: list[Looks] = []

    def admit(self, candidate: CandidateRun) -> list[CandidateRun]:
        """Add a candidate that was timed; returns those that need not be timed again.

        They are the hopeless ones, and the slowest if more are promising than may be held.
        """
        self._best = min(self._best, candidate.fastest)
        self.candidates.append(candidate)
        self.candidates.sort(key=lambda run: run.fastest)
        limit = self._options.slow_factor * self._best
        stay = [run for run in self.candidates if run.fastest <= limit][: self._options.leaders]
        return self._keep(stay)

    def give_up(self, worker: Worker) -> list[CandidateRun]:
        """Hold on to the faster half only of what a worker holds; returns the others, one at least.

        Args:
            worker: lacks memory.
        """
        there = [run for run in self.candidates if run.worker is worker]
        slower = {id(run) for run in there[len(there) // 2 :]}
        return self._keep([run for run in self.candidates if id(run) not in slower])

    def play(
        self, time_again: Callable[[CandidateRun], None], stopped: Callable[[], bool]
    ) -> Iterator[CandidateRun]:
        """Time what is held in turn, and hand each candidate out when it is known well enough.

        Args:
            time_again: appends the repeats of a turn to the candidate's, or sets its failure.
            stopped: whether to end early.
        """
        generator = np.random.default_rng(0)
        least = min(_LEAST_ROUNDS, self._options.leader_rounds)
        done = 0
        while done < self._options.leader_rounds and not stopped():
            asked = self.candidates if done < least else self._unsettled()
            if not asked:
                break
            for index in generator.permutation(len(asked)).tolist():
                if stopped():
                    break
                time_again(asked[index])
            done += 1
            yield from self._keep([run for run in self.candidates if run.failure is None])
            lenience = _LENIENCE[done - 1] if done <= len(_LENIENCE) else 1.0
            yield from self._retire(lenience * self._options.leader_margin)
        self._note(self.candidates)
        for candidate in self.candidates:
            # With fewer turns than the others it would not compare with them.
            if candidate.turns < min(least, done):
                candidate.pool()
        yield from self._keep([])

    def _unsettled(self) -> list[CandidateRun]:
        """Those held whose repeats do not agree yet."""
        spread = self._options.leader_spread
        return [candidate for candidate in self.candidates if not settled(candidate.again, spread)]

    def _retire(self, margin: float) -> Iterator[CandidateRun]:
        """Hand out candidates that turned out to be slower than the best by more than a margin."""
        self._best = min([self._best, *(candidate.fastest for candidate in self.candidates)])
        limit = (1.0 + margin) * self._best
        retired = self._keep([run for run in self.candidates if run.fastest <= limit])
        self._note(retired)
        for candidate in retired:
            candidate.pool()
        yield from retired

    def _note(self, candidates: Iterable[CandidateRun]) -> None:
        self.looks += [
            (statistics.median(candidate.repeats), candidate.succeeded().cost)
            for candidate in candidates
            if candidate.turns
        ]

    def _keep(self, stay: list[CandidateRun]) -> list[CandidateRun]:
        """Hold on to some candidates only; returns the others."""
        staying = {id(candidate) for candidate in stay}
        gone = [candidate for candidate in self.candidates if id(candidate) not in staying]
        self.candidates = [candidate for candidate in self.candidates if id(candidate) in staying]
        return gone


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
    def candidates(self) -> list[CandidateRun]:
        """All whose kernels are of use yet."""
        return [*self.built, *self._rounds.candidates]

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
        """Have a candidate timed again that lacked memory, if its worker can hold less.

        Cold caches need copies of the weights that only a kernel that is timed has.

        Returns:
            Those that are done with; the candidate itself if nothing was beside it.
        """
        waiting = self.waits_in(worker)
        for other in waiting[len(waiting) // 2 :]:
            self.built.remove(other)
            other.discard()
            self._pending.append(other)
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


_MIB = 1 << 20


class LocalJobRun:
    """One job.

    Args:
        job: the job.
        context: what it is measured with.
        numbers: numbers that no kernel in a worker has.
        alone: whether it has one worker, which holds its kernels; otherwise it may have all.

    Attributes:
        job: the job.
        timing_phase: times what is built.
    """

    def __init__(
        self, job: MeasureJob, *, context: LocalContext, numbers: Iterator[int], alone: bool
    ) -> None:
        self.job = job
        self._context = context
        self._interrupted = False
        self._known: deque[Measurement] = deque()
        self._pending = deque(
            CandidateRun(config=tuple(int(index) for index in config), slot=next(numbers))
            for config in job.configs
        )
        self._room = context.options.build_ahead * (1 if alone else context.builders.size)
        self.timing_phase = TimingPhase(
            context,
            pending=self._pending,
            best_seconds=job.best_seconds,
            stopped=lambda: self._stopped,
        )
        self._build_phase = BuildPhase(
            preparation=JobPreparation(stage=job.space, task=job.task, context=context),
            pending=self._pending,
            context=context,
            built=self.timing_phase.built.append,
            failed=lambda _, failure: self._known.append(failure),
            most=1 if alone else None,
            keep=alone,
            postponed=self._has_to_hold_less,
        )

    def interrupt(self) -> None:
        """Finish the measurement in flight and begin none after it."""
        self._interrupted = True

    @property
    def _stopped(self) -> bool:
        return self._interrupted or self._context.pool.closed

    @property
    def unfinished(self) -> bool:
        """Whether something is to be built or timed for the first time."""
        return bool(self._pending or self.timing_phase.built) and not self._stopped

    def employ(self) -> bool:
        """Give idle workers what there is to build; whether anything is still to be waited for."""
        if self._stopped:
            return False
        self.timing_phase.rebuild()
        built = self.timing_phase.built
        self._build_phase.employ(self._room - len(built))
        full = not self._pending or len(built) >= self._room
        unchecked = bool(built) and not self._context.reference.ready
        return self._context.builders.busy or not full or unchecked

    def _has_to_hold_less(self, worker: Worker) -> bool:
        """Whether a worker whose memory did not suffice for one kernel more holds any.

        A packed copy of a large layer's weights is hundreds of megabytes, and each kernel has its
        own. Kernels that wait are timed before anything is built again, and no more are built ahead
        than there was room for. If leaders take the room, the slower ones have to do with their
        first timing.
        """
        if self.timing_phase.waits_in(worker):
            self._room = min(self._room, len(self.timing_phase.built))
            return True
        gone = list(self.timing_phase.part_with_leaders(worker))
        self._known.extend(gone)
        return bool(gone)

    def known(self) -> Iterator[Measurement]:
        """Results of candidates that are not timed any more, which were not handed out yet."""
        while self._known:
            yield self._known.popleft()

    def release(self) -> None:
        """Free kernels, end workers that build."""
        self._build_phase.release()
        for candidate in self.timing_phase.candidates:
            candidate.discard()
        if self._build_phase.keeper is not None:
            self._context.builders.give_back(self._build_phase.keeper)


class LocalJobRuns:
    """Measures one job, or several of one configuration each.

    Args:
        runs: the jobs, each by itself.
        context: what any of them is measured with.
    """

    def __init__(self, runs: Sequence[LocalJobRun], context: LocalContext) -> None:
        self._runs = runs
        self._context = context

    def interrupt(self) -> None:
        """Finish the measurement in flight and begin none after it."""
        for run in self._runs:
            run.interrupt()
        self._context.pool.wake()

    def measurements(self) -> Iterator[Arrival]:
        """One measurement per configuration, each as soon as it is known.

        All that can be is built before the first kernel is timed; then job after job is timed.
        """
        try:
            with contextlib.suppress(StoppedError):
                yield from self._build(self._runs)
                for run in self._runs:
                    while run.unfinished:
                        yield from self._build([run])
                        yield from _arrivals(run, run.timing_phase.first_timings())
                        self._recycle()
                    yield from _arrivals(run, run.timing_phase.rounds())
        finally:
            self._release()

    def _build(self, runs: Sequence[LocalJobRun]) -> Iterator[Arrival]:
        """Build until nothing is left to build or the workers hold as much as they may."""
        if len(self._runs) > 1:
            self._context.builders.fill(len(self._runs))
        while True:
            # All of them: the last worker is to begin although the first one is not done.
            waiting = [run.employ() for run in runs]
            if not any(waiting):
                return
            self._context.pool.run_once(None)
            for run in self._runs:
                yield from _arrivals(run, run.known())

    def _recycle(self) -> None:
        """End workers that built much or grew much, unless they hold kernels that are of use."""
        options, builders = self._context.options, self._context.builders
        holding = {each.worker for run in self._runs for each in run.timing_phase.candidates}
        for worker in self._context.pool.workers:
            if worker in holding or not worker.idle:
                continue
            memory = worker.memory
            if worker.first_memory is None:
                worker.first_memory = memory
            grown = memory - worker.first_memory > options.recycle_growth_mib * _MIB
            if worker.built >= options.recycle_after or grown:
                builders.end(worker)

    def _release(self) -> None:
        """Leave idle workers behind."""
        for run in self._runs:
            run.release()
        self._recycle()
        # Their pools of threads spin on for a while, on the cores that the search needs next.
        self._context.pool.quiet()


def _arrivals(run: LocalJobRun, measurements: Iterable[Measurement]) -> Iterator[Arrival]:
    return (Arrival(job=run.job, measurement=measurement) for measurement in measurements)
