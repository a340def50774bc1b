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
        preparation: The object that makes the builder of a space provider or a baseline in a
            worker.
        context: The workers, options and time limits to use.
        built: A function that is called with each candidate whose build succeeds.
        failed: A function that is called with each candidate whose build fails, and with the failed
            measurement.
        most: The largest number of workers to use; None for all.
        keep: Whether the first worker that builds a candidate is reserved for this phase, so that
            the kernels stay in its process until they are timed. This worker then builds all
            further candidates, and does no other work.
        postponed: A function that is called with the worker if a build ran out of memory. It
            returns whether to build the candidate again later, when the worker holds fewer kernels.
        keeper: The reserved worker; None if there is none, or if ``keep`` is False.
    """

    preparation: Preparation
    pending: deque[C]
    context: MeasureContext
    built: Callable[[C], None]
    failed: Callable[[C, Measurement], None]
    most: int | None = None
    keep: bool = False
    postponed: Callable[[Worker], bool] = lambda _: False
    under_way: int = attrs.field(default=0, init=False)
    keeper: Worker | None = None
    _working: dict[Worker, bool] = attrs.field(factory=dict, init=False)
    """The busy workers, and whether their work is useful after the job is given up."""
    _computing: bool = attrs.field(default=False, init=False)
    _released: bool = attrs.field(default=False, init=False)

    @property
    def busy(self) -> bool:
        """Whether any worker is busy with this phase."""
        return bool(self._working)

    def employ(self, room: int | None) -> None:
        """Give idle builders their next work: candidates to build, or the reference to compute."""
        self.context.builders.fill(max(1, len(self.pending) + len(self._working)))
        most = self.context.builders.size if self.most is None else self.most
        while len(self._working) < most and (
            self.preparation.wants_reference
            or (self.pending and (room is None or self.under_way < room))
        ):
            worker = self._take()
            if worker is None:
                return
            self._begin(worker)

    def _take(self) -> Worker | None:
        if self.keeper is not None and not self.context.pool.lives(self.keeper):
            self.keeper = None
        return self.keeper or self.context.builders.take(self.preparation.key)

    def _begin(self, worker: Worker) -> None:
        """Give the next work to a builder: open, compute the reference, or build."""
        preparation, options = self.preparation, self.context.options
        if worker.opened != preparation.key:
            self._working[worker] = True
            message, timeout = preparation.open_command, options.start_timeout
            self.context.pool.submit(worker, self._opened, message, timeout)
        elif preparation.wants_reference:
            self._computing = self.context.reference.computing = True
            self._working[worker] = False
            message, timeout = preparation.reference_command, options.reference_timeout
            self.context.pool.submit(worker, self._computed, message, timeout)
        else:
            candidate = self.pending.popleft()
            candidate.worker = worker
            self._working[worker] = False
            self.under_way += 1
            worker.built += 1
            message = {**candidate.build_command, "cores": self.context.builders.cores_of(worker)}
            then = partial(self._built, candidate)
            self.context.pool.submit(worker, then, message, self.context.deadlines.build)

    def _done(self, event: WorkerEvent) -> None:
        self._working.pop(event.worker, None)
        if event.end is not None and event.worker is self.keeper:
            self.keeper = None
        if event.worker is not self.keeper:
            self.context.builders.give_back(event.worker)

    def _opened(self, event: WorkerEvent) -> None:
        # One that could not be made has taken the place of the one before.
        event.worker.opened = self.preparation.key if event.ok else None
        self._done(event)
        if not self._released:
            self.preparation.opened(event)

    def _computed(self, event: WorkerEvent) -> None:
        self._computing = self.context.reference.computing = False
        self._done(event)
        self.preparation.computed(event)

    def _built(self, candidate: C, event: WorkerEvent) -> None:
        self.under_way -= 1
        reply, end, log = event.reply, event.end, event.worker.log
        if self.keep and event.ok:
            self.keeper = event.worker
        self._done(event)
        if end is not None:
            candidate.build_seconds = end.seconds
            candidate.discard()
            crowded = end.reason is EndReason.MEMORY and self.postponed(event.worker)
            if crowded or candidate.loses(end, self.context.retries):
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
                starved = failure.failure is FailureKind.OUT_OF_MEMORY
                if starved and self.postponed(event.worker):
                    candidate.discard()
                    self.pending.append(candidate)
                else:
                    self.failed(candidate, failure)
            else:
                self.preparation.refused(reply)

    def release(self) -> None:
        """End the workers whose results are no longer needed, at the end of the phase.

        Workers that are still making a builder continue, because later jobs can use it.
        """
        self._released = True
        if self._computing:
            self.context.reference.computing = False
        for worker, useful in list(self._working.items()):
            if not useful:
                self.context.builders.end(worker)
        self._working.clear()
