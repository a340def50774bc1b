"""The final comparison: contenders are built, checked and timed in turn, wherever they run."""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

from chameleon_core.measurement import Measurement
from chameleon_core.stages import ComparisonPlan
from chameleon_core.task import Task

from chameleon_runners.engine.candidate_run import CandidateRun
from chameleon_runners.engine.comparison_builds import build_contenders
from chameleon_runners.engine.contenders import ContenderState, turns
from chameleon_runners.engine.context import MeasureContext
from chameleon_runners.engine.workers import StoppedError
from chameleon_runners.worker.protocol import Message

C = TypeVar("C", bound=CandidateRun)

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
        """Build all that is not built and has not failed for good."""
        build_contenders(
            self._task, self._entries, context=self._context, turn=self._turn, keep=self._keep
        )

    def _turn(self) -> None:
        """Wait until something happens.

        Raises:
            StoppedError: all is to stop.
        """
        self._go_on()
        built = sum(one.built or one.result is not None for one in self._entries)
        self._tell("built", built, len(self._entries))
        self._pool.run_once(self._due())
        self._go_on()

    def _tell(self, step: str, done: int, of: int) -> None:
        """Tell how far it is, where that is news."""
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
        """When there is something to do, whatever happens; None where there is nothing."""
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
        """What a command about a contender gives; None for one that has failed for good.

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
            lambda: self._racing,
            self._rounds,
            another=self._another_round,
            in_time=self._in_time,
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
