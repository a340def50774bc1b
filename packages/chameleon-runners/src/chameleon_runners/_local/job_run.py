"""The measurement of jobs on this machine: build in parallel, time one kernel at a time.

No kernel is timed while a worker builds. The fastest kernels of a batch are timed again in turns.
Several jobs with one configuration each are built at the same time, each in one worker.
"""

from __future__ import annotations

import contextlib
import statistics
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

import attrs
import numpy as np
from chameleon_core.plugin_api import FailureKind, MeasureJob, Measurement, MeasureStream

from chameleon_runners._engine.build_phase import BuildPhase
from chameleon_runners._engine.context import CandidateRun
from chameleon_runners._engine.preparation import JobPreparation
from chameleon_runners._engine.workers import EndReason, StoppedError, Worker, WorkerEvent
from chameleon_runners._local.context import LocalContext
from chameleon_runners._local.disturbance import SURVEY, SURVEY_PAUSE, RepeatTimings
from chameleon_runners._local.options import LocalOptions
from chameleon_runners._timing import has_converged
from chameleon_runners._worker.protocol import Message

_LEAST_ROUNDS = 14
"""The least number of rounds of the fastest candidates, since one of them may be disturbed."""

_FEWEST_TURNS = 2
"""The least number of turns of a candidate that replace its first timing."""

_CANDIDATES_PER_ROUND = 2
"""A small batch has one round for this many candidates, since more take longer than its builds."""

_SMALL_BATCH = 8
"""A batch of at most this size has at most as many rounds, and turns that are half as long."""

_MARGIN_FACTORS = (40.0, 40.0, 8.0, 3.0)
"""Factors on the option ``leader_margin`` after each of the first rounds, in which a candidate may
have been disturbed."""


_MOST_RETRIES, _MOST_CHANGES, _MOST_TURNS = 2, 4, 8
"""How often a first timing is repeated at an unusual speed, and after a change of the speed. Then
how often a turn is taken."""

_MOST_SURVEYS = 4
"""How often the speed of instructions is surveyed until it agrees with the speed of others."""


def clock_command(readings: int) -> Message:
    """The part of a command that says how often a worker reads the clock before a timing."""
    return {"clock": readings, "clock_pause": SURVEY_PAUSE}


