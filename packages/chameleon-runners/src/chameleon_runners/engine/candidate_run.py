"""The state of one configuration while a runner builds, checks and times it."""

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
"""Messages that libraries print before they abort for lack of memory."""


@attrs.define(kw_only=True, eq=False)
class CandidateRun:
    """The state of one configuration while a runner builds, checks and times it.

    Attributes:
        config: The knob indices of the configuration.
        slot: A number that identifies the kernel; no other kernel of the runner has it.
        worker: The worker that holds the kernel; None if no worker does.
        losses: The number of workers that another process killed while they worked on this
            configuration.
        build_seconds: Wall-clock time of the build in seconds.
        run_seconds: Wall-clock time of check and timing in seconds.
        number: The number of runs in each repeat.
        error: The largest relative error of the outputs.
        repeats: Mean seconds per run of each repeat.
        again: Mean seconds per run of repeats that were taken in turns with other fast candidates.
        disturbed: Mean seconds per run of repeats in turns during which a thread lost its core
            (``timing.Repeats``).
        turns: The number of turns in which the repeats of ``again`` and ``disturbed`` were taken.
        failure: The measurement, if the candidate failed after it was timed.
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
        """The candidate's seconds per run in its fastest repeat; infinity without any repeat."""
        return min((*self.repeats, *self.again, *self.disturbed), default=math.inf)

    @property
    def repeat_seconds(self) -> float:
        """The seconds that one repeat of the candidate takes; infinity without any repeat."""
        return max(1, self.number) * self.fastest

    @property
    def build_command(self) -> Message:
        """The command that makes a worker build the candidate and keep the kernel."""
        return {"command": "build", "slot": self.slot, "config": self.config}

    def discard(self) -> None:
        """Mark the kernel as unused, so that its worker frees the memory with its next command."""
        if self.worker is not None:
            self.worker.garbage.append(self.slot)
            self.worker = None

    def loses(self, end: WorkerEnd, retries: int) -> bool:
        """Count a worker that ended during the candidate's work.

        The result is whether to try the candidate again: another process killed the worker, and
        tries are left.

        Args:
            end: The way in which the worker ended.
            retries: The largest number of further tries after another process killed the worker.
        """
        again = end.from_outside and self.losses < retries
        self.losses += again
        return again

    def take_turn(self, calm: Iterable[float], disturbed: Iterable[float] = ()) -> None:
        """Add the repeats of one turn, in which the candidate was timed between others.

        Args:
            calm: Seconds per run of undisturbed repeats.
            disturbed: Seconds per run of repeats during which a thread lost its core.
        """
        self.again.extend(calm)
        self.disturbed.extend(disturbed)
        self.turns += 1

    def forget_turns(self) -> None:
        """Remove all repeats that were taken in turns."""
        self.again.clear()
        self.disturbed.clear()
        self.turns = 0

    def pool(self) -> None:
        """Merge the repeats of turns into ``repeats``, as if they had been taken at once.

        This is for a candidate that takes no more turns with the other candidates. Its repeats are
        then not compared with theirs turn by turn.
        """
        self.repeats = undisturbed((*self.repeats, *self.again), self.disturbed)
        self.forget_turns()

    def succeeded(self) -> Measurement:
        """The measurement of a candidate that was timed.

        If the candidate took part in turns, only repeats of turns count, since only these compare
        fairly with other candidates.
        """
        seconds = undisturbed(self.again, self.disturbed) if self.turns else self.repeats
        return self._measured(seconds=seconds, max_relative_error=self.error)

    def failed(self, kind: FailureKind, message: str, *, error: float | None = None) -> Measurement:
        """The measurement of a candidate that failed.

        Args:
            kind: The kind of failure.
            message: The message about the failure.
            error: The largest relative error of the outputs, or None.
        """
        return self._measured(failure=kind, message=message, max_relative_error=error)

    def _measured(self, **outcome: Any) -> Measurement:
        return Measurement(
            config=self.config,
            build_seconds=self.build_seconds,
            run_seconds=self.run_seconds,
            **outcome,
        )

    def failed_reply(self, reply: Message, log: str) -> Measurement:
        """Convert a worker's reply about a failure to a failed measurement.

        Args:
            reply: The reply.
            log: The end of the worker's output.
        """
        text = reply["message"] + (f"; it printed: {log[-400:]}" if log else "")
        return self.failed(FailureKind(reply["kind"]), text, error=reply.get("error"))

    def ended(self, end: WorkerEnd, *, building: bool) -> Measurement:
        """The measurement of a candidate whose worker ended during its build or its run.

        Args:
            end: The way in which the worker ended.
            building: Whether the worker was building the candidate, and not running it.
        """
        return self.failed(_kind_of_end(end, building=building), end.explain())


def _kind_of_end(end: WorkerEnd, *, building: bool) -> FailureKind:
    if end.reason is EndReason.DEADLINE:
        return FailureKind.BUILD_TIMEOUT if building else FailureKind.RUN_TIMEOUT
    starved = any(text in end.log for text in _ALLOCATION_FAILED)
    if end.reason is EndReason.MEMORY or (starved and end.status != 0):
        return FailureKind.OUT_OF_MEMORY
    return FailureKind.CRASH
