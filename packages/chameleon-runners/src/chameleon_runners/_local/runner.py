"""The runner ``local``: worker processes on this machine's CPU."""

from __future__ import annotations

import contextlib
import math
import platform
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

import attrs
from chameleon_core.api import installed
from chameleon_core.plugin_api import (
    Contender,
    Disturbance,
    MeasureJob,
    MeasureStream,
    OrderedStream,
    TargetError,
    Task,
)
from chameleon_system.api import CoreWatch, processor_name, usable_cores

from chameleon_runners._core_meter import CoreMeter
from chameleon_runners._engine.comparison import Comparison, ContenderState
from chameleon_runners._engine.context import CandidateRun
from chameleon_runners._engine.deadlines import Deadlines
from chameleon_runners._engine.process_pool import ProcessPool
from chameleon_runners._engine.references import Reference, builder_key
from chameleon_runners._engine.runner import MeasuringRunner, Resources
from chameleon_runners._engine.workers import BuilderPool
from chameleon_runners._local.context import LocalContext
from chameleon_runners._local.disturbance import LocalDisturbance
from chameleon_runners._local.job_run import LocalJobRun, LocalJobRuns
from chameleon_runners._local.options import LocalOptions
from chameleon_runners._worker.protocol import Message


class ProcessComparison(Comparison[CandidateRun]):
    """The final comparison of a task, in which each program runs in its own worker process."""

    _context: LocalContext

    def __init__(
        self, task: Task, contenders: Sequence[Contender], *, context: LocalContext
    ) -> None:
        entries = [
            ContenderState(
                contender=contender,
                candidate=CandidateRun(config=tuple(contender.config), slot=number),
            )
            for number, contender in enumerate(contenders)
        ]
        super().__init__(task, entries, context=context, reserve_worker=True)

    def _time(self) -> None:
        self._time_in_turns()

    def _answer(
        self, entry: ContenderState[CandidateRun], message: Message, *, timed: bool = False
    ) -> Message | None:
        context, candidate = self._context, entry.candidate
        ask = context.clock if timed else context.ask
        while entry.result is None:
            self._check_interrupt()
            # A candidate that lost its worker is built again.
            if candidate.worker is None or not context.pool.is_alive(candidate.worker):
                entry.result = candidate.memory_failure(context.retries)
                if entry.result is None:
                    entry.built = False
                    self._build()
                continue
            event = ask(candidate.worker, message, context.options.reference_timeout)
            reply = event.reply
            if reply is not None and reply["status"] == "ok":
                candidate.run_seconds += event.seconds
                return reply
            if reply is not None:
                entry.result = candidate.failed_reply(reply, "")
            elif event.end is not None and not candidate.should_retry(event.end, context.retries):
                entry.result = candidate.ended(event.end, building=False)
        return None


Measure = Callable[[Sequence[MeasureJob]], Generator[MeasureStream.Arrival, None, None]]


class LocalStream(OrderedStream):
    """Measures jobs in the order of their arrival; jobs with one configuration run in groups."""

    def __init__(self, measure: Measure, *, size: int) -> None:
        super().__init__()
        self._measure = measure
        self._size = size

    def _begin(self) -> Generator[MeasureStream.Arrival, None, None]:
        jobs = [self._waiting.popleft()]
        while (
            self._waiting
            and len(jobs) < self._size
            and all(len(job.configs) == 1 for job in (jobs[0], self._waiting[0]))
        ):
            jobs.append(self._waiting.popleft())
        return self._measure(jobs)


_MOST_COLD_BYTES = 64 << 20
"""Largest number of bytes of copies of the weights, unless the options name another number."""
_BUILDS_PER_WORKER, _SMALL_BATCH = 4, 8


