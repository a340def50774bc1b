"""How one worker at a time is timed, while all others of this machine are still."""

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
    """The tools that measure kernels if workers time what they have built.

    Attributes:
        pool: the workers.
        options: the runner's options.
        watch: knows whether the cores may be timed on.
        disturbance: what disturbs timing.
    """

    pool: ProcessPool
    options: LocalOptions
    watch: CoreWatch
    disturbance: LocalDisturbance

    def clock(self, worker: Worker, message: Message, timeout: float) -> WorkerEvent:
        """``ask``, once the cores that kernels run on do not hinder each other."""
        self.pool.quiet()
        self.watch.wait()
        with self.disturbance.meter.interval(self.pool.pid_of(worker)):
            return self.ask(worker, message, timeout)

    def ask(self, worker: Worker, message: Message, timeout: float) -> WorkerEvent:
        """Have one worker do something while the others are still.

        Returns:
            Its answer or its end.

        Raises:
            StoppedError: the runner was closed meanwhile.
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
