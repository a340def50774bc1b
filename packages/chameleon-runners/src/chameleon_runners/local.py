"""The ``local`` runner: worker processes on this machine's CPU."""

from __future__ import annotations

import contextlib
import math
import platform
import shutil
import threading
import weakref
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import attrs
from chameleon_core.errors import TargetError
from chameleon_core.measurement import Measurement
from chameleon_core.stages import (
    Arrival,
    Contender,
    MeasureJob,
    MeasureStream,
    Runner,
    StageRef,
)
from chameleon_core.task import Task
from chameleon_core.versions import installed
from chameleon_system.cores import CoreWatch, usable_cores
from chameleon_system.processes.ending import kill_abandoned
from chameleon_system.processes.scratch import make_scratch, remove_abandoned
from chameleon_system.processor import processor_name

from chameleon_runners import environment
from chameleon_runners.batch import Batch, stage_key
from chameleon_runners.comparison import Comparison
from chameleon_runners.deadlines import Deadlines
from chameleon_runners.local_context import LocalContext
from chameleon_runners.local_pool import LocalPool, Workers
from chameleon_runners.local_stream import JobGroup, LocalStream, PoolMember
from chameleon_runners.options import LocalOptions
from chameleon_runners.references import Reference, References
from chameleon_runners.timing import TimingPolicy

_MIB = 1 << 20
_BUILDS_PER_WORKER, _SMALL_BATCH = 4, 8
_VERSIONED = ("apache-tvm", "numpy", "torch", "chameleon-tuner-runners", "chameleon-tuner-tvm")


