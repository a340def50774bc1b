"""Jobs on their way through the workers: built in parallel, timed alone, leaders timed again.

Workers build while nobody looks at a clock; then one kernel at a time is checked and timed
while nobody builds.

A job of one configuration keeps a single worker busy: the others wait for the builder to be made,
the expected outputs to be computed, and the kernel to be built, which is nearly all that it takes.
So as many such jobs as there are workers have that done at the same time, each by one worker.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from chameleon_core.measurement import Measurement
from chameleon_core.stages import Arrival, MeasureJob

from chameleon_runners.engine.build_phase import BuildPhase
from chameleon_runners.engine.candidate_run import CandidateRun
from chameleon_runners.engine.workers import StoppedError, Worker
from chameleon_runners.local.context import LocalContext
from chameleon_runners.local.timing_phase import TimingPhase

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
        self,
        job: MeasureJob,
        *,
        context: LocalContext,
        numbers: Iterator[int],
        alone: bool,
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
            context.preparation(job),
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
        own. What waits to be timed is timed before anything is built again, and no more is built
        ahead than there was room for; where leaders take the room, the slower ones have to do
        with their first timing.
        """
        if self.timing_phase.waits_in(worker):
            self._room = min(self._room, len(self.timing_phase.built))
            return True
        gone = list(self.timing_phase.part_with_leaders(worker))
        self._known.extend(gone)
        return bool(gone)

    def known(self) -> Iterator[Measurement]:
        """What is known of candidates that are not timed any more, and was not handed out yet."""
        while self._known:
            yield self._known.popleft()

    def release(self) -> None:
        """Free kernels, end workers that build."""
        self._build_phase.release()
        for candidate in self.timing_phase.held:
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
        holding = {one.worker for run in self._runs for one in run.timing_phase.held}
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
    return (Arrival(job=run.job, measurement=one) for one in measurements)
