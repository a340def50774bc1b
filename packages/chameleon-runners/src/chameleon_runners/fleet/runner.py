"""The runner of a fleet: what ``rpc``, ``cuda`` and their like are made of."""

from __future__ import annotations

import contextlib
import itertools
import platform
import shutil
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import attrs
from chameleon_core.errors import TargetError
from chameleon_core.measurement import Measurement
from chameleon_core.stages import Contender, MeasureJob, MeasureStream, Runner, StageRef
from chameleon_core.task import Task
from chameleon_core.versions import installed
from chameleon_system.cores import usable_cores
from chameleon_system.processes.ending import kill_abandoned
from chameleon_system.processes.scratch import make_scratch, remove_abandoned

from chameleon_runners import environment
from chameleon_runners.batch import stage_key
from chameleon_runners.deadlines import Deadlines
from chameleon_runners.fleet.builder_pool import BuilderPool
from chameleon_runners.fleet.comparison import FleetComparison
from chameleon_runners.fleet.device_pool import DevicePool
from chameleon_runners.fleet.device_ref import DeviceRef
from chameleon_runners.fleet.dispatch import Dispatch, FleetContext
from chameleon_runners.fleet.options import FleetOptions
from chameleon_runners.fleet.pace import Paces
from chameleon_runners.fleet.process_pool import ProcessPool
from chameleon_runners.fleet.streaming import FleetStream
from chameleon_runners.fleet.workers import WorkerPool
from chameleon_runners.references import Reference, References
from chameleon_runners.starter import Starter
from chameleon_runners.timing import TimingPolicy

_MIB = 1 << 20
_PER_DEVICE, _SMALL_BATCH = 2, 8
_VERSIONED = ("apache-tvm", "numpy", "chameleon-tuner-runners", "chameleon-tuner-tvm")


@attrs.frozen(kw_only=True, eq=False)
class _Resources:
    """What there is once the runner was started.

    Attributes:
        pool: the workers.
        devices: the devices.
        paces: how fast they are.
        builders: the builders.
        references: the expected outputs of every task.
        folder: the runner's temporary folder.
    """

    pool: WorkerPool
    devices: DevicePool
    paces: Paces
    builders: BuilderPool
    references: References
    folder: Path


