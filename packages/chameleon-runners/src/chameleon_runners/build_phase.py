"""The part of a batch in which nobody looks at a clock: kernels are built, all workers at once."""

from __future__ import annotations

from collections.abc import Iterator

from chameleon_core.measurement import Measurement
from chameleon_core.stages import MeasureJob

from chameleon_runners.batch_state import BatchState
from chameleon_runners.candidates import Candidate
from chameleon_runners.deadlines import Deadlines
from chameleon_runners.local_context import LocalContext
from chameleon_runners.local_pool import Event
from chameleon_runners.preparation import Preparation
from chameleon_runners.worker.protocol import Message
from chameleon_runners.worker_process import WorkerProcess


class BuildPhase:
    """Makes builders, has the reference outputs computed, and builds candidates.

    Args:
        job: the job.
        key: identity of the job's builder.
        context: what it is done with.
        deadlines: the task's time-outs.
        state: where the candidates are.
    """

    def __init__(
        self,
        job: MeasureJob,
        key: str,
        *,
        context: LocalContext,
        deadlines: Deadlines,
        state: BatchState,
    ) -> None:
        self._key = key
        self._pool = context.pool
        self._options = context.options
        self._reference = context.reference
        self._deadlines = deadlines
        self._state = state
        self._preparation = Preparation(
            job.space, job.task, reference=context.reference, threads=context.threads
        )

    def run(self) -> Iterator[Measurement]:
        """Build until nothing is left to build or the workers hold as much as they may."""
        while self.employ():
            for event in self._pool.wait():
                yield from self.handle(event)

    def employ(self) -> bool:
        """Give idle workers what there is to do; whether anything is still to be waited for."""
        if self._state.stopped:
            return False
        room = self._options.build_ahead * self._pool.size
        built, pending = self._state.built, self._state.pending
        self._pool.fill(self._state.count)
        for worker in self._pool.workers:
            if worker.idle and worker.initialised and self._state.still_there(worker):
                self._employ(worker, may_build=len(built) < room)
        busy = any(worker.work is not None for worker in self._pool.workers)
        full = not pending or len(built) >= room
        return busy or not full or (bool(built) and not self._reference.ready)

    def _employ(self, worker: WorkerProcess, *, may_build: bool) -> None:
        """Give an idle worker the most urgent work there is for it, if any."""
        wanted = may_build and self._state.pending
        if worker.opened != self._key:
            if wanted:
                command = self._preparation.open_command
                worker.submit("open", command, self._options.start_timeout)
        elif not self._reference.ready and not self._computing_reference:
            command = self._preparation.reference_command
            worker.submit("reference", command, self._options.reference_timeout)
        elif wanted:
            candidate = self._state.pending.popleft()
            cores = self._pool.cores
            message: Message = {
                "command": "build",
                "slot": candidate.slot,
                "config": candidate.config,
                "cores": [cores[self._pool.position(worker) % len(cores)]],
            }
            candidate.worker = worker
            candidate.build_seconds = 0.0
            worker.built += 1
            worker.submit(candidate, message, self._deadlines.build)

    @property
    def _computing_reference(self) -> bool:
        works = (worker.work for worker in self._pool.workers)
        return any(work is not None and work.tag == "reference" for work in works)

    def handle(self, event: Event) -> Iterator[Measurement]:
        """Take in what happened to a worker while building, or to an idle one."""
        if self._pool.closed:
            return
        if event.end is not None:
            yield from self._state.lost(event)
            if event.tag == "open":
                self._preparation.open_ended(event.end)
            elif event.tag == "reference":
                self._preparation.reference_ended(event.end)
        elif event.reply is None:
            return
        elif event.tag == "open":
            self._preparation.opened(event.reply)
            event.worker.opened = self._key
        elif event.tag == "reference":
            self._preparation.computed(event.reply)
        elif isinstance(event.tag, Candidate):
            yield from self._built(event.tag, event.reply, event.worker.log)

    def _built(self, candidate: Candidate, reply: Message, log: str) -> Iterator[Measurement]:
        """Take in the answer to a build."""
        candidate.build_seconds = reply["elapsed"]
        if reply["status"] == "ok":
            self._deadlines.built(candidate.build_seconds)
            self._state.built.append(candidate)
        elif reply["status"] == "error":
            self._preparation.opened(reply)
        else:
            yield candidate.failed_reply(reply, log)
