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

from chameleon_runners.bench import Bench
from chameleon_runners.building import Building
from chameleon_runners.clocking import Clocking
from chameleon_runners.deadlines import Deadlines
from chameleon_runners.ledger import Ledger, drop
from chameleon_runners.process import EndReason

_MIB = 1 << 20


def stage_key(stage: StageRef, task: Task) -> str:
    """Identity of a builder: the stage, its options and the task."""
    return json.dumps([stage.factory, stage.options, task.key], sort_keys=True)


class Batch:
    """Measures one job.

    Args:
        job: the job.
        bench: what it is measured with.
        deadlines: the task's time-outs.
        first_slot: a number from which on slots are unused.

    Attributes:
        building: its first part.
    """

    def __init__(
        self, job: MeasureJob, *, bench: Bench, deadlines: Deadlines, first_slot: int
    ) -> None:
        self._crew = bench.crew
        self._options = bench.options
        self._ledger = Ledger(job, crew=bench.crew, options=bench.options, first_slot=first_slot)
        self.building = Building(
            job,
            stage_key(job.space, job.task),
            bench=bench,
            deadlines=deadlines,
            ledger=self._ledger,
        )
        self._clocking = Clocking(
            bench=bench, deadlines=deadlines, ledger=self._ledger, best_seconds=job.best_seconds
        )

    def interrupt(self) -> None:
        """Finish the measurement in flight and yield no more after it."""
        self._ledger.interrupt()
        self._crew.wake()

    def run(self) -> Iterator[Measurement]:
        """Yield one measurement per configuration, each as soon as it is known."""
        ledger = self._ledger
        try:
            while (ledger.pending or ledger.built) and not ledger.stopped:
                yield from self.building.run()
                yield from self._clocking.first_timings()
                self._recycle()
            yield from self._clocking.rounds()
        finally:
            self.release()

    def _recycle(self) -> None:
        """End workers that built much or grew much, unless they hold leaders."""
        holding = {id(candidate.worker) for candidate in self._ledger.rounds.held}
        for worker in self._crew.workers:
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
        for worker in self._crew.workers:
            if worker.work is not None and worker.work.tag != "init":
                worker.kill(EndReason.DEADLINE)
        for candidate in [*self._ledger.built, *self._ledger.rounds.held]:
            drop(candidate)
        self._recycle()
        # Their pools of threads spin on for a while, on the cores that the search needs next.
        self._crew.quiet()
