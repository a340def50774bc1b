"""Timing on this machine, one worker at a time."""

from __future__ import annotations

import attrs
from chameleon_system.api import CoreWatch

from chameleon_runners._engine.context import MeasureContext
from chameleon_runners._engine.process_pool import ProcessPool
from chameleon_runners._engine.workers import Worker, WorkerEvent
from chameleon_runners._local.disturbance import LocalDisturbance
from chameleon_runners._local.options import LocalOptions
from chameleon_runners._worker.protocol import Message


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
