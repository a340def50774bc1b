"""The base class of runners that build in worker processes."""

from __future__ import annotations

import contextlib
import itertools
import platform
import shutil
import threading
import weakref
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import attrs
from chameleon_core.api import installed
from chameleon_core.plugin_api import (
    ComparisonPlan,
    Contender,
    MeasureJob,
    Measurement,
    Runner,
    StageRef,
    TargetError,
    Task,
)
from chameleon_system.api import (
    kill_abandoned,
    make_scratch_folder,
    remove_abandoned_folders,
    usable_cores,
)

from chameleon_runners import _environment as environment
from chameleon_runners._engine.comparison import Comparison
from chameleon_runners._engine.deadlines import Deadlines
from chameleon_runners._engine.process_pool import ProcessPool, Starter
from chameleon_runners._engine.references import Reference, References, builder_key
from chameleon_runners._engine.workers import BuilderPool, WorkerPool
from chameleon_runners._timing import TimingPolicy
from chameleon_runners._timing_options import TimingOptions

_MIB = 1 << 20

Options = TypeVar("Options", bound=TimingOptions)
Pool = TypeVar("Pool", bound=WorkerPool)


class Interruptible(Protocol):
    """Work that can be interrupted, such as a comparison."""

    def interrupt(self) -> None:
        """Finish the running measurements, and start no new ones."""


@attrs.frozen(kw_only=True, eq=False)
class Resources(Generic[Pool]):
    """The objects that a runner makes when it starts, and closes when it ends."""

    pool: Pool
    builders: BuilderPool
    references: References
    folder: Path


class MeasuringRunner(Runner, Generic[Options, Pool]):
    """Builds candidates in worker processes; subclasses define where kernels are timed."""

    versioned: ClassVar[tuple[str, ...]] = (
        "apache-tvm",
        "numpy",
        "chameleon-tuner-runners",
        "chameleon-tuner-tvm",
    )
    """Distributions whose versions are recorded with measurements."""

    def __init__(self, options: Options, *, kind: str, threads: int) -> None:
        self._options = options
        self._kind = kind
        self._threads = threads
        self._cores = usable_cores()
        self._size = options.workers or len(self._cores)
        self._policy = TimingPolicy.of(options)
        self._resources: Resources[Pool] | None = None
        self._deadlines: dict[str, Deadlines] = {}
        self._numbers = itertools.count()
        self._active: Interruptible | None = None
        self._preload: str | None = None
        self._starts_late = False
        self._plan = ComparisonPlan()
        self._interrupted = False
        self._closed = False
        self._closing = threading.RLock()
        self._remove: weakref.finalize[..., Any] | None = None

    def prepare(self, space: StageRef) -> None:
        self._preload = space.factory

    def start_late(self) -> None:
        self._starts_late = True

    def __enter__(self) -> Self:
        if not self._starts_late:
            self._start().builders.fill(self._size)
        return self

    def _start(self) -> Resources[Pool]:
        """The workers and the temporary folder, which the first call creates."""
        if self._closed:
            raise TargetError(
                f"the {self._kind} runner is closed", hint="make a new one for further measurements"
            )
        if self._resources is None:
            remove_abandoned_folders()
            kill_abandoned()
            pool = self._make_pool()
            folder = make_scratch_folder()
            self._remove = weakref.finalize(self, _clean_up, pool, folder)
            resources = Resources(
                pool=pool,
                builders=BuilderPool(
                    pool=pool,
                    size=self._size,
                    cores=self._cores,
                    recycle_after=self._recycle_after,
                    preload=self._preload,
                ),
                references=References(folder),
                folder=folder,
            )
            try:
                self._started(resources)
            except BaseException:
                self._remove()
                raise
            self._resources = resources
        return self._resources

    @abstractmethod
    def _make_pool(self) -> Pool:
        """A new pool for builders and for workers that time kernels."""

    @property
    def _recycle_after(self) -> int | None:
        """The number of builds after which a builder is replaced."""
        return None

    def _started(self, resources: Resources[Pool]) -> None:
        """Start what else the runner needs, such as devices."""

    def _process_pool(self, *, threads: int, blas_threads: int) -> ProcessPool:
        """A pool of processes of this machine."""
        memory = self._options.memory_mib
        limit = environment.memory_limit(self._size) if memory is None else memory * _MIB
        return ProcessPool(
            Starter(
                threads=threads,
                blas_threads=blas_threads,
                cores=self._cores,
                memory_bytes=limit,
                start_timeout=self._options.start_timeout,
            )
        )

    def _deadlines_of(self, key: str) -> Deadlines:
        return self._deadlines.setdefault(key, Deadlines(self._options))

    def measure(self, job: MeasureJob) -> Iterator[Measurement]:
        if self._interrupted or self._closed or not job.configs:
            return
        with self.stream() as stream:
            stream.submit(job)
            while stream.busy:
                arrival = stream.poll()
                if arrival is not None:
                    yield arrival.measurement

    def plan_comparison(self, plan: ComparisonPlan) -> None:
        self._plan = plan

    def compare(self, task: Task, contenders: Sequence[Contender]) -> list[Measurement]:
        plan, self._plan = self._plan, ComparisonPlan()
        if not contenders:
            return []
        resources = self._start()
        # The reference of any contender's stage checks all contenders.
        keys = [builder_key(contender.stage, task) for contender in contenders]
        known = resources.references.known(keys)
        reference = known or resources.references.of(f"compare {task.key}")
        with self._comparison(resources, task, contenders, reference) as comparison:
            self._activate(comparison)
            try:
                return comparison.run(plan)
            finally:
                self._active = None

    @abstractmethod
    def _comparison(
        self,
        resources: Resources[Pool],
        task: Task,
        contenders: Sequence[Contender],
        reference: Reference,
    ) -> contextlib.AbstractContextManager[Comparison[Any]]:
        """A context with the comparison of contenders and the workers that only it needs."""

    def describe(self) -> dict[str, Any]:
        return {
            "runner": self._kind,
            **self._hardware(),
            "workers": self._size,
            "threads": self._threads,
            "system": platform.platform(),
            "python": platform.python_version(),
            "versions": installed(self.versioned),
            "timing": attrs.asdict(self._policy),
        }

    @abstractmethod
    def _hardware(self) -> dict[str, Any]:
        """A description of the hardware that kernels are timed on, for the records."""

    def _activate(self, active: Interruptible) -> None:
        """Pass interrupts to this work, also an interrupt that came before."""
        self._active = active
        if self._interrupted:
            active.interrupt()

    def interrupt(self) -> None:
        self._interrupted = True
        if self._active is not None:
            self._active.interrupt()

    def close(self) -> None:
        graceful = not self._closed and self._active is None
        self._closed = True
        # A second caller waits until the first has released everything.
        with self._closing:
            try:
                self._release_devices(graceful=graceful)
            finally:
                if self._remove is not None:
                    self._remove()

    @abstractmethod
    def _release_devices(self, *, graceful: bool) -> None:
        """Release what a subclass holds, such as devices."""


def _clean_up(pool: WorkerPool, folder: Path) -> None:
    """End the workers, then remove the folder that they use."""
    with contextlib.suppress(OSError):
        pool.close()
    shutil.rmtree(folder, ignore_errors=True)
