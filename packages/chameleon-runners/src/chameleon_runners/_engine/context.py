"""The state of a runner while it measures the kernels of one task."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import attrs
from chameleon_core.plugin_api import FailureKind, Measurement

from chameleon_runners._engine.deadlines import Deadlines
from chameleon_runners._engine.references import Reference
from chameleon_runners._engine.workers import BuilderPool, EndReason, Worker, WorkerEnd, WorkerPool
from chameleon_runners._timing import TimingPolicy, counted_repeats
from chameleon_runners._timing_options import TimingOptions
from chameleon_runners._worker.protocol import Message

_MEMORY_OPTION = "memory_mib of the runner"
_ALLOCATION_FAILED = ("bad_alloc", "out of memory", "Cannot allocate memory", "MemoryError")
"""Messages that libraries print before they abort for lack of memory."""


def _is_more_usual(speed: float, other: float) -> bool:
    """Whether a speed is nearer to 1 than another; 0 stands for none.

    Kernels that also wait for memory do not slow down as much as the clock. So a time is known less
    well if it is scaled from an unusual speed.
    """
    return speed > 0.0 and (other == 0.0 or abs(math.log(speed)) < abs(math.log(other)))


@attrs.define(kw_only=True, eq=False)
class CandidateRun:
    """The state of one configuration while a runner builds, checks and times it.

    Attributes:
        slot: a number that identifies the kernel; no other kernel of the runner has it.
        worker: the worker that holds the kernel; None if no worker does.
        worker_losses: the number of workers that were killed during work on this configuration, or
            that exceeded their memory limit while they held its kernel.
        build_seconds: wall-clock time of the build in seconds.
        run_seconds: wall-clock time of check and timing in seconds.
        number: the number of runs per repeat.
        repeats: mean seconds per run of each repeat, at the usual speed of the cores.
        turn_repeats: the same for repeats in turns with other fast candidates.
        disturbed: the same for repeats in turns during which a thread lost its core.
        other_speeds: the same for repeats in turns at speeds that are less usual, or that changed.
        turns: the number of turns.
        speed: the speed of the cores at the first timing, relative to the usual one.
        turn_speed: the most usual speed of a turn; 0 without turns.
        too_fast: the share of repeats that may have been timed at a higher speed than the clock
            showed before and after them.
        failure: the measurement, if the candidate failed after it was timed.
    """

    config: tuple[int, ...]
    slot: int
    worker: Worker | None = None
    worker_losses: int = 0
    build_seconds: float = 0.0
    run_seconds: float = 0.0
    number: int = 0
    error: float | None = None
    repeats: tuple[float, ...] = ()
    turn_repeats: list[float] = attrs.field(factory=list)
    disturbed: list[float] = attrs.field(factory=list)
    other_speeds: list[float] = attrs.field(factory=list)
    turns: int = 0
    speed: float = 1.0
    turn_speed: float = 0.0
    too_fast: float = 0.0
    failure: Measurement | None = None

    @property
    def fastest(self) -> float:
        """The candidate's seconds per run in its fastest repeat; infinity without any repeat."""
        certain = (*self._first_repeats, *self.turn_repeats)
        if self.too_fast and len(certain) > 1:
            return min(counted_repeats(certain, quantile=self.too_fast))
        return min((*certain, *self.disturbed), default=min(self.other_speeds, default=math.inf))

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
            self.worker.slots_to_free.append(self.slot)
            self.worker = None

    def should_retry(self, end: WorkerEnd, retries: int) -> bool:
        """Count a killed worker, and return whether to try the candidate again."""
        retry = end.killed_externally and self.worker_losses < retries
        self.worker_losses += retry
        return retry

    def memory_failure(self, retries: int) -> Measurement | None:
        """The failure of a candidate that was held by too many workers without memory, or None."""
        end = None if self.worker is None else self.worker.end
        if end is None or end.reason is not EndReason.MEMORY:
            return None
        self.worker_losses += 1
        return self.ended(end, building=False) if self.worker_losses > retries else None

    def add_turn(
        self,
        undisturbed: Iterable[float],
        disturbed: Iterable[float] = (),
        *,
        speed: float | None = 1.0,
    ) -> None:
        """Add the repeats of one turn, in which the candidate was timed between others.

        Args:
            undisturbed: seconds per run of repeats during which no thread lost its core.
            disturbed: the same for other repeats.
            speed: the speed of the cores, relative to the usual one; None if it changed.
        """
        self.turns += 1
        if speed is None:
            self.other_speeds.extend((*undisturbed, *disturbed))
            return
        at_usual_speed = [speed * seconds for seconds in undisturbed]
        if _is_more_usual(speed, self.turn_speed):
            self.other_speeds.extend(self.turn_repeats)
            self.turn_repeats.clear()
            self.turn_speed = speed
        repeats = self.turn_repeats if speed == self.turn_speed else self.other_speeds
        repeats.extend(at_usual_speed)
        self.disturbed.extend(speed * seconds for seconds in disturbed)

    def clear_turns(self) -> None:
        """Remove all repeats that were taken in turns."""
        self.turn_repeats.clear()
        self.disturbed.clear()
        self.other_speeds.clear()
        self.turns, self.turn_speed = 0, 0.0

    def merge_turns(self) -> None:
        """Merge the repeats of turns into ``repeats``."""
        repeats = (*self._first_repeats, *self.turn_repeats)
        self.repeats = counted_repeats(repeats, self._uncertain, quantile=self.too_fast)
        self.clear_turns()

    @property
    def _first_repeats(self) -> tuple[float, ...]:
        """The repeats before all turns, unless their speed was less usual than that of a turn."""
        return () if _is_more_usual(self.turn_speed, self.speed) else self.repeats

    @property
    def _uncertain(self) -> tuple[float, ...]:
        """Repeats in turns that count only if there are too few others."""
        return (*self.disturbed, *self.other_speeds)

    def succeeded(self) -> Measurement:
        """The measurement of a candidate that was timed.

        After turns, only their repeats count, because only these compare fairly with other
        candidates.
        """
        seconds = self.repeats
        if self.turns:
            repeats = self.turn_repeats
            seconds = counted_repeats(repeats, self._uncertain, quantile=self.too_fast)
        return self._measured(seconds=seconds, max_relative_error=self.error)

    def failed(self, kind: FailureKind, message: str, *, error: float | None = None) -> Measurement:
        """The measurement of a candidate that failed."""
        if kind is FailureKind.OUT_OF_MEMORY and _MEMORY_OPTION not in message:
            message += f"; {_MEMORY_OPTION} limits the memory of a worker"
        return self._measured(failure=kind, message=message, max_relative_error=error)

    def _measured(self, **outcome: Any) -> Measurement:
        return Measurement(
            config=self.config,
            build_seconds=self.build_seconds,
            run_seconds=self.run_seconds,
            **outcome,
        )

    def failed_reply(self, reply: Message, log: str) -> Measurement:
        """Convert a worker's reply about a failure to a failed measurement."""
        text = reply["message"] + (f"; it printed: {log[-400:]}" if log else "")
        return self.failed(FailureKind(reply["kind"]), text, error=reply.get("error"))

    def ended(self, end: WorkerEnd, *, building: bool) -> Measurement:
        """The measurement of a candidate whose worker ended during its build or its run."""
        return self.failed(_kind_of_end(end, building=building), end.explain())


