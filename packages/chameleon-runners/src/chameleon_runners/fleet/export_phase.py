"""Builds the candidates of one batch for devices, and computes what their outputs should be."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from chameleon_core.errors import PluginError
from chameleon_core.measurement import Measurement
from chameleon_core.stages import MeasureJob

from chameleon_runners.deadlines import Deadlines
from chameleon_runners.fleet.builder_pool import BuilderPool
from chameleon_runners.fleet.options import FleetOptions
from chameleon_runners.fleet.remote_candidate import RemoteCandidate
from chameleon_runners.fleet.workers import Worker, WorkerEvent
from chameleon_runners.preparation import Preparation
from chameleon_runners.references import Reference


class ExportPhase:
    """Has a batch's candidates built, a few ahead of the devices.

    Args:
        job: the job.
        key: identity of the job's builder.
        pending: candidates to build.
        builders: lends the builders.
        reference: the task's expected outputs.
        deadlines: the task's time-outs.
        options: the runner's options.
        built: told of each candidate that is built.
        failed: told of each that is not, and how that is to be recorded.
    """

    def __init__(
        self,
        job: MeasureJob,
        key: str,
        *,
        pending: deque[RemoteCandidate],
        builders: BuilderPool,
        reference: Reference,
        deadlines: Deadlines,
        options: FleetOptions,
        built: Callable[[RemoteCandidate], None],
        failed: Callable[[RemoteCandidate, Measurement], None],
    ) -> None:
        self._job = job
        self._key = key
        self._pending = pending
        self._builders = builders
        self._reference = reference
        self._deadlines = deadlines
        self._options = options
        self._built = built
        self._failed = failed
        self._preparation = Preparation(
            job.space, job.task, reference=reference, threads=options.threads
        )
        self._working: dict[Worker, bool] = {}
        """Who is at work, and whether that is of use when the batch is given up."""
        self._computing = False
        self._released = False
        self.under_way = 0

    def employ(self, room: int) -> None:
        """Give idle builders work.

        Args:
            room: how many candidates may be built or be under way.
        """
        self._builders.fill(max(1, len(self._pending) + len(self._working)))
        while self._missing_reference or (self._pending and self.under_way < room):
            worker = self._builders.take()
            if worker is None:
                return
            self._begin(worker)

    @property
    def _missing_reference(self) -> bool:
        return not (self._reference.ready or self._computing)

    def _begin(self, worker: Worker) -> None:
        """Give a builder the most urgent work there is for it."""
        options = self._options
        if worker.opened != self._key:
            self._working[worker] = True
            message, timeout = self._preparation.open_command, options.start_timeout
            self._builders.submit(worker, self._opened, message, timeout)
        elif self._missing_reference:
            self._computing = True
            self._working[worker] = False
            message, timeout = self._preparation.reference_command, options.reference_timeout
            self._builders.submit(worker, self._computed, message, timeout)
        else:
            candidate = self._pending.popleft()
            self._working[worker] = False
            self.under_way += 1
            worker.built += 1
            message = {
                "command": "export",
                "config": candidate.config,
                "artifact": str(candidate.artifact),
            }
            then = partial(self._exported, candidate)
            self._builders.submit(worker, then, message, self._deadlines.build)

    def _done(self, event: WorkerEvent) -> None:
        self._working.pop(event.worker, None)
        self._builders.give_back(event.worker)

    def _opened(self, event: WorkerEvent) -> None:
        if event.reply is not None and event.reply["status"] == "ok":
            event.worker.opened = self._key
        self._done(event)
        if self._released:
            return
        if event.end is not None:
            self._preparation.open_ended(event.end)
        elif event.reply is not None:
            self._preparation.opened(event.reply)

    def _computed(self, event: WorkerEvent) -> None:
        self._computing = False
        self._done(event)
        if event.end is not None:
            self._preparation.reference_ended(event.end)
        elif event.reply is not None:
            self._preparation.computed(event.reply)

    def _exported(self, candidate: RemoteCandidate, event: WorkerEvent) -> None:
        self.under_way -= 1
        log = event.worker.log
        self._done(event)
        reply, end = event.reply, event.end
        if end is not None:
            candidate.build_seconds = end.seconds
            candidate.discard()
            if end.from_outside and candidate.losses < self._options.retries:
                candidate.losses += 1
                self._pending.append(candidate)
            else:
                self._failed(candidate, candidate.ended(end, building=True))
        elif reply is not None:
            candidate.build_seconds = reply["elapsed"]
            if reply["status"] == "ok":
                self._deadlines.built(candidate.build_seconds)
                self._built(candidate)
            elif reply["status"] == "none":
                raise PluginError(
                    f"candidates of {self._job.space.factory!r} cannot be sent to devices: "
                    f"{reply['message']}",
                    hint="its builder has to implement export(); or use the runner 'local'",
                )
            else:
                self._failed(candidate, candidate.failed_reply(reply, log))

    def release(self) -> None:
        """End builders whose work nobody waits for; those that open go on."""
        self._released = True
        for worker, useful in list(self._working.items()):
            if not useful:
                self._builders.end(worker)
        self._working.clear()
