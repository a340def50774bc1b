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
_MUCH_SLOWER = 3.0
"""Contenders slower than the fastest by more than this factor are timed in few rounds."""

C = TypeVar("C", bound=CandidateRun)


@attrs.define(kw_only=True, eq=False)
class ContenderState(Generic[C]):
    """The state of a contender during a comparison.

    Attributes:
        result: the contender's measurement if it has failed; None otherwise.
    """

    contender: Contender
    candidate: C
    built: bool = False
    result: Measurement | None = None

    def record_build_failure(self, reply: Message, log: str = "") -> None:
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


def timing_order(
    active: Callable[[], Sequence[S]],
    rounds: int,
    *,
    has_time: Callable[[int], bool] = lambda _done: True,
    in_time: Callable[[], bool] = lambda: True,
) -> Iterator[S]:
    """The contenders of a comparison in the order in which they are timed, round by round.

    Each round has a new random order, so that no contender always runs after the same other one.
    """
    generator = np.random.default_rng(0)
    for done in range(rounds):
        if not has_time(done):
            return
        present = active()
        for index in generator.permutation(len(present)).tolist():
            must_time = not done or (done < _FEW_ROUNDS and in_time())
            if must_time or not _is_much_slower(present[index], active()):
                yield present[index]


def _is_much_slower(contender: S, active: Sequence[S]) -> bool:
    own: float = contender.candidate.fastest
    best: float = min((other.candidate.fastest for other in active), default=own)
    return own > _MUCH_SLOWER * best


class _ContenderBuild(Preparation, Generic[C]):
    """The build of one contender; if it fails, the comparison continues with the others."""

    def __init__(
        self, task: Task, entry: ContenderState[C], *, context: MeasureContext, reserve_worker: bool
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
            max_workers=1,
            reserve_worker=reserve_worker,
            reserved_worker=entry.candidate.worker if reserve_worker and entry.built else None,
        )

    @property
    def needs_reference(self) -> bool:
        return super().needs_reference and self._no_reference is None

    @property
    def unfinished(self) -> bool:
        """Whether there is work to start or to wait for."""
        return bool(self._pending) or self.phase.busy or self.needs_reference

    @property
    def without_reference(self) -> str:
        """Why the contender's builder did not compute the reference outputs."""
        return f"{self._entry.contender.name}: {self._no_reference}"

    def _built(self, _candidate: C) -> None:
        self._entry.built = True

    def _failed(self, _candidate: C, failure: Measurement) -> None:
        self._entry.result = failure

    def on_opened(self, event: WorkerEvent) -> None:
        if event.ok or self._should_retry(event):
            return
        self._no_reference = event.reason
        if self._pending:
            self._pending.clear()
            if event.end is not None:
                self._entry.result = self._entry.candidate.ended(event.end, building=True)
            elif event.reply is not None:
                self._entry.record_build_failure(event.reply, event.worker.log)

    def _on_reference_failure(self, event: WorkerEvent) -> None:
        if not self._should_retry(event):
            self._no_reference = event.reason
        if event.end is not None and self._entry.built and self.phase.reserved_worker is None:
            # The worker's kernels ended with it.
            self._entry.built = False
            self._pending.append(self._entry.candidate)

    def _should_retry(self, event: WorkerEvent) -> bool:
        """Whether another process killed the worker, so that a new worker should try again."""
        return event.end is not None and self._entry.candidate.should_retry(
            event.end, self.context.retries
        )

    def on_build_refused(self, reply: Message) -> None:
        self._entry.record_build_failure(reply)


LEAST_ROUNDS = 6
"""The least number of rounds of a comparison, even after its time limit, so that some repeats are
undisturbed."""


