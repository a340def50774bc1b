"""Timing on this machine, one worker at a time, and the disturbance of the timing."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import attrs
from chameleon_core.plugin_api import Disturbance, Measurement
from chameleon_system.api import CoreWatch

from chameleon_runners._core_meter import CoreMeter
from chameleon_runners._engine.context import MeasureContext
from chameleon_runners._engine.process_pool import ProcessPool
from chameleon_runners._engine.workers import Worker, WorkerEvent
from chameleon_runners._local.options import LocalOptions
from chameleon_runners._speed import SpeedLog
from chameleon_runners._worker.protocol import Message

RepeatTimings = tuple[float, float]
"""A candidate's cost in seconds when it was timed first, and when it was timed again."""


class LocalDisturbance:
    """Counts how much other programs and noise disturb the timing of a runner.

    Attributes:
        meter: counts how long other programs used the cores.
        speed: the speeds of the cores during timings.
    """

    def __init__(self, meter: CoreMeter) -> None:
        self.meter = meter
        self.speed = SpeedLog()
        self._pairs = self._kept = 0

    def add_repeat_timings(self, candidates: Sequence[RepeatTimings]) -> None:
        """Add the fastest candidates of one batch, which were timed twice."""
        pairs, agreeing = count_same_order(candidates)
        self._pairs += pairs
        self._kept += agreeing

    @property
    def total(self) -> Disturbance:
        """The disturbance since the runner was made."""
        return Disturbance(
            core_seconds=self.meter.seconds,
            stolen_seconds=self.meter.stolen,
            others_seconds=self.meter.others,
            pairs=self._pairs,
            kept=self._kept,
            speeds={name: dict(counts) for name, counts in self.speed.counts.items()},
            usual_speeds=self.speed.usual,
            timed_again=self.speed.timed_again,
        )


def count_same_order(candidates: Sequence[RepeatTimings]) -> tuple[int, int]:
    """Count pairs of candidates, and those with the same order in both timings.

    ``candidates`` has the first and the second cost of each candidate, in seconds.
    """
    orders = [
        (first - other_first) * (again - other_again) > 0.0
        for (first, again), (other_first, other_again) in combinations(candidates, 2)
        if abs(again - other_again) > Measurement.TIE * min(again, other_again)
    ]
    return len(orders), sum(orders)


@attrs.frozen(kw_only=True, eq=False)
class LocalContext(MeasureContext):
    """A ``MeasureContext`` for kernels that are timed by the workers that built them.

    Attributes:
        watch: waits until the cores do not slow each other down.
        disturbance: counts how much other programs disturb timing.
    """

    pool: ProcessPool
    options: LocalOptions
    watch: CoreWatch
    disturbance: LocalDisturbance

    def clock(self, worker: Worker, message: Message, timeout: float) -> WorkerEvent:
        """Send a timing command to a worker, after other programs have left the cores free."""
        self.pool.pause_idle()
        self.watch.wait()
        with self.disturbance.meter.interval(self.pool.pid_of(worker)):
            return self.ask(worker, message, timeout)

    def ask(self, worker: Worker, message: Message, timeout: float) -> WorkerEvent:
        """Send a command to one worker while all other idle workers are paused."""
        self.pool.pause_idle(active=worker)
        event = None
        try:
            event = self.pool.ask(worker, message, timeout, lambda: self.pool.run_once(None))
        finally:
            if event is None:
                self.builders.end(worker)
            elif event.end is not None:
                self.builders.forget(worker)
        return event