class LocalRunner(Runner):
    """Builds in parallel, times alone, each candidate in a worker process with a deadline.

    Workers are kept: the next batch of a task finds them warm. Entering the context starts
    them; closing, or the end of this process for whatever reason, ends them.

    Args:
        options: the runner's options.
    """

    def __init__(self, options: LocalOptions) -> None:
        self._options = options
        self._cores = usable_cores()
        self._threads = options.threads or len(self._cores)
        if self._threads > len(self._cores):
            raise TargetError(
                f"{self._threads} threads on {len(self._cores)} usable cores would time the "
                "scheduler of the operating system rather than kernels",
                hint=f"set the runner's threads to at most {len(self._cores)}",
            )
        self._size = options.workers or len(self._cores)
        self._memory = (
            options.memory_mib * _MIB
            if options.memory_mib is not None
            else environment.memory_limit(self._size)
        )
        self._policy = TimingPolicy.of(options)
        self._watch = CoreWatch(self._cores[: self._threads])
        self._pool: LocalPool | None = None
        self._references: References | None = None
        self._deadlines: dict[str, Deadlines] = {}
        self._active: Batch | JobGroup | Comparison | None = None
        self._active_pool: LocalPool | None = None
        self._interrupted = False
        self._closed = False
        self._closing = threading.RLock()
        self._next_slot = 0
        self._preload: str | None = None
        self._remove: weakref.finalize[..., Any] | None = None

    @property
    def batch_size(self) -> int:
        # All wait for the slowest build of a batch, so a few for each worker; but where there
        # are many workers one for each, or the search would learn nothing between its batches.
        return max(self._size, min(_BUILDS_PER_WORKER * self._size, _SMALL_BATCH))

    def prepare(self, space: StageRef) -> None:
        self._preload = space.factory

    def __enter__(self) -> Self:
        self._start().fill(self._size)
        return self

    def _start(self) -> LocalPool:
        """The workers, and the temporary folder; made when first needed."""
        if self._closed:
            raise TargetError(
                "the local runner is closed", hint="make a new one for further measurements"
            )
        if self._pool is None:
            remove_abandoned()
            kill_abandoned()
            folder = make_scratch()
            self._references = References(folder)
            self._pool = self._make_pool(self._size, blas_threads=1, preload=self._preload)
            self._remove = weakref.finalize(self, _clean_up, self._pool, folder)
        return self._pool

    def _make_pool(self, size: int, *, blas_threads: int, preload: str | None = None) -> LocalPool:
        return LocalPool(
            size=size,
            threads=self._threads,
            blas_threads=blas_threads,
            cores=self._cores,
            memory_bytes=self._memory,
            start_timeout=self._options.start_timeout,
            preload=preload,
        )

    def _context(self, pool: Workers, reference: Reference) -> LocalContext:
        return LocalContext(
            pool=pool,
            watch=self._watch,
            options=self._options,
            policy=self._policy,
            reference=reference,
            threads=self._threads,
        )

    @property
    def _expected(self) -> References:
        if self._references is None:
            raise RuntimeError("references are made with the workers")
        return self._references

    def measure(self, job: MeasureJob) -> Iterator[Measurement]:
        # A task's first configurations are done with, rounds and all, before the others are
        # built: whoever waits has a kernel, and the others a best to be hopeless next to.
        ahead = self._options.ahead if math.isinf(job.best_seconds) else 0
        best = job.best_seconds
        for configs in (job.configs[:ahead], job.configs[ahead:]):
            part = attrs.evolve(job, configs=configs, best_seconds=best)
            with contextlib.closing(self._measure(part)) as measurements:
                for measurement in measurements:
                    best = min(best, measurement.cost)
                    yield measurement

    def _measure(self, job: MeasureJob) -> Generator[Measurement, None, None]:
        if self._interrupted or self._closed or not job.configs:
            return
        batch = self._batch(job, self._start())
        self._activate(batch)
        try:
            yield from batch.run()
        finally:
            self._active = None

    def _batch(self, job: MeasureJob, pool: Workers) -> Batch:
        key = stage_key(job.space, job.task)
        first_slot = self._next_slot
        self._next_slot += len(job.configs)
        return Batch(
            job,
            context=self._context(pool, self._expected.of(key)),
            deadlines=self._deadlines.setdefault(key, Deadlines(self._options)),
            first_slot=first_slot,
        )

    def stream(self) -> MeasureStream:
        return LocalStream(self._group, size=self._size)

    def _group(self, jobs: Sequence[MeasureJob]) -> Generator[Arrival, None, None]:
        if len(jobs) == 1:
            for measurement in self.measure(jobs[0]):
                yield Arrival(job=jobs[0], measurement=measurement)
            return
        if self._interrupted or self._closed:
            return
        pool = self._start()
        members = [
            (job, self._batch(job, PoolMember(pool, place))) for place, job in enumerate(jobs)
        ]
        group = JobGroup(members, pool)
        self._activate(group)
        try:
            yield from group.run()
        finally:
            self._active = None

    def compare(self, task: Task, contenders: Sequence[Contender]) -> list[Measurement]:
        self._start()
        # A winner's own reference checks its rivals as well, and is known already.
        keys = [stage_key(contender.stage, task) for contender in contenders]
        reference = self._expected.known(keys) or self._expected.of(f"compare {task.key}")
        pool = self._make_pool(
            len(contenders), blas_threads=self._threads if reference.ready else 1
        )
        comparison = Comparison(task, contenders, context=self._context(pool, reference))
        self._active_pool = pool
        self._activate(comparison)
        try:
            return comparison.run() if contenders else []
        finally:
            self._active, self._active_pool = None, None
            pool.close()

    def describe(self) -> dict[str, Any]:
        return {
            "runner": "local",
            "device": processor_name() or platform.machine(),
            "cores": len(self._cores),
            "threads": self._threads,
            "workers": self._size,
            "system": platform.platform(),
            "python": platform.python_version(),
            "versions": installed(_VERSIONED),
            "timing": attrs.asdict(self._policy),
        }

    def _activate(self, active: Batch | JobGroup | Comparison) -> None:
        """Have what begins now told of an interrupt, such as one that came while it was made."""
        self._active = active
        if self._interrupted:
            active.interrupt()

    def interrupt(self) -> None:
        self._interrupted = True
        if self._active is not None:
            self._active.interrupt()

    def close(self) -> None:
        self._closed = True
        # A second caller returns no earlier than the first: when nothing is left.
        with self._closing:
            if self._active_pool is not None:
                self._active_pool.close()
            self._watch.close()
            if self._remove is not None:
                self._remove()


def _clean_up(pool: LocalPool, folder: Path) -> None:
    """End the workers, then remove the folder they read."""
    with contextlib.suppress(OSError):
        pool.close()
    shutil.rmtree(folder, ignore_errors=True)
