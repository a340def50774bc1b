"""The final comparison: it builds and checks contenders, and times them in turns."""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import attrs
import numpy as np
from chameleon_core.plugin_api import (
    ComparisonPlan,
    Contender,
    FailureKind,
    Measurement,
    PluginError,
    Task,
)

from chameleon_runners._engine.build_phase import BuildPhase
from chameleon_runners._engine.context import CandidateRun, MeasureContext
from chameleon_runners._engine.preparation import Preparation
from chameleon_runners._engine.workers import StoppedError, WorkerEvent
from chameleon_runners._worker.protocol import Message

_FEW_ROUNDS = 3
_HOPELESS = 3.0
"""Contenders slower than the fastest by more than this factor are timed in few rounds."""

C = TypeVar("C", bound=CandidateRun)


@attrs.define(kw_only=True, eq=False)
class ContenderState(Generic[C]):
    """The state of a contender during a comparison.

    Attributes:
        result: The contender's measurement if it has failed; None otherwise.
    """

    contender: Contender
    candidate: C
    built: bool = False
    result: Measurement | None = None

    def refuse(self, reply: Message, log: str = "") -> None:
        """Record that the contender could not be built, from the worker's reply."""
        if reply["status"] == "failed":
            self.result = self.candidate.failed_reply(reply, log)
        else:
            self.result = self.candidate.failed(FailureKind.BUILD_ERROR, reply["message"])

    @property
    def measurement(self) -> Measurement:
        """The contender's result in the comparison."""
        if self.result is not None:
            return self.result
        if self.candidate.turns:
            return self.candidate.succeeded()
        return self.candidate.failed(FailureKind.RUN_ERROR, "the comparison was interrupted")


S = TypeVar("S", bound=ContenderState[Any])


def turns(
    racing: Callable[[], Sequence[S]],
    rounds: int,
    *,
    another: Callable[[int], bool] = lambda _done: True,
    in_time: Callable[[], bool] = lambda: True,
) -> Iterator[S]:
    """Yield the contenders of a comparison in the order in which they are timed, round by round.

    Each round has a new random order, so that no contender always runs after the same other one.
    """
    generator = np.random.default_rng(0)
    for done in range(rounds):
        if not another(done):
            return
        present = racing()
        for index in generator.permutation(len(present)).tolist():
            few = not done or (done < _FEW_ROUNDS and in_time())
            if few or not _hopeless(present[index], racing()):
                yield present[index]


def _hopeless(contender: S, racing: Sequence[S]) -> bool:
    own: float = contender.candidate.fastest
    best: float = min((other.candidate.fastest for other in racing), default=own)
    return own > _HOPELESS * best


class _ContenderBuild(Preparation, Generic[C]):
    """The build of one contender; if it fails, the comparison continues with the others."""

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
        """Whether there is work to start or to wait for."""
        return bool(self._pending) or self.phase.busy or self.wants_reference

    @property
    def without_reference(self) -> str:
        """Why the contender's builder did not compute the reference outputs."""
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
        """Whether another process killed the worker, and a new worker should try again."""
        return event.end is not None and self._entry.candidate.loses(
            event.end, self.context.retries
        )

    def refused(self, reply: Message) -> None:
        self._entry.refuse(reply)


LEAST_ROUNDS = 6
"""The least number of rounds of a comparison, even if the time is over.

The result depends on a few fast repeats that agree. Several rounds are needed, so that some repeats
are undisturbed.
"""


class Comparison(ABC, Generic[C]):
    """The final comparison of one task: builds, checks and times the contenders in turns."""

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
        """End the comparison as soon as possible."""
        self._interrupted = True
        self._pool.wake()

    def run(self, plan: ComparisonPlan) -> list[Measurement]:
        """Run the comparison."""
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
        """Build all contenders, and let one builder compute the reference if necessary."""
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
                done = sum(entry.built or entry.result is not None for entry in entries)
                self._tell("built", done, len(entries))
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
        """Wait for the next event."""
        self._go_on()
        self._pool.run_once(self._due())
        self._go_on()

    def _tell(self, step: str, done: int, of: int) -> None:
        """Report progress if it changed since the last report."""
        if self._told != (step, done, of):
            self._told = (step, done, of)
            self._plan.tell(step, done, of)

    def _another_round(self, done: int) -> bool:
        """Whether there is time for another round."""
        now = time.monotonic()
        if not done:
            self._rounds_began = now
        elif done >= LEAST_ROUNDS and not self._in_time((now - self._rounds_began) / done):
            self._rounds = done
            return False
        self._tell("timed", done, self._rounds)
        return True

    def _in_time(self, seconds: float = 0.0) -> bool:
        """Whether the comparison's time limit is still ahead in ``seconds`` seconds."""
        return time.monotonic() + seconds <= self._began + self._plan.seconds

    def _go_on(self) -> None:
        if self._interrupted:
            raise StoppedError

    def _due(self) -> float | None:
        """The time of the next scheduled work, or None if there is none."""
        return None

    def _prepare(self) -> None:
        """Start work that can run while contenders are built."""

    @property
    def _racing(self) -> list[ContenderState[C]]:
        """The contenders that were built and have not failed."""
        return [entry for entry in self._entries if entry.result is None and entry.built]

    @abstractmethod
    def _time(self) -> None:
        """Call ``_time_in_turn`` in a place where all contenders' times are comparable."""

    @abstractmethod
    def _answer(
        self, entry: ContenderState[C], message: Message, *, timed: bool = False
    ) -> Message | None:
        """Send a command about a contender, and return the reply."""

    def _load(self, entry: ContenderState[C]) -> bool:
        """Load a contender where it is timed, and return whether that worked."""
        return entry.result is None

    def _time_in_turn(self) -> None:
        """Check all contenders that have not failed, then time them in turns."""
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
        """Check a contender's outputs, and set the number of runs in each of its repeats."""
        candidate = entry.candidate
        candidate.forget_turns()
        if not self._load(entry):
            return
        reply = self._answer(entry, self._context.measure_command(candidate, best=None))
        if reply is not None:
            candidate.error, candidate.number = reply["error"], reply["number"]
