"""The contenders of a final comparison: built, and the outputs that are expected of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from chameleon_core.measurement import Measurement
from chameleon_core.task import Task

from chameleon_runners.engine.build_phase import BuildPhase
from chameleon_runners.engine.candidate_run import CandidateRun
from chameleon_runners.engine.contenders import ContenderState, no_reference
from chameleon_runners.engine.context import MeasureContext
from chameleon_runners.engine.preparation import Preparation
from chameleon_runners.engine.workers import WorkerEvent
from chameleon_runners.worker.protocol import Message

C = TypeVar("C", bound=CandidateRun)


def build_contenders(
    task: Task,
    entries: Sequence[ContenderState[C]],
    *,
    context: MeasureContext,
    turn: Callable[[], None],
    keep: bool,
) -> None:
    """Build all that is not built, and have somebody compute the reference if nobody has yet.

    A failure is the contender's result.

    Args:
        task: the task.
        entries: the contenders.
        context: what it is done with.
        turn: waits until something happens; raises ``StoppedError`` when all is to stop.
        keep: whether a worker keeps to itself what it has built, and builds nothing else.

    Raises:
        PluginError: nobody can compute the expected outputs.
        StoppedError: all is to stop.
    """
    builds = [_ContenderBuild(task, entry, context=context, keep=keep) for entry in entries]
    try:
        while any(build.unfinished for build in builds):
            context.builders.fill(len(builds))
            for build in builds:
                build.phase.employ(1)
            turn()
    finally:
        for build in builds:
            build.phase.release()
    if not context.reference.ready and any(entry.built for entry in entries):
        raise no_reference(task.name, [build.without_reference for build in builds])


class _ContenderBuild(Preparation, Generic[C]):
    """One contender with its builder; the comparison goes on without either.

    Args:
        task: the task.
        entry: the contender.
        context: what it is built with.
        keep: whether the worker that has built it keeps it.
    """

    def __init__(
        self, task: Task, entry: ContenderState[C], *, context: MeasureContext, keep: bool
    ) -> None:
        contender = entry.contender
        super().__init__(
            contender.stage,
            task,
            reference=context.reference,
            threads=context.threads,
            retries=context.retries,
            variant=contender.variant,
        )
        self._entry = entry
        self._no_reference: str | None = None
        self._pending = deque([] if entry.built or entry.result else [entry.candidate])
        self.phase = BuildPhase(
            self,
            pending=self._pending,
            context=context,
            built=self._built,
            failed=self._failed,
            most=1,
            keep=keep,
        )
        if keep and entry.built:
            self.phase.keeper = entry.candidate.worker

    @property
    def wants_reference(self) -> bool:
        return super().wants_reference and self._no_reference is None

    @property
    def unfinished(self) -> bool:
        """Whether there is anything to do, or to wait for."""
        return bool(self._pending) or self.phase.busy or self.wants_reference

    @property
    def without_reference(self) -> str:
        """Why the contender's builder did not compute the reference."""
        return f"{self._entry.contender.name}: {self._no_reference}"

    def _built(self, _candidate: C) -> None:
        self._entry.built = True

    def _failed(self, _candidate: C, failure: Measurement) -> None:
        self._entry.result = failure

    def opened(self, event: WorkerEvent) -> None:
        if event.ok or self._once_more(event):
            return
        self._no_reference = event.reason
        if self._pending:
            self._pending.clear()
            if event.end is not None:
                self._entry.result = self._entry.candidate.ended(event.end, building=True)
            elif event.reply is not None:
                self._entry.refuse(event.reply, event.worker.log)

    def _not_computed(self, event: WorkerEvent) -> None:
        if not self._once_more(event):
            self._no_reference = event.reason
        if event.end is not None and self._entry.built and self.phase.keeper is None:
            # What the worker had built is gone with it.
            self._entry.built = False
            self._pending.append(self._entry.candidate)

    def _once_more(self, event: WorkerEvent) -> bool:
        """Whether the worker was ended by somebody else, and another one is to try."""
        return event.end is not None and self._entry.candidate.loses(event.end, self._retries)

    def refused(self, reply: Message) -> None:
        self._entry.refuse(reply)
