"""An actor of Ray's that ends a worker whose kernel hangs as soon as it says so."""

from chameleon_runners._engine.worker_process import WorkerProcess
from chameleon_runners._ray.actor import WorkerActor
from told_hangs import poll_impatiently


class ImpatientHost(WorkerActor):
    """Polls its worker impatiently."""

    def __init__(self, **options):
        WorkerProcess.poll = poll_impatiently
        super().__init__(**options)
