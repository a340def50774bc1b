"""Timing on this machine: one worker runs while all others are paused."""

from __future__ import annotations

import attrs
from chameleon_system.cores import CoreWatch

from chameleon_runners.engine.context import MeasureContext
from chameleon_runners.engine.process_pool import ProcessPool
from chameleon_runners.engine.workers import Worker, WorkerEvent
from chameleon_runners.local.disturbance import LocalDisturbance
from chameleon_runners.local.options import LocalOptions
from chameleon_runners.worker.protocol import Message


@attrs.frozen(kw_only=True, eq=False)
class LocalContext(MeasureContext):
    """A ``MeasureContext`` for kernels that are timed by the workers that built them.

    Attributes:
        pool: The workers.
        options: The runner's options.
        watch: The object that waits until the cores are free enough for timing.
        disturbance: The object that records how much other programs disturb timing.
    """

    pool: ProcessPool
    options: LocalOptions
    watch: CoreWatch
    disturbance: LocalDisturbance

    def clock(self, worker: Worker, message: Message, timeout: float) -> WorkerEvent:
        """Send a timing command to a worker, after other programs have left the cores free.

        All other idle workers are paused, and the use of the cores by other programs is recorded.

        Args:
            worker: The worker.
            message: The command.
            timeout: The time limit in seconds.
        """
        self.pool.quiet()
        self.watch.wait()
        with self.disturbance.meter.interval(self.pool.pid_of(worker)):
            return self.ask(worker, message, timeout)

    def ask(self, worker: Worker, message: Message, timeout: float) -> WorkerEvent:
        """Send a command to one worker while all other idle workers are paused.

        Args:
            worker: The worker.
            message: The command.
            timeout: The time limit in seconds.

        Returns:
            The worker's answer or its end.

        Raises:
            StoppedError: The runner was closed meanwhile.
        """
        self.pool.quiet(besides=worker)
        event = None
        try:
            event = self.pool.ask(worker, message, timeout, lambda: self.pool.run_once(None))
        finally:
            if event is None:
                self.builders.end(worker)
            elif event.end is not None:
                self.builders.forget(worker)
        return event