def _kind_of_end(end: WorkerEnd, *, building: bool) -> FailureKind:
    if end.reason is EndReason.DEADLINE:
        return FailureKind.BUILD_TIMEOUT if building else FailureKind.RUN_TIMEOUT
    allocation_failed = any(text in end.log for text in _ALLOCATION_FAILED)
    if end.reason is EndReason.MEMORY or (allocation_failed and end.status != 0):
        return FailureKind.OUT_OF_MEMORY
    return FailureKind.CRASH


# Cached, because it is the same for every candidate.
_as_json = functools.cache(attrs.asdict)


def measure_fields(
    reference: Reference, policy: TimingPolicy, best: float | None, cores: Sequence[int] = ()
) -> Message:
    """The fields of a command that makes a worker check and time a kernel.

    ``best`` is the lowest time of the task so far in seconds, or infinity. With None, the worker
    checks the kernel and only finds the number of runs per repeat.
    """
    return {
        "cores": list(cores),
        "reference": str(reference.path),
        "tolerance": reference.tolerance,
        "policy": _as_json(policy),
        "probe": best is None,
        "best": best,
    }


@attrs.frozen(kw_only=True, eq=False)
class MeasureContext:
    """The workers, options and limits with which a runner measures the kernels of one task.

    Attributes:
        threads: the number of threads that a kernel runs with.
        retries: the number of further tries if another process killed a candidate's worker.
        clock_cores: the cores to bind a worker's main thread to while it times a kernel; empty if
            kernels run on other machines.
    """

    pool: WorkerPool
    builders: BuilderPool
    options: TimingOptions
    policy: TimingPolicy
    reference: Reference
    deadlines: Deadlines
    threads: int
    retries: int
    clock_cores: tuple[int, ...] = ()

    def measure_command(
        self, candidate: CandidateRun, *, best: float | None, cores: Sequence[int] = ()
    ) -> Message:
        """The command that makes a worker check and time its kernel (``measure_fields``)."""
        asked = measure_fields(self.reference, self.policy, best, cores)
        return {"command": "measure", "slot": candidate.slot, **asked}

    def turn_command(self, candidate: CandidateRun) -> Message:
        """The command that makes a worker time a checked kernel once more, for one turn."""
        return {
            "command": "repeat",
            "slot": candidate.slot,
            "cores": list(self.clock_cores),
            "number": candidate.number,
            "count": self.policy.repeats_per_turn(candidate.repeat_seconds),
            # A single switch of threads spoils all repeats that are taken together.
            "singly": bool(candidate.disturbed),
            "cold_bytes": self.policy.cold_bytes,
        }
