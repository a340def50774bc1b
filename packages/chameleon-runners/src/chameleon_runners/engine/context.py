"""The tools that build and time the kernels of one task, whoever does it."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import attrs

from chameleon_runners.engine.builder_pool import BuilderPool
from chameleon_runners.engine.candidate_run import CandidateRun
from chameleon_runners.engine.deadlines import Deadlines
from chameleon_runners.engine.references import Reference
from chameleon_runners.engine.workers import WorkerPool
from chameleon_runners.timing import TimingPolicy
from chameleon_runners.timing_options import TimingOptions
from chameleon_runners.worker.protocol import Message

# Made once, and not for every candidate.
_as_json = functools.cache(attrs.asdict)


def checked_and_timed(
    reference: Reference, policy: TimingPolicy, best: float | None, cores: Sequence[int] = ()
) -> Message:
    """Fields of a command that has a kernel checked and timed.

    Args:
        reference: its expected outputs.
        policy: the clock policy.
        best: the best cost so far in seconds; the kernel is checked and probed only if None.
        cores: that the worker's main thread is bound to; if empty it is not.
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
    """The workers, the clock and the expected outputs.

    Attributes:
        pool: the workers.
        builders: those of them that build.
        options: the runner's options.
        policy: the clock policy.
        reference: the task's expected outputs, computed by whoever needs them first.
        deadlines: the task's time-outs.
        threads: threads a kernel runs with.
        retries: further tries of a candidate whose worker was killed from outside.
        clock_cores: that the main thread of a worker is bound to while a kernel is timed there;
            empty if that is another machine's business.
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
        """Have a kernel checked and timed that a worker holds; see ``checked_and_timed``."""
        asked = checked_and_timed(self.reference, self.policy, best, cores)
        return {"command": "measure", "slot": candidate.slot, **asked}

    def turn_command(self, candidate: CandidateRun) -> Message:
        """Have a kernel that was checked before make the repeats of one turn."""
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