class FleetRunner(Runner):
    """Builds in worker processes here, runs wherever a device is free.

    One thread waits for everything. A candidate goes to any free device; one that a device
    failed on is tried elsewhere before anybody is blamed. Workers and connections are kept
    from batch to batch; closing, or the end of this process for whatever reason, ends them.

    Args:
        options: the runner's options.
        device_refs: lists the devices there are now; asked again from time to time, so it has to
            answer within a second. Devices that appear join, those that vanish are let go.
        kind: the runner's name in records and messages.
    """

    def __init__(
        self, options: FleetOptions, device_refs: Callable[[], Sequence[DeviceRef]], *, kind: str
    ) -> None:
        self._options = options
        self._device_refs = device_refs
        self._kind = kind
        self._cores = usable_cores()
        self._size = options.workers or len(self._cores)
        self._policy = TimingPolicy.of(options)
        self._resources: _Resources | None = None
        self._deadlines: dict[str, Deadlines] = {}
        self._numbers = itertools.count()
        self._active: FleetStream | FleetComparison | None = None
        self._preload: str | None = None
        self._interrupted = False
        self._closed = False
        self._closing = threading.RLock()
        self._remove: weakref.finalize[..., Any] | None = None

    @property
    def batch_size(self) -> int:
        # A search learns between batches, but a device must not wait for the slowest other one.
        devices = len(self._resources.devices.known) if self._resources is not None else 0
        return max(_SMALL_BATCH, _PER_DEVICE * devices)

    def prepare(self, space: StageRef) -> None:
        self._preload = space.factory

    def __enter__(self) -> Self:
        resources = self._start()
        resources.builders.fill(self._size)
        return self

    def _start(self) -> _Resources:
        """The workers, the devices and the temporary folder; made when first needed."""
        if self._closed:
            raise TargetError(
                f"the {self._kind} runner is closed",
                hint="make a new one for further measurements",
            )
        if self._resources is None:
            remove_abandoned()
            kill_abandoned()
            self._resources = self._make_resources()
        return self._resources

    def _make_resources(self) -> _Resources:
        pool = self._make_pool()
        folder = make_scratch()
        self._remove = weakref.finalize(self, _clean_up, pool, folder)
        devices = DevicePool(pool, self._options, self._device_refs)
        resources = _Resources(
            pool=pool,
            devices=devices,
            paces=Paces(pool, devices, self._options, self._policy),
            builders=BuilderPool(
                pool,
                size=self._size,
                cores=self._cores,
                recycle_after=self._options.recycle_after,
                preload=self._preload,
            ),
            references=References(folder),
            folder=folder,
        )
        try:
            resources.devices.start()
        except BaseException:
            self._remove()
            raise
        return resources

    def _make_pool(self) -> WorkerPool:
        """The pool that builders and the devices' workers belong to."""
        memory = self._options.memory_mib
        limit = environment.memory_limit(self._size) if memory is None else memory * _MIB
        return ProcessPool(
            Starter(
                threads=1,
                blas_threads=1,
                cores=self._cores,
                memory_bytes=limit,
                start_timeout=self._options.start_timeout,
            )
        )

    def _context(self, resources: _Resources, key: str, reference: Reference) -> FleetContext:
        return FleetContext(
            pool=resources.pool,
            devices=resources.devices,
            paces=resources.paces,
            builders=resources.builders,
            options=self._options,
            policy=self._policy,
            reference=reference,
            deadlines=self._deadlines.setdefault(key, Deadlines(self._options)),
            folder=resources.folder,
        )

    @property
    def lanes(self) -> int:
        return len(self._resources.devices.known) if self._resources is not None else 0

    def measure(self, job: MeasureJob) -> Iterator[Measurement]:
        if self._interrupted or self._closed or not job.configs:
            return
        with self.stream() as stream:
            stream.submit(job)
            while stream.busy:
                arrival = stream.poll()
                if arrival is not None:
                    yield arrival.measurement

    def stream(self) -> MeasureStream:
        resources = self._start()

        def dispatch(job: MeasureJob) -> Dispatch:
            key = stage_key(job.space, job.task)
            context = self._context(resources, key, resources.references.of(key))
            return Dispatch(job, key, context=context, numbers=self._numbers)

        stream = FleetStream(
            resources.pool,
            resources.devices,
            self._options,
            dispatch=dispatch,
            closed=self._no_longer_active,
        )
        self._activate(stream)
        return stream

    def _no_longer_active(self) -> None:
        self._active = None

    def compare(self, task: Task, contenders: Sequence[Contender]) -> list[Measurement]:
        resources = self._start()
        # A winner's own reference checks its rivals as well, and is known already.
        keys = [stage_key(contender.stage, task) for contender in contenders]
        key = f"compare {task.key}"
        reference = resources.references.known(keys) or resources.references.of(key)
        comparison = FleetComparison(
            task,
            contenders,
            context=self._context(resources, key, reference),
            numbers=self._numbers,
        )
        self._activate(comparison)
        try:
            return comparison.run() if contenders else []
        finally:
            self._active = None

    def describe(self) -> dict[str, Any]:
        devices = self._resources.devices.known.values() if self._resources is not None else ()
        return {
            "runner": self._kind,
            "devices": [device.to_json() for device in devices],
            "workers": self._size,
            "threads": self._options.threads,
            "system": platform.platform(),
            "python": platform.python_version(),
            "versions": installed(_VERSIONED),
            "timing": attrs.asdict(self._policy),
        }

    def _activate(self, active: FleetStream | FleetComparison) -> None:
        """Have what begins now told of an interrupt, such as one that came while it was made."""
        self._active = active
        if self._interrupted:
            active.interrupt()

    def interrupt(self) -> None:
        self._interrupted = True
        if self._active is not None:
            self._active.interrupt()

    def close(self) -> None:
        polite = not self._closed and self._active is None
        self._closed = True
        # A second caller returns no earlier than the first: when nothing is left.
        with self._closing:
            if polite and self._resources is not None:
                with contextlib.suppress(Exception):
                    self._resources.devices.farewell()
            if self._remove is not None:
                self._remove()


def _clean_up(pool: WorkerPool, folder: Path) -> None:
    """End the workers, then remove the folder they read."""
    with contextlib.suppress(OSError):
        pool.close()
    shutil.rmtree(folder, ignore_errors=True)
