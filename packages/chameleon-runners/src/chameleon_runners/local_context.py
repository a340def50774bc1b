"""What kernels of one task are measured with, shared by batches and comparisons."""

from __future__ import annotations

from typing import Any

import attrs
from chameleon_system.cores import CoreWatch

from chameleon_runners.candidates import Candidate
from chameleon_runners.local_pool import Event, Workers
from chameleon_runners.options import LocalOptions
from chameleon_runners.references import Reference
from chameleon_runners.timing import TimingPolicy
from chameleon_runners.worker.protocol import Message
from chameleon_runners.worker_process import WorkerProcess


@attrs.frozen(kw_only=True, eq=False)
class LocalContext:
    """The workers, the clock and the expected outputs.

    Attributes:
        pool: the workers.
        watch: knows whether the cores may be timed on.
        options: the runner's options.
        policy: the clock policy.
        reference: the task's expected outputs, computed by whoever needs them first.
        threads: threads a kernel runs with.
    """

    pool: Workers
    watch: CoreWatch
    options: LocalOptions
    policy: TimingPolicy
    reference: Reference
    threads: int

    def measure_command(
        self, candidate: Candidate, *, best: float | None, cores: list[int]
    ) -> Message:
        """Have a kernel checked and timed; only checked and probed where ``best`` is None."""
        return {
            "command": "measure",
            "slot": candidate.slot,
            "cores": cores,
            "reference": str(self.reference.path),
            "tolerance": self.reference.tolerance,
            "policy": attrs.asdict(self.policy),
            "probe": best is None,
            "best": best,
        }

    def turn_command(self, candidate: Candidate) -> Message:
        """Have a kernel that was checked before make the repeats of one turn."""
        return {
            "command": "repeat",
            "slot": candidate.slot,
            "cores": self.pool.cores[:1],
            "number": candidate.number,
            "count": self.policy.repeats_per_turn(candidate.repeat_seconds),
            "cold_bytes": self.policy.cold_bytes,
        }

    def clock(
        self, worker: WorkerProcess, tag: Any, message: Message, timeout: float
    ) -> Event | None:
        """``ask``, once the cores that kernels run on do not hinder each other."""
        self.pool.quiet()
        self.watch.wait()
        return self.ask(worker, tag, message, timeout)

    def ask(
        self, worker: WorkerProcess, tag: Any, message: Message, timeout: float
    ) -> Event | None:
        """Have one worker do something while the others are still.

        Returns:
            Its answer or its end; None when the runner was closed meanwhile.
        """
        self.pool.quiet(worker)
        worker.submit(tag, message, timeout)
        event = None
        while event is None and not self.pool.closed:
            event = next(iter(self.pool.wait([worker])), None)
        return None if self.pool.closed else event
