"""The runner of a fleet: what ``rpc``, ``cuda`` and their like are made of."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from chameleon_core.stages import Contender, MeasureJob, MeasureStream
from chameleon_core.task import Task

from chameleon_runners.engine.deadlines import Deadlines
from chameleon_runners.engine.references import Reference, stage_key
from chameleon_runners.engine.runner import MeasuringRunner, Resources
from chameleon_runners.engine.workers import WorkerPool
from chameleon_runners.fleet.context import FleetContext
from chameleon_runners.fleet.device_comparison import DeviceComparison
from chameleon_runners.fleet.device_pool import DevicePool
from chameleon_runners.fleet.device_ref import DeviceRef
from chameleon_runners.fleet.job_run import FleetJobRun
from chameleon_runners.fleet.options import FleetOptions
from chameleon_runners.fleet.pace import PaceMonitor
from chameleon_runners.fleet.stream import FleetStream

_PER_DEVICE, _SMALL_BATCH = 2, 8


class FleetRunner(MeasuringRunner[FleetOptions, WorkerPool]):
    """Builds in worker processes here, runs wherever a device is free.

    One thread waits for everything. A candidate goes to any free device; one that a device
    failed on is tried elsewhere before anybody is blamed. Connections are kept from batch to
    batch, as workers are.

    Args:
        options: the runner's options.
        device_refs: lists the devices there are now; asked again from time to time, so it has to
            answer within a second. Devices that appear join, those that vanish are let go.
        kind: the runner's name in records and messages.
    """

    def __init__(
        self, options: FleetOptions, device_refs: Callable[[], Sequence[DeviceRef]], *, kind: str
    ) -> None:
        super().__init__(options, kind=kind, threads=options.threads)
        self._device_refs = device_refs
        self._devices: DevicePool | None = None
        self._paces: PaceMonitor | None = None

    @property
    def batch_size(self) -> int:
        # A search learns between batches, but a device must not wait for the slowest other one.
        return max(_SMALL_BATCH, _PER_DEVICE * self.lanes)

    @property
    def lanes(self) -> int:
        return len(self._devices.known) if self._devices is not None else 0

    def _make_pool(self) -> WorkerPool:
        return self._process_pool(threads=1, blas_threads=1)

    @property
    def _recycle_after(self) -> int | None:
        return self._options.recycle_after

    def _started(self, resources: Resources[WorkerPool]) -> None:
        devices = DevicePool(resources.pool, self._options, self._device_refs)
        devices.start()
        self._devices = devices

    @property
    def _known_devices(self) -> DevicePool:
        if self._devices is None:
            raise RuntimeError("devices are listed when the workers start")
        return self._devices

    def _context(
        self, resources: Resources[WorkerPool], reference: Reference, deadlines: Deadlines
    ) -> FleetContext:
        devices = self._known_devices
        self._paces = self._paces or PaceMonitor(
            resources.pool, devices, self._options, self._policy
        )
        return FleetContext(
            pool=resources.pool,
            builders=resources.builders,
            options=self._options,
            policy=self._policy,
            reference=reference,
            deadlines=deadlines,
            threads=self._threads,
            retries=self._options.retries,
            devices=devices,
            paces=self._paces,
            folder=resources.folder,
        )

    def stream(self) -> MeasureStream:
        resources = self._start()

        def begin(job: MeasureJob) -> FleetJobRun:
            key = stage_key(job.space, job.task)
            reference = resources.references.of(key)
            context = self._context(resources, reference, self._deadlines_of(key))
            return FleetJobRun(job, context=context, numbers=self._numbers)

        stream = FleetStream(
            resources.pool,
            self._known_devices,
            self._options,
            begin=begin,
            closed=self._no_longer_active,
        )
        self._activate(stream)
        return stream

    def _no_longer_active(self) -> None:
        self._active = None

    @contextlib.contextmanager
    def _comparison(
        self,
        resources: Resources[WorkerPool],
        task: Task,
        contenders: Sequence[Contender],
        reference: Reference,
    ) -> Iterator[DeviceComparison]:
        context = self._context(resources, reference, Deadlines(self._options))
        yield DeviceComparison(task, contenders, context=context, numbers=self._numbers)

    def _hardware(self) -> dict[str, Any]:
        devices = self._devices.known.values() if self._devices is not None else ()
        return {"devices": [device.to_json() for device in devices]}

    def _leave(self, *, polite: bool) -> None:
        if polite and self._devices is not None:
            with contextlib.suppress(Exception):
                self._devices.farewell()