class Comparison(ABC, Generic[C]):
    """The final comparison of one task: builds, checks and times the contenders in turns."""

    def __init__(
        self,
        task: Task,
        entries: Sequence[ContenderState[C]],
        *,
        context: MeasureContext,
        reserve_worker: bool,
    ) -> None:
        self._task = task
        self._entries = entries
        self._pool = context.pool
        self._interrupted = False
        self._context = context
        self._reserve_worker = reserve_worker
        self._plan = ComparisonPlan()
        self._start_time = self._rounds_start = 0.0
        self._rounds = context.options.compare_rounds
        self._last_report: tuple[str, int, int] | None = None

    def interrupt(self) -> None:
        """End the comparison as soon as possible."""
        self._interrupted = True
        self._pool.wake()

    def run(self, plan: ComparisonPlan) -> list[Measurement]:
        self._plan, self._start_time = plan, time.monotonic()
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
            _ContenderBuild(self._task, entry, context=context, reserve_worker=self._reserve_worker)
            for entry in entries
        ]
        try:
            while any(build.unfinished for build in builds):
                context.builders.fill(len(builds))
                for build in builds:
                    build.phase.dispatch(1)
                self._run_once()
                done = sum(entry.built or entry.result is not None for entry in entries)
                self._report("built", done, len(entries))
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

    def _run_once(self) -> None:
        """Wait for the next event."""
        self._check_interrupt()
        self._pool.run_once(self._due())
        self._check_interrupt()

    def _report(self, step: str, done: int, of: int) -> None:
        """Report progress if it changed since the last report."""
        if self._last_report != (step, done, of):
            self._last_report = (step, done, of)
            self._plan.tell(step, done, of)

    def _has_time_for_round(self, done: int) -> bool:
        """Whether there is time for another round."""
        now = time.monotonic()
        if not done:
            self._rounds_start = now
        elif done >= LEAST_ROUNDS and not self._in_time((now - self._rounds_start) / done):
            self._rounds = done
            return False
        self._report("timed", done, self._rounds)
        return True

    def _in_time(self, seconds: float = 0.0) -> bool:
        """Whether the comparison's time limit is still ahead in ``seconds`` seconds."""
        return time.monotonic() + seconds <= self._start_time + self._plan.seconds

    def _check_interrupt(self) -> None:
        if self._interrupted:
            raise StoppedError

    def _due(self) -> float | None:
        """The time of the next scheduled work, or None if there is none."""
        return None

    def _prepare(self) -> None:
        """Start work that can run while contenders are built."""

    @property
    def _active(self) -> list[ContenderState[C]]:
        """The contenders that were built and have not failed."""
        return [entry for entry in self._entries if entry.result is None and entry.built]

    @abstractmethod
    def _time(self) -> None:
        """Call ``_time_in_turns`` where the times of all contenders are comparable."""

    @abstractmethod
    def _answer(
        self, entry: ContenderState[C], message: Message, *, timed: bool = False
    ) -> Message | None:
        """Send a command about a contender, and return the reply."""

    def _load(self, entry: ContenderState[C]) -> bool:
        """Load a contender where it is timed, and return whether that worked."""
        return entry.result is None

    def _time_in_turns(self) -> None:
        """Check all contenders that have not failed, then time them in turns."""
        context, active = self._context, self._active
        self._report("built", len(self._entries), len(self._entries))
        for number, entry in enumerate(active, 1):
            self._check(entry)
            self._report("checked", number, len(active))
        self._rounds = context.options.compare_rounds
        order = timing_order(
            lambda: self._active,
            self._rounds,
            has_time=self._has_time_for_round,
            in_time=self._in_time,
        )
        for entry in order:
            if entry.result is None:
                reply = self._answer(entry, context.turn_command(entry.candidate), timed=True)
                if reply is not None:
                    entry.candidate.add_turn(reply["seconds"], reply.get("disturbed", ()))
        self._report("timed", self._rounds, self._rounds)

    def _check(self, entry: ContenderState[C]) -> None:
        """Check a contender's outputs, and set the number of runs in each of its repeats."""
        candidate = entry.candidate
        candidate.clear_turns()
        if not self._load(entry):
            return
        reply = self._answer(entry, self._context.measure_command(candidate, best=None))
        if reply is not None:
            candidate.error, candidate.number = reply["error"], reply["number"]