class LocalRunner(MeasuringRunner[LocalOptions, ProcessPool]):
    """Builds candidates in parallel worker processes, and times one kernel at a time."""

    versioned = (*MeasuringRunner.versioned, "torch")
    is_local = True

    def __init__(self, options: LocalOptions) -> None:
        usable = len(usable_cores())
        super().__init__(options, kind="local", threads=options.threads or usable)
        if self._threads > usable:
            raise TargetError(
                f"{self._threads} threads on {usable} usable cores would time the "
                "scheduler of the operating system rather than kernels",
                hint=f"set the runner's threads to at most {usable}",
            )
        self._watch = CoreWatch(self._cores[: self._threads])
        self._disturbance = LocalDisturbance(CoreMeter(self._cores[: self._threads]))
        self._comparison_pool: ProcessPool | None = None

    @property
    def batch_size(self) -> int:
        # A few per worker, since a batch waits for its slowest build; with many workers one each,
        # since the search learns only between batches.
        return max(self._size, min(_BUILDS_PER_WORKER * self._size, _SMALL_BATCH))

    def _make_pool(self) -> ProcessPool:
        return self._process_pool(threads=self._threads, blas_threads=1)

    def _context(
        self,
        task: Task,
        pool: ProcessPool,
        builders: BuilderPool,
        reference: Reference,
        deadlines: Deadlines,
    ) -> LocalContext:
        policy = self._policy
        if self._options.cold_bytes is None:
            policy = attrs.evolve(policy, cold_bytes=min(task.cold_bytes, _MOST_COLD_BYTES))
        return LocalContext(
            pool=pool,
            builders=builders,
            options=self._options,
            policy=policy,
            reference=reference,
            deadlines=deadlines,
            threads=self._threads,
            retries=self._options.retries,
            clock_cores=tuple(self._cores[:1]),
            watch=self._watch,
            disturbance=self._disturbance,
        )

    def _measure_ahead(self, job: MeasureJob) -> Generator[MeasureStream.Arrival, None, None]:
        # The option ``ahead``: the first kernels are complete before the others are built.
        ahead = self._options.ahead if math.isinf(job.best_seconds) else 0
        best = job.best_seconds
        for configs in (job.configs[:ahead], job.configs[ahead:]):
            part = attrs.evolve(job, configs=configs, best_seconds=best)
            with contextlib.closing(self._measure([part])) as arrivals:
                for arrival in arrivals:
                    best = min(best, arrival.measurement.cost)
                    yield MeasureStream.Arrival(job=job, measurement=arrival.measurement)

    def _measure(self, jobs: Sequence[MeasureJob]) -> Generator[MeasureStream.Arrival, None, None]:
        """Measure one job, or several jobs with one configuration each."""
        if self._interrupted or self._closed or not jobs[0].configs:
            return
        runs = self._job_runs(jobs)
        self._activate(runs)
        try:
            yield from runs.measurements()
        finally:
            self._active = None

    def _job_runs(self, jobs: Sequence[MeasureJob]) -> LocalJobRuns:
        resources = self._start()
        runs = []
        for job in jobs:
            key = builder_key(job.space, job.task)
            reference = resources.references.of(key)
            deadlines = self._deadlines_of(key)
            context = self._context(
                job.task, resources.pool, resources.builders, reference, deadlines
            )
            # A worker holds the kernels of one task only.
            single_worker = len(jobs) > 1
            runs.append(
                LocalJobRun(
                    job, context=context, numbers=self._numbers, single_worker=single_worker
                )
            )
        return LocalJobRuns(runs, context)

    def stream(self) -> MeasureStream:
        return LocalStream(self._group, size=self._size)

    def _group(self, jobs: Sequence[MeasureJob]) -> Generator[MeasureStream.Arrival, None, None]:
        return self._measure_ahead(jobs[0]) if len(jobs) == 1 else self._measure(jobs)

    @contextlib.contextmanager
    def _comparison(
        self,
        resources: Resources[ProcessPool],
        task: Task,
        contenders: Sequence[Contender],
        reference: Reference,
    ) -> Iterator[ProcessComparison]:
        del resources  # a comparison has its own pool
        blas_threads = self._threads if reference.ready else 1
        pool = self._process_pool(threads=self._threads, blas_threads=blas_threads)
        self._comparison_pool = pool
        try:
            # Builders may use all cores, because some kernels start threads while they are built.
            builders = BuilderPool(pool=pool, size=len(contenders))
            context = self._context(task, pool, builders, reference, Deadlines(self._options))
            yield ProcessComparison(task, contenders, context=context)
        finally:
            self._comparison_pool = None
            pool.close()

    def _hardware(self) -> dict[str, Any]:
        return {"device": processor_name() or platform.machine(), "cores": len(self._cores)}

    def conditions(self) -> Mapping[str, Any]:
        return {
            "threads": self._threads,
            "cold_bytes": self._options.cold_bytes or 0,
            "versions": installed(("apache-tvm",)),
        }

    def resume(self, disturbance: Disturbance) -> None:
        self._disturbance.speed.resume(disturbance.usual_speeds)

    def disturbance(self) -> Disturbance:
        return self._disturbance.total

    def _release_devices(self, *, graceful: bool) -> None:
        del graceful
        if self._comparison_pool is not None:
            self._comparison_pool.close()
        self._watch.close()
