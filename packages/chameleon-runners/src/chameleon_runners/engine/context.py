"""The workers, options and limits with which a runner measures the kernels of one task."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import attrs

from chameleon_runners.engine.candidate_run import CandidateRun
from chameleon_runners.engine.deadlines import Deadlines
from chameleon_runners.engine.references import Reference
from chameleon_runners.engine.workers import BuilderPool, WorkerPool
from chameleon_runners.timing import TimingPolicy
from chameleon_runners.timing_options import TimingOptions
from chameleon_runners.worker.protocol import Message

# Made once, and not for every candidate.
_as_json = functools.cache(attrs.asdict)


def checked_and_timed(
    reference: Reference, policy: TimingPolicy, best: float | None, cores: Sequence[int] = ()
) -> Message:
    """The fields of a command that makes a worker check and time a kernel.

    Args:
        reference: The task's reference outputs.
        policy: The options of timing.
        best: The lowest time of the task so far in seconds, infinity if there is none. With None,
            the worker checks the kernel and only finds the number of runs per repeat.
        cores: The cores to bind the worker's main thread to; empty to bind it to none.
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
        pool: All workers.
        builders: The workers that build.
        options: The runner's options.
        policy: The options of timing.
        reference: The task's reference outputs, which the first worker that needs them computes.
        deadlines: The task's time limits.
        threads: The number of threads that a kernel runs with.
        retries: The number of further tries if another process killed a candidate's worker.
        clock_cores: The cores to bind a worker's main thread to while it times a kernel. Empty if
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
        """The command that makes a worker check and time its kernel (``checked_and_timed``).

        Args:
            candidate: The candidate whose kernel the worker holds.
            best: The lowest time of the task so far in seconds, infinity if there is none. A much
                slower kernel is timed only briefly. With None, the worker checks the kernel and
                does not time it.
            cores: The cores to bind the worker's main thread to.
        """
        asked = checked_and_timed(self.reference, self.policy, best, cores)
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