class Rounds:
    """The fastest candidates of one batch, whose kernels are kept to be timed again in turns.

    Attributes:
        repeat_timings: the first time of each candidate that was timed again, and its time after
            the turns, in seconds.
    """

    def __init__(self, options: LocalOptions, best_seconds: float, *, final: bool = False) -> None:
        self._options = options
        self._best = best_seconds
        self._final = final
        self._admitted = 0
        # Made now, since NumPy's import of its generators can swallow Ctrl+C.
        self._generator = np.random.default_rng(0)
        self.candidates: list[CandidateRun] = []
        self.repeat_timings: list[RepeatTimings] = []

    def admit(self, candidate: CandidateRun) -> list[CandidateRun]:
        """Keep a timed candidate loaded for more repeats, and return the candidates to unload."""
        self._admitted += 1
        self._best = min(self._best, candidate.fastest)
        self.candidates.append(candidate)
        self.candidates.sort(key=lambda run: run.fastest)
        limit = self._options.slow_factor * self._best
        retained = [run for run in self.candidates if run.fastest <= limit][: self._options.leaders]
        return self._retain(retained)

    def drop_slower_half(self, worker: Worker) -> list[CandidateRun]:
        """Drop the slower half of a worker's kept candidates, to free the worker's memory."""
        held = [run for run in self.candidates if run.worker is worker]
        slower = {id(run) for run in held[len(held) // 2 :]}
        return self._retain([run for run in self.candidates if id(run) not in slower])

    def run(
        self, time_again: Callable[[CandidateRun], None], stopped: Callable[[], bool]
    ) -> Iterator[CandidateRun]:
        """Time the candidates in turns, and yield each when its time is known well enough."""
        least_for_size = max(len(_MARGIN_FACTORS), self._admitted // _CANDIDATES_PER_ROUND)
        most = self._options.leader_rounds
        if not self._final:
            most = min(most, max(_SMALL_BATCH, self._admitted))
        least = min(_LEAST_ROUNDS, most if self._final else least_for_size, most)
        done = 0
        while done < most and not stopped():
            candidates = self.candidates if done < least else self._unsettled()
            if not candidates:
                break
            for index in self._generator.permutation(len(candidates)).tolist():
                if stopped():
                    break
                time_again(candidates[index])
            done += 1
            yield from self._retain([run for run in self.candidates if run.failure is None])
            factor = _MARGIN_FACTORS[done - 1] if done <= len(_MARGIN_FACTORS) else 1.0
            yield from self._retire(factor * self._options.leader_margin)
        self._record_timings(self.candidates)
        for candidate in self.candidates:
            # A candidate with fewer turns than the others is not comparable by turns.
            if candidate.turns < max(_FEWEST_TURNS, min(least, done)):
                candidate.merge_turns()
        yield from self._retain([])

    def _unsettled(self) -> list[CandidateRun]:
        """The kept candidates whose fastest repeats do not agree yet."""
        spread = self._options.leader_spread
        return [
            candidate
            for candidate in self.candidates
            if not has_converged(candidate.turn_repeats, spread)
        ]

    def _retire(self, margin: float) -> Iterator[CandidateRun]:
        """Yield the candidates that are slower than the best by more than a relative margin."""
        self._best = min([self._best, *(candidate.fastest for candidate in self.candidates)])
        limit = (1.0 + margin) * self._best
        retired = self._retain([run for run in self.candidates if run.fastest <= limit])
        self._record_timings(retired)
        for candidate in retired:
            candidate.merge_turns()
        yield from retired

    def _record_timings(self, candidates: Iterable[CandidateRun]) -> None:
        self.repeat_timings += [
            (statistics.median(candidate.repeats), candidate.succeeded().cost)
            for candidate in candidates
            if candidate.turns
        ]

    def _retain(self, retained: list[CandidateRun]) -> list[CandidateRun]:
        """Retain only some candidates, and return the others."""
        retained_ids = {id(candidate) for candidate in retained}
        dropped = [candidate for candidate in self.candidates if id(candidate) not in retained_ids]
        self.candidates = [
            candidate for candidate in self.candidates if id(candidate) in retained_ids
        ]
        return dropped


class TimingPhase:
    """Checks and times built candidates, then times the fastest ones again in turns.

    Attributes:
        built: the built candidates that wait to be timed.
        memory_exceeded: whether kernels that one worker held together exceeded its memory limit.
    """

    def __init__(
        self,
        context: LocalContext,
        *,
        pending: deque[CandidateRun],
        failed: Callable[[Measurement], None],
        best_seconds: float,
        stopped: Callable[[], bool],
        final: bool = False,
    ) -> None:
        self._context = context
        self._pending = pending
        self._failed = failed
        self._best = best_seconds
        self._stopped = stopped
        self._rounds = Rounds(context.options, best_seconds, final=final)
        self.built: deque[CandidateRun] = deque()
        self.memory_exceeded = False

    @property
    def candidates(self) -> list[CandidateRun]:
        """All candidates whose kernels are still needed."""
        return [*self.built, *self._rounds.candidates]

    def rebuild(self) -> None:
        """Build waiting candidates again whose worker has ended."""
        for candidate in list(self.built):
            if candidate.worker is None or not candidate.worker.alive:
                self.built.remove(candidate)
                self._requeue(candidate)

    def _requeue(self, candidate: CandidateRun) -> None:
        """Queue a candidate whose worker has ended, unless each worker lacks memory for it."""
        failure = (
            None if self._shared(candidate) else candidate.memory_failure(self._context.retries)
        )
        if failure is None:
            self._pending.append(candidate)
        else:
            self._failed(failure)

    def _shared(self, candidate: CandidateRun) -> bool:
        """Whether a candidate shared a worker with others that together exceeded its memory."""
        worker = candidate.worker
        if worker is None or worker.end is None or worker.end.reason is not EndReason.MEMORY:
            return False
        shared = any(each.worker is worker for each in self.candidates if each is not candidate)
        self.memory_exceeded |= shared
        return shared

    def first_timings(self) -> Iterator[Measurement]:
        """Check and time all built candidates, and yield measurements that are final."""
        context = self._context
        while self.built and not self._stopped():
            candidate = self.built.popleft()
            worker = candidate.worker
            if worker is None or not context.pool.is_alive(worker):
                self._requeue(candidate)
                continue
            event = self._first_timing(candidate, worker)
            yield from self._finish(self._first_timed(candidate, event))

    def _first_timing(self, candidate: CandidateRun, worker: Worker) -> WorkerEvent:
        """Check and time a candidate, again if the cores changed or had an unusual speed."""
        context, speed = self._context, self._context.disturbance.speed
        readings = int(context.options.clock)
        attempts = surveys = 0
        while True:
            best = speed.at_present(self._best)
            message = context.measure_command(candidate, best=best, cores=context.clock_cores)
            limit = context.deadlines.run(best) + readings * SURVEY_PAUSE
            event = context.clock(worker, {**message, **clock_command(readings)}, limit)
            if not event.ok or event.reply is None:
                return event
            clock = event.reply["clock"]
            if clock is not None and not speed.knows(clock):
                clear = surveys > 0 and speed.matches(clock)
                if not clear and surveys < _MOST_SURVEYS:
                    readings, surveys = SURVEY, surveys + 1
                    continue
            relative = speed.relative_speed(clock)
            candidate.speed = relative or speed.mean_speed(clock)
            unclear = relative is None or speed.is_worth_waiting(relative)
            if not unclear or attempts >= (_MOST_CHANGES if relative is None else _MOST_RETRIES):
                return event
            readings, attempts = 1, attempts + 1
            speed.timed_again += 1

    def waiting_in(self, worker: Worker) -> list[CandidateRun]:
        """The built candidates in a worker that wait to be timed."""
        return [candidate for candidate in self.built if candidate.worker is worker]

    def drop_leaders(self, worker: Worker) -> Iterator[Measurement]:
        """Free the slower half of the kernels that a worker keeps for a second timing."""
        yield from self._finish(self._rounds.drop_slower_half(worker))

    def rounds(self) -> Iterator[Measurement]:
        """Time the fastest candidates again in turns, and yield their measurements."""
        yield from self._finish(self._rounds.run(self._time_again, self._stopped))
        self._context.disturbance.add_repeat_timings(self._rounds.repeat_timings)

    def _first_timed(self, candidate: CandidateRun, event: WorkerEvent) -> list[CandidateRun]:
        """Handle the result of the first timing; return the candidates that are finished."""
        reply, end = event.reply, event.end
        if end is not None:
            candidate.run_seconds = end.seconds
            if self._shared(candidate) or candidate.should_retry(end, self._context.retries):
                self._pending.append(candidate)
                return []
            candidate.failure = candidate.ended(end, building=False)
        elif reply is not None:
            candidate.run_seconds = reply["elapsed"]
            if reply["status"] == "ok":
                return self._timed(candidate, reply)
            candidate.failure = candidate.failed_reply(reply, event.worker.log)
            if candidate.failure.failure is FailureKind.OUT_OF_MEMORY:
                return self._retry_with_more_memory(candidate, event.worker)
        return [candidate]

    def _retry_with_more_memory(
        self, candidate: CandidateRun, worker: Worker
    ) -> list[CandidateRun]:
        """Time a candidate again that ran out of memory, if its worker can free other kernels."""
        waiting = self.waiting_in(worker)
        for other in waiting[len(waiting) // 2 :]:
            self.built.remove(other)
            other.discard()
            self._pending.append(other)
        dropped = [] if waiting else self._rounds.drop_slower_half(worker)
        if not waiting and not dropped:
            return [candidate]
        candidate.failure = None
        self.built.appendleft(candidate)
        return dropped

    def _timed(self, candidate: CandidateRun, reply: Message) -> list[CandidateRun]:
        self._context.deadlines.ran(candidate.run_seconds)
        candidate.repeats = tuple(candidate.speed * seconds for seconds in reply["seconds"])
        candidate.number = reply["number"]
        candidate.error = reply["error"]
        self._best = min(self._best, float(np.median(candidate.repeats)))
        return self._rounds.admit(candidate)

    @staticmethod
    def _finish(candidates: Iterable[CandidateRun]) -> Iterator[Measurement]:
        """Free the kernels of finished candidates, and yield their measurements."""
        for candidate in candidates:
            candidate.discard()
            yield candidate.failure or candidate.succeeded()

    def _time_again(self, candidate: CandidateRun) -> None:
        """Time a candidate for one more turn, at the usual speed if that comes back soon."""
        speed = self._context.disturbance.speed
        for _ in range(_MOST_TURNS):
            relative = self._time_turn(candidate)
            ended = candidate.worker is None or candidate.failure is not None
            if ended or not speed.is_worth_waiting(relative):
                break
            speed.timed_again += 1

    def _time_turn(self, candidate: CandidateRun) -> float | None:
        """Time a candidate for one turn if its worker is alive, and return the relative speed."""
        context, worker = self._context, candidate.worker
        if worker is None or not context.pool.is_alive(worker):
            candidate.worker = None
            return None
        message = {**context.turn_command(candidate), **clock_command(int(context.options.clock))}
        event = context.clock(worker, message, context.options.run_timeout)
        if event.end is not None:
            candidate.worker = None
            if not event.end.killed_externally:
                candidate.failure = candidate.ended(event.end, building=False)
        elif event.reply is not None and event.reply["status"] == "ok":
            clock = event.reply["clock"]
            speed = context.disturbance.speed.relative_speed(clock)
            candidate.too_fast = context.disturbance.speed.too_fast(clock)
            candidate.add_turn(event.reply["seconds"], event.reply["disturbed"], speed=speed)
            candidate.run_seconds += event.reply["elapsed"]
            return speed
        elif event.reply is not None:
            candidate.failure = candidate.failed_reply(event.reply, worker.log)
        return None


_MIB = 1 << 20


class LocalJobRun:
    """The measurement of one job on this machine."""

    def __init__(
        self, job: MeasureJob, *, context: LocalContext, numbers: Iterator[int], single_worker: bool
    ) -> None:
        self.job = job
        if context.options.leader_rounds > 1 and len(job.configs) <= context.options.leaders:
            # The rounds time all kernels again, so the repeats of the first timing need not agree.
            policy = attrs.evolve(context.policy, max_repeats=context.policy.min_repeats)
            if len(job.configs) <= _SMALL_BATCH and not job.final:
                policy = attrs.evolve(policy, turn_seconds=policy.turn_seconds / 2.0)
            context = attrs.evolve(context, policy=policy)
        self._context = context
        self._interrupted = False
        self._finished: deque[Measurement] = deque()
        self._pending = deque(
            CandidateRun(config=tuple(int(index) for index in config), slot=next(numbers))
            for config in job.configs
        )
        self._room = context.options.build_ahead * (1 if single_worker else context.builders.size)
        self.timing_phase = TimingPhase(
            context,
            pending=self._pending,
            failed=self._finished.append,
            best_seconds=job.best_seconds,
            stopped=lambda: self._stopped,
            final=job.final,
        )
        self._build_phase = BuildPhase(
            preparation=JobPreparation(stage=job.space, task=job.task, context=context),
            pending=self._pending,
            context=context,
            built=self.timing_phase.built.append,
            failed=lambda _, failure: self._finished.append(failure),
            max_workers=1 if single_worker else None,
            reserve_worker=single_worker,
            retry_build_later=self._free_kernels,
        )

    def interrupt(self) -> None:
        """Finish the running measurement, and start no new one."""
        self._interrupted = True

    @property
    def _stopped(self) -> bool:
        return self._interrupted or self._context.pool.closed

    @property
    def unfinished(self) -> bool:
        """Whether candidates remain to be built, or to be timed for the first time."""
        return bool(self._pending or self.timing_phase.built) and not self._stopped

    def dispatch(self) -> bool:
        """Give idle workers candidates to build; return whether builds are unfinished."""
        if self._stopped:
            return False
        self.timing_phase.rebuild()
        built = self.timing_phase.built
        if self.timing_phase.memory_exceeded:
            self._room = 1
        self._build_phase.dispatch(self._room - len(built))
        full = not self._pending or len(built) >= self._room
        unchecked = bool(built) and not self._context.reference.ready
        return self._context.builders.busy or not full or unchecked

    def _free_kernels(self, worker: Worker) -> bool:
        """Whether a worker that ran out of memory in a build holds kernels that can be freed."""
        if self.timing_phase.waiting_in(worker):
            self._room = min(self._room, len(self.timing_phase.built))
            return True
        dropped = list(self.timing_phase.drop_leaders(worker))
        self._finished.extend(dropped)
        return bool(dropped)

    def finished(self) -> Iterator[Measurement]:
        """Results of candidates that are not timed any more, each once."""
        while self._finished:
            yield self._finished.popleft()

    def release(self) -> None:
        """Free the kernels, and end the workers that still build."""
        self._build_phase.release()
        for candidate in self.timing_phase.candidates:
            candidate.discard()
        if self._build_phase.reserved_worker is not None:
            self._context.builders.give_back(self._build_phase.reserved_worker)


class LocalJobRuns:
    """Measures one job, or several jobs with one configuration each."""

    def __init__(self, runs: Sequence[LocalJobRun], context: LocalContext) -> None:
        self._runs = runs
        self._context = context

    def interrupt(self) -> None:
        """Finish the running measurement, and start no new one."""
        for run in self._runs:
            run.interrupt()
        self._context.pool.wake()

    def measurements(self) -> Iterator[MeasureStream.Arrival]:
        """Yield one measurement for each configuration of the jobs, as soon as it is known."""
        try:
            with contextlib.suppress(StoppedError):
                yield from self._build(self._runs)
                for run in self._runs:
                    while run.unfinished:
                        yield from self._build([run])
                        yield from _arrivals(run, run.timing_phase.first_timings())
                        self._recycle()
                    yield from _arrivals(run, run.finished())
                    yield from _arrivals(run, run.timing_phase.rounds())
        finally:
            self._release()

    def _build(self, runs: Sequence[LocalJobRun]) -> Iterator[MeasureStream.Arrival]:
        """Build until all is built, or until the workers hold as many kernels as allowed."""
        if len(self._runs) > 1:
            self._context.builders.fill(len(self._runs))
        while True:
            # The list makes all runs dispatch their builds, which `any` alone would not.
            waiting = [run.dispatch() for run in runs]
            if not any(waiting):
                return
            self._context.pool.run_once(None)
            for run in self._runs:
                yield from _arrivals(run, run.finished())

    def _recycle(self) -> None:
        """End idle workers after many builds or much memory growth, unless a kernel is needed."""
        options, builders = self._context.options, self._context.builders
        holding = {each.worker for run in self._runs for each in run.timing_phase.candidates}
        for worker in self._context.pool.workers:
            if worker in holding or not worker.idle:
                continue
            memory = worker.memory
            if worker.first_memory is None:
                worker.first_memory = memory
            grown = memory - worker.first_memory > options.recycle_growth_mib * _MIB
            if worker.build_count >= options.recycle_after or grown:
                builders.end(worker)

    def _release(self) -> None:
        """Release all jobs, and pause the workers."""
        for run in self._runs:
            run.release()
        self._recycle()
        # Threads of idle workers would keep spinning on the cores that the search needs next.
        self._context.pool.pause_idle()


def _arrivals(
    run: LocalJobRun, measurements: Iterable[Measurement]
) -> Iterator[MeasureStream.Arrival]:
    return (
        MeasureStream.Arrival(job=run.job, measurement=measurement) for measurement in measurements
    )
