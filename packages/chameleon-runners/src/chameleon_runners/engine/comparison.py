"""The final comparison: contenders are built, checked and timed in turn, wherever they run."""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Generic, TypeVar

from chameleon_core.errors import PluginError
from chameleon_core.measurement import Measurement
from chameleon_core.stages import ComparisonPlan
from chameleon_core.task import Task

from chameleon_runners.engine.build_phase import BuildPhase
from chameleon_runners.engine.candidate_run import CandidateRun
from chameleon_runners.engine.contenders import ContenderState, turns
from chameleon_runners.engine.context import MeasureContext
from chameleon_runners.engine.preparation import Preparation
from chameleon_runners.engine.workers import StoppedError, WorkerEvent
from chameleon_runners.worker.protocol import Message

C = TypeVar("C", bound=CandidateRun)


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
        stage, variant = entry.contender.stage, entry.contender.variant
        super().__init__(stage=stage, task=task, context=context, variant=variant)
        self._entry = entry
        self._no_reference: str | None = None
        self._pending = deque([] if entry.built or entry.result else [entry.candidate])
        self.phase = BuildPhase(
            preparation=self,
            pending=self._pending,
            context=context,
            built=self._built,
            failed=self._failed,
            most=1,
            keep=keep,
            keeper=entry.candidate.worker if keep and entry.built else None,
        )

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
        return event.end is not None and self._entry.candidate.loses(
            event.end, self.context.retries
        )

    def refused(self, reply: Message) -> None:
        self._entry.refuse(reply)


LEAST_ROUNDS = 6
"""Rounds of every comparison, however little time there is: what counts are the few fastest repeats
that agree, and it takes several moments to meet undisturbed ones."""


class Comparison(ABC, Generic[C]):
    """Compares contenders of one task.

    Args:
        task: the task.
        entries: who takes part.
        context: what they are compared with.
        keep: whether each contender is timed by the worker that built it.
    """

    def __init__(
        self,
        task: Task,
        entries: Sequence[ContenderState[C]],
        *,
        context: MeasureContext,
        keep: bool,
    ) -> None:
        self._task = task
        self._entries = entries
        self._pool = context.pool
        self._interrupted = False
        self._context = context
        self._keep = keep
        self._plan = ComparisonPlan()
        self._began = self._rounds_began = 0.0
        self._rounds = context.options.compare_rounds
        self._told: tuple[str, int, int] | None = None

    def interrupt(self) -> None:
        """End as soon as possible."""
        self._interrupted = True
        self._pool.wake()

    def run(self, plan: ComparisonPlan) -> list[Measurement]:
        """One measurement per contender, in order; a failure is a measurement.

        Args:
            plan: how long it may take, and whom to tell how far it is.

        Raises:
            ChameleonError: no device is to be had, or nobody knows the expected outputs.
        """
        self._plan, self._began = plan, time.monotonic()
        try:
            with contextlib.suppress(StoppedError):
                self._prepare()
                self._build()
                self._time()
        finally:
            for entry in self._entries:
                entry.candidate.discard()
        return [entry.measurement for entry in self._entries]

    def _build(self) -> None:
        """Build all that is not built, and have somebody compute the reference if nobody has yet.

        A failure is the contender's result.

        Raises:
            PluginError: nobody can compute the expected outputs.
            StoppedError: all is to stop.
        """
        context, entries = self._context, self._entries
        builds = [
            _ContenderBuild(self._task, entry, context=context, keep=self._keep)
            for entry in entries
        ]
        try:
            while any(build.unfinished for build in builds):
                context.builders.fill(len(builds))
                for build in builds:
                    build.phase.employ(1)
                self._turn()
        finally:
            for build in builds:
                build.phase.release()
        if not context.reference.ready and any(entry.built for entry in entries):
            reasons = "; ".join(build.without_reference for build in builds)
            raise PluginError(
                f"no contender can compute the expected outputs of task {self._task.name!r} "
                f"({reasons})",
                hint="the builder of a space has to implement reference()",
            )

    def _turn(self) -> None:
        """Wait until something happens.

        Raises:
            StoppedError: all is to stop.
        """
        self._go_on()
        built = sum(entry.built or entry.result is not None for entry in self._entries)
        self._tell("built", built, len(self._entries))
        self._pool.run_once(self._due())
        self._go_on()

    def _tell(self, step: str, done: int, of: int) -> None:
        """Tell how far it is, if that is news."""
        if self._told != (step, done, of):
            self._told = (step, done, of)
            self._plan.tell(step, done, of)

    def _another_round(self, done: int) -> bool:
        """Whether there is time for a round after so many; each takes as long as another."""
        now = time.monotonic()
        if not done:
            self._rounds_began = now
        elif done >= LEAST_ROUNDS and not self._in_time((now - self._rounds_began) / done):
            self._rounds = done
            return False
        self._tell("timed", done, self._rounds)
        return True

    def _in_time(self, seconds: float = 0.0) -> bool:
        """Whether so many seconds from now are still within what the comparison should take."""
        return time.monotonic() + seconds <= self._began + self._plan.seconds

    def _go_on(self) -> None:
        if self._interrupted:
            raise StoppedError

    def _due(self) -> float | None:
        """When there is something to do, whatever happens; None if there is nothing."""
        return None

    def _prepare(self) -> None:
        """Begin what may go on while contenders are built."""

    @property
    def _racing(self) -> list[ContenderState[C]]:
        """Contenders that may still be timed."""
        return [entry for entry in self._entries if entry.result is None and entry.built]

    @abstractmethod
    def _time(self) -> None:
        """Have ``_time_in_turn`` time all contenders where their times compare."""

    @abstractmethod
    def _answer(
        self, entry: ContenderState[C], message: Message, *, timed: bool = False
    ) -> Message | None:
        """The answer to a command about a contender; None for one that has failed for good.

        Args:
            entry: the contender.
            message: the command.
            timed: whether a clock runs meanwhile.

        Raises:
            StoppedError: all is to stop.
        """

    def _load(self, entry: ContenderState[C]) -> bool:
        """Put a contender where it is timed; whether it is there."""
        return entry.result is None

    def _time_in_turn(self) -> None:
        """Check all contenders that have not failed for good, then time them in turn."""
        context, racing = self._context, self._racing
        self._tell("built", len(self._entries), len(self._entries))
        for number, entry in enumerate(racing, 1):
            self._check(entry)
            self._tell("checked", number, len(racing))
        self._rounds = context.options.compare_rounds
        order = turns(
            lambda: self._racing, self._rounds, another=self._another_round, in_time=self._in_time
        )
        for entry in order:
            if entry.result is None:
                reply = self._answer(entry, context.turn_command(entry.candidate), timed=True)
                if reply is not None:
                    entry.candidate.take_turn(reply["seconds"], reply.get("disturbed", ()))
        self._tell("timed", self._rounds, self._rounds)

    def _check(self, entry: ContenderState[C]) -> None:
        """See that a contender's outputs are right, and how many runs make one repeat of it."""
        candidate = entry.candidate
        candidate.forget_turns()
        if not self._load(entry):
            return
        reply = self._answer(entry, self._context.measure_command(candidate, best=None))
        if reply is not None:
            candidate.error, candidate.number = reply["error"], reply["number"]
