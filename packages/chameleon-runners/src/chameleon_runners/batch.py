"""One job on its way through the workers: built in parallel, timed alone, leaders timed again.

Workers build while nobody looks at a clock; then one kernel at a time is checked and timed
while nobody builds. A worker that dies takes one candidate with it, the one at work: kernels
it held besides are built again elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from chameleon_core.measurement import Measurement
from chameleon_core.stages import MeasureJob, StageRef
from chameleon_core.task import Task

from chameleon_runners.batch_state import BatchState, drop
from chameleon_runners.build_phase import BuildPhase
from chameleon_runners.deadlines import Deadlines
from chameleon_runners.local_context import LocalContext
from chameleon_runners.timing_phase import TimingPhase
from chameleon_runners.worker_process import EndReason

_MIB = 1 << 20


def stage_key(stage: StageRef, task: Task) -> str:
    """Identity of a builder: the stage, its options and the task."""
    return json.dumps([stage.factory, stage.options, task.key], sort_keys=True)


class Batch:
    """Measures one job.

    Args:
        job: the job.
        context: what it is measured with.
        deadlines: the task's time-outs.
        first_slot: a number from which on slots are unused.

    Attributes:
        building: its first part.
    """

    def __init__(
        self, job: MeasureJob, *, context: LocalContext, deadlines: Deadlines, first_slot: int
    ) -> None:
        self._pool = context.pool
        self._options = context.options
        self._state = BatchState(
            job, pool=context.pool, options=context.options, first_slot=first_slot
        )
        self.build_phase = BuildPhase(
            job,
            stage_key(job.space, job.task),
            context=context,
            deadlines=deadlines,
            state=self._state,
        )
        self._timing_phase = TimingPhase(
            context=context, deadlines=deadlines, state=self._state, best_seconds=job.best_seconds
        )

    def interrupt(self) -> None:
        """Finish the measurement in flight and yield no more after it."""
        self._state.interrupt()
        self._pool.wake()

    def run(self) -> Iterator[Measurement]:
        """Yield one measurement per configuration, each as soon as it is known."""
        state = self._state
        try:
            while (state.pending or state.built) and not state.stopped:
                yield from self.build_phase.run()
                yield from self._timing_phase.first_timings()
                self._recycle()
            yield from self._timing_phase.rounds()
        finally:
            self.release()

    def _recycle(self) -> None:
        """End workers that built much or grew much, unless they hold leaders."""
        holding = {id(candidate.worker) for candidate in self._state.rounds.held}
        for worker in self._pool.workers:
            if id(worker) in holding or not worker.idle or not worker.initialised:
                continue
            memory = worker.memory
            if worker.first_memory is None:
                worker.first_memory = memory
            grown = memory - worker.first_memory > self._options.recycle_growth_mib * _MIB
            if worker.built >= self._options.recycle_after or grown:
                worker.kill(EndReason.DEADLINE)

    def release(self) -> None:
        """Leave idle workers behind: free kernels, end workers that are still at work."""
        for worker in self._pool.workers:
            if worker.work is not None and worker.work.tag != "init":
                worker.kill(EndReason.DEADLINE)
        for candidate in [*self._state.built, *self._state.rounds.held]:
            drop(candidate)
        self._recycle()
        # Their pools of threads spin on for a while, on the cores that the search needs next.
        self._pool.quiet()
