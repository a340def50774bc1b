"""One configuration on its way through the runner, and what ended it in words."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import attrs
from chameleon_core.measurement import FailureKind, Measurement

from chameleon_runners.engine.workers import EndReason, Worker, WorkerEnd
from chameleon_runners.timing import undisturbed
from chameleon_runners.worker.protocol import Message

_ALLOCATION_FAILED = ("bad_alloc", "out of memory", "Cannot allocate memory", "MemoryError")
"""What libraries print before they abort for lack of memory."""


@attrs.define(kw_only=True, eq=False)
class CandidateRun:
    """A configuration with what is known of it so far.

    Attributes:
        config: its knob indices.
        slot: the number its kernel has in the worker; unique in the runner.
        worker: who holds its kernel.
        losses: how often its worker was killed from outside while it was at work.
        build_seconds: wall-clock of its build in seconds.
        run_seconds: wall-clock of its check and timing in seconds.
        number: runs in each repeat.
        error: largest relative error of its outputs.
        repeats: mean seconds of its repeats.
        again: repeats taken with the other leaders, in turn.
        disturbed: further ones, during which a thread lost its core (``timing.Repeats``).
        turns: how many turns gave them.
        failure: its measurement, if it failed after it had been timed.
    """

    config: tuple[int, ...]
    slot: int
    worker: Worker | None = None
    losses: int = 0
    build_seconds: float = 0.0
    run_seconds: float = 0.0
    number: int = 0
    error: float | None = None
    repeats: tuple[float, ...] = ()
    again: list[float] = attrs.field(factory=list)
    disturbed: list[float] = attrs.field(factory=list)
    turns: int = 0
    failure: Measurement | None = None

    @property
    def fastest(self) -> float:
        """Its fastest repeat in seconds."""
        return min((*self.repeats, *self.again, *self.disturbed), default=math.inf)

    @property
    def repeat_seconds(self) -> float:
        """Seconds that one of its repeats takes; infinity if there was none yet."""
        return max(1, self.number) * self.fastest

    @property
    def build_command(self) -> Message:
        """Have a worker build it, and keep the kernel."""
        return {"command": "build", "slot": self.slot, "config": self.config}

    def discard(self) -> None:
        """Let go of what was built: its worker frees the kernel with its next command."""
        if self.worker is not None:
            self.worker.garbage.append(self.slot)
            self.worker = None

    def loses(self, end: WorkerEnd, retries: int) -> bool:
        """Take in that its worker ended over it; whether it is to be tried once more.

        Args:
            end: how the worker ended.
            retries: how often that is done for one whose workers are killed from outside.
        """
        again = end.from_outside and self.losses < retries
        self.losses += again
        return again

    def take_turn(self, calm: Iterable[float], disturbed: Iterable[float] = ()) -> None:
        """Add the repeats of one turn, those during which a thread lost its core by themselves."""
        self.again.extend(calm)
        self.disturbed.extend(disturbed)
        self.turns += 1

    def forget_turns(self) -> None:
        """Be as one that had no turn."""
        self.again.clear()
        self.disturbed.clear()
        self.turns = 0

    def pool(self) -> None:
        """Count the repeats taken in turn among the others, if no others compare with them."""
        self.repeats = undisturbed((*self.repeats, *self.again), self.disturbed)
        self.forget_turns()

    def succeeded(self) -> Measurement:
        """The measurement of a candidate that was timed.

        Leaders were timed in turn with each other; those repeats alone compare them.
        """
        seconds = undisturbed(self.again, self.disturbed) if self.turns else self.repeats
        return self._measured(seconds=seconds, max_relative_error=self.error)

    def failed(self, kind: FailureKind, message: str, *, error: float | None = None) -> Measurement:
        """The measurement of a candidate that failed."""
        return self._measured(failure=kind, message=message, max_relative_error=error)

    def _measured(self, **outcome: Any) -> Measurement:
        return Measurement(
            config=self.config,
            build_seconds=self.build_seconds,
            run_seconds=self.run_seconds,
            **outcome,
        )

    def failed_reply(self, reply: Message, log: str) -> Measurement:
        """The measurement behind a worker's reply that reports a failure."""
        text = reply["message"] + (f"; it printed: {log[-400:]}" if log else "")
        return self.failed(FailureKind(reply["kind"]), text, error=reply.get("error"))

    def ended(self, end: WorkerEnd, *, building: bool) -> Measurement:
        """The measurement of a candidate whose worker ended while it was at work."""
        return self.failed(_kind_of_end(end, building=building), end.explain())


def _kind_of_end(end: WorkerEnd, *, building: bool) -> FailureKind:
    if end.reason is EndReason.DEADLINE:
        return FailureKind.BUILD_TIMEOUT if building else FailureKind.RUN_TIMEOUT
    starved = any(text in end.log for text in _ALLOCATION_FAILED)
    if end.reason is EndReason.MEMORY or (starved and end.status != 0):
        return FailureKind.OUT_OF_MEMORY
    return FailureKind.CRASH
