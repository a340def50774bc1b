"""The phase in which workers build candidates and compute the reference outputs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

import attrs
from chameleon_core.plugin_api import FailureKind, Measurement

from chameleon_runners._engine.context import CandidateRun, MeasureContext
from chameleon_runners._engine.preparation import Preparation
from chameleon_runners._engine.workers import EndReason, Worker, WorkerEvent

C = TypeVar("C", bound=CandidateRun)


@attrs.define(kw_only=True, eq=False)
class BuildPhase(Generic[C]):
    """Gives work to the workers that build the candidates of one stage's builder.

    Attributes:
        preparation: makes the builder of a space provider or a baseline in a worker.
        built: called with each candidate whose build succeeds.
        failed: called with each candidate whose build fails, and with the failed measurement.
        max_workers: the largest number of workers to use; None for all.
        reserve_worker: whether the first worker that builds a candidate does all further work of
            this phase, and no other work. The kernels then stay in its process until they are
            timed.
        retry_build_later: called with the worker if a build ran out of memory; returns whether to
            build the candidate again later, when the worker holds fewer kernels.
        reserved_worker: None if there is none, or without ``reserve_worker``.
    """

    preparation: Preparation
    pending: deque[C]
    context: MeasureContext
    built: Callable[[C], None]
    failed: Callable[[C, Measurement], None]
    max_workers: int | None = None
    reserve_worker: bool = False
    retry_build_later: Callable[[Worker], bool] = lambda _: False
    running_builds: int = attrs.field(default=0, init=False)
    reserved_worker: Worker | None = None
    _busy_workers: dict[Worker, bool] = attrs.field(factory=dict, init=False)
    """The busy workers, and whether their work is useful after the end of the job."""
    _computing: bool = attrs.field(default=False, init=False)
    _released: bool = attrs.field(default=False, init=False)

    @property
    def busy(self) -> bool:
        """Whether any worker is busy with this phase."""
        return bool(self._busy_workers)

    def dispatch(self, room: int | None) -> None:
        """Give idle builders their next work: candidates to build, or the reference to compute."""
        self.context.builders.fill(max(1, len(self.pending) + len(self._busy_workers)))
        max_workers = self.context.builders.size if self.max_workers is None else self.max_workers
        while len(self._busy_workers) < max_workers and (
            self.preparation.needs_reference
            or (self.pending and (room is None or self.running_builds < room))
        ):
            worker = self._take()
            if worker is None:
                return
            self._begin(worker)

    def _take(self) -> Worker | None:
        if self.reserved_worker is not None and not self.context.pool.is_alive(
            self.reserved_worker
        ):
            self.reserved_worker = None
        return self.reserved_worker or self.context.builders.take(self.preparation.key)

    def _begin(self, worker: Worker) -> None:
        """Give the next work to a builder: open, compute the reference, or build."""
        preparation, options = self.preparation, self.context.options
        if worker.builder_key != preparation.key:
            self._busy_workers[worker] = True
            message, timeout = preparation.open_command, options.start_timeout
            self.context.pool.submit(worker, self._opened, message, timeout)
        elif preparation.needs_reference:
            self._computing = self.context.reference.computing = True
            self._busy_workers[worker] = False
            message, timeout = preparation.reference_command, options.reference_timeout
            self.context.pool.submit(worker, self._computed, message, timeout)
        else:
            candidate = self.pending.popleft()
            candidate.worker = worker
            self._busy_workers[worker] = False
            self.running_builds += 1
            worker.build_count += 1
            message = {**candidate.build_command, "cores": self.context.builders.cores_of(worker)}
            then = partial(self._built, candidate)
            self.context.pool.submit(worker, then, message, self.context.deadlines.build)

    def _done(self, event: WorkerEvent) -> None:
        self._busy_workers.pop(event.worker, None)
        if event.end is not None and event.worker is self.reserved_worker:
            self.reserved_worker = None
        if event.worker is not self.reserved_worker:
            self.context.builders.give_back(event.worker)

    def _opened(self, event: WorkerEvent) -> None:
        # A failed command leaves the worker without a builder.
        event.worker.builder_key = self.preparation.key if event.ok else None
        self._done(event)
        if not self._released:
            self.preparation.on_opened(event)

    def _computed(self, event: WorkerEvent) -> None:
        self._computing = self.context.reference.computing = False
        self._done(event)
        self.preparation.on_reference(event)

    def _built(self, candidate: C, event: WorkerEvent) -> None:
        self.running_builds -= 1
        reply, end, log = event.reply, event.end, event.worker.log
        if self.reserve_worker and event.ok:
            self.reserved_worker = event.worker
        self._done(event)
        if end is not None:
            candidate.build_seconds = end.seconds
            candidate.discard()
            retry = end.reason is EndReason.MEMORY and self.retry_build_later(event.worker)
            if retry or candidate.should_retry(end, self.context.retries):
                self.pending.append(candidate)
            else:
                self.failed(candidate, candidate.ended(end, building=True))
        elif reply is not None:
            candidate.build_seconds = reply["elapsed"]
            if reply["status"] == "ok":
                self.context.deadlines.built(candidate.build_seconds)
                self.built(candidate)
            elif reply["status"] == "failed":
                failure = candidate.failed_reply(reply, log)
                out_of_memory = failure.failure is FailureKind.OUT_OF_MEMORY
                if out_of_memory and self.retry_build_later(event.worker):
                    candidate.discard()
                    self.pending.append(candidate)
                else:
                    self.failed(candidate, failure)
            else:
                self.preparation.on_build_refused(reply)

    def release(self) -> None:
        """End the workers whose results are no longer needed, at the end of the phase.

        Workers that are still making a builder continue, because later jobs can use it.
        """
        self._released = True
        if self._computing:
            self.context.reference.computing = False
        for worker, useful in list(self._busy_workers.items()):
            if not useful:
                self.context.builders.end(worker)
        self._busy_workers.clear()
