"""The base of runners that measure on a fleet of devices, such as ``rpc`` and ``cuda``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
from chameleon_core.plugin_api import (
    ChameleonError,
    Contender,
    FailureKind,
    MeasureJob,
    Measurement,
    MeasureStream,
    Task,
)

from chameleon_runners._engine.comparison import Comparison, ContenderState
from chameleon_runners._engine.deadlines import Deadlines
from chameleon_runners._engine.references import Reference, builder_key
from chameleon_runners._engine.runner import MeasuringRunner, Resources
from chameleon_runners._engine.workers import BuilderPool, StoppedError, WorkerEvent, WorkerPool
from chameleon_runners._fleet.candidate_run import FleetCandidateRun
from chameleon_runners._fleet.device_pool import DevicePool
from chameleon_runners._fleet.device_state import DeviceRef, DeviceState
from chameleon_runners._fleet.job_run import FleetContext, FleetJobRun
from chameleon_runners._fleet.options import FleetOptions
from chameleon_runners._fleet.pace import PaceMonitor
from chameleon_runners._fleet.verdicts import Verdict
from chameleon_runners._worker.protocol import Message


class _DeviceReplacedError(Exception):
    """The comparison must start again on another device."""


class DeviceComparison(Comparison[FleetCandidateRun]):
    """Compares the contenders of one task on one device; if it fails, on another one."""

    _context: FleetContext

    def __init__(
        self,
        task: Task,
        contenders: Sequence[Contender],
        *,
        context: FleetContext,
        numbers: Iterator[int],
    ) -> None:
        entries = [
            ContenderState(
                contender=contender, candidate=context.candidate(contender.config, next(numbers))
            )
            for contender in contenders
        ]
        super().__init__(task, entries, context=context, reserve_worker=False)
        self._devices = context.devices
        self._device: DeviceState | None = None
        self._avoid: set[str] = set()

    def _prepare(self) -> None:
        self._devices.set_target(self._task.target)

    def _due(self) -> float:
        return self._devices.run_due_work()

    def _time(self) -> None:
        complete = False
        while self._active and not complete:
            self._device = self._acquire()
            try:
                self._time_in_turns()
                self._release()
                complete = True
            except _DeviceReplacedError:
                continue
            except StoppedError:
                self._devices.restart_worker(self._device)
                raise

    def _acquire(self) -> DeviceState:
        """Wait for a free device, and take it."""
        while True:
            avoid = self._avoid if self._devices.has_other_device(self._avoid) else ()
            device = self._devices.take(avoid)
            if device is not None:
                return device
            self._run_once()

    def _release(self) -> None:
        """Free the kernels on the device with a self-test command, and release the device."""
        slots = [entry.candidate.slot for entry in self._entries]
        event = self._ask({"command": "probe", "drop": slots})
        if event.ok:
            self._devices.finished(self._acquired)
        else:
            self._devices.lost(self._acquired)

    @property
    def _acquired(self) -> DeviceState:
        if self._device is None:
            raise RuntimeError("no device was taken")
        return self._device

    def _ask(self, message: Message) -> WorkerEvent:
        """The answer of the device's worker, or the worker's end."""
        worker, options = self._acquired.worker, self._context.options
        if worker is None:
            raise RuntimeError("the device has no worker")
        probing = message["command"] == "probe"
        timeout = options.connect_timeout if probing else options.reference_timeout
        return self._pool.ask(worker, message, timeout, self._run_once)

    def _load(self, entry: ContenderState[FleetCandidateRun]) -> bool:
        slot, artifact = entry.candidate.slot, str(entry.candidate.artifact)
        reply = self._answer(entry, {"command": "load", "slot": slot, "artifact": artifact})
        return reply is not None

    def _answer(
        self, entry: ContenderState[FleetCandidateRun], message: Message, *, timed: bool = False
    ) -> Message | None:
        del timed  # nothing else is done on the device
        event = self._ask(message)
        if event.ok:
            entry.candidate.run_seconds += event.seconds
            return event.reply
        self._failed(entry, event)
        return None

    def _failed(self, entry: ContenderState[FleetCandidateRun], event: WorkerEvent) -> None:
        """Handle a contender's failure on the device."""
        candidate, device = entry.candidate, self._acquired
        candidate.tries -= 1
        report = candidate.fail(device, event)
        if report.device_recovered is None:
            self._devices.lost(device, report)
        verdict = self._judge(candidate)
        if isinstance(verdict, Measurement):
            entry.result = verdict
            if report.device_recovered is True and report.kind is FailureKind.WRONG_OUTPUT:
                return
        self._avoid.add(device.name)
        if device.worker is not None and event.end is None and report.device_recovered is True:
            # A new worker frees all kernels.
            self._devices.restart_worker(device)
        raise _DeviceReplacedError

    def _judge(self, candidate: FleetCandidateRun) -> Measurement | Verdict:
        """Wait until a failed contender's measurement or next step is known."""
        while True:
            verdict = candidate.judge(
                has_other_device=self._devices.has_other_device(candidate.tried_devices)
            )
            if verdict is not Verdict.WAIT:
                return verdict
            self._run_once()


@attrs.define(eq=False)
class FleetStream(MeasureStream):
    """Measures several jobs at the same time, on all devices.

    Attributes:
        begin: returns the object that measures a job.
        closed: called once when the stream is closed.
    """

    _pool: WorkerPool
    _builders: BuilderPool
    _devices: DevicePool
    _options: FleetOptions
    _begin: Callable[[MeasureJob], FleetJobRun] = attrs.field(kw_only=True)
    _closed: Callable[[], None] = attrs.field(kw_only=True)
    _runs: list[FleetJobRun] = attrs.field(factory=list, init=False)
    _interrupted: bool = attrs.field(default=False, init=False)
    _woken: bool = attrs.field(default=False, init=False)
    _is_closed: bool = attrs.field(default=False, init=False)

    def submit(self, job: MeasureJob) -> None:
        if job.configs:
            self._devices.set_target(job.task.target)
            self._runs.append(self._begin(job))

    @property
    def busy(self) -> bool:
        return self._has_work or any(run.results for run in self._runs)

    @property
    def _has_work(self) -> bool:
        """Whether running or waiting work will still give results."""
        if self._pool.closed:
            return False
        if self._interrupted:
            return any(run.running for run in self._runs)
        return any(run.open for run in self._runs)

    def interrupt(self) -> None:
        """Let measurements that run on devices finish, but start no new ones."""
        self._interrupted = True
        self._pool.wake()

    def wake(self) -> None:
        self._woken = True
        self._pool.wake()

    def poll(self, timeout: float | None = None) -> MeasureStream.Arrival | None:
        """Wait for the next measurement; see ``MeasureStream.poll``."""
        until = None if timeout is None else self._pool.now() + timeout
        with contextlib.suppress(StoppedError):
            while self._has_work:
                if not self._interrupted:
                    self._employ()
                due = self._devices.run_due_work()
                arrival = self._arrival()
                if arrival is not None:
                    return arrival
                if self._woken or (until is not None and self._pool.now() >= until):
                    self._woken = False
                    return None
                self._pool.run_once(due if until is None else min(due, until))
                if self._devices.take_changed():
                    for run in self._runs:
                        run.rejudge()
        return self._arrival(final=True)

    def _employ(self) -> None:
        """Give work to free devices and idle builders, from the oldest job that has any."""
        alternate = self._devices.shares_cpus
        if not (alternate and self._builders.busy):
            for run in self._runs:
                run.assign()
        if alternate and self._devices.busy:
            return
        # Running builds do not count, because builds of CUDA kernels take seconds.
        room = self._options.build_ahead * max(1, self._devices.may_work)
        full = sum(run.waiting for run in self._runs) >= room
        for run in self._runs:
            run.dispatch(0 if full else None)

    def _arrival(self, *, final: bool = False) -> MeasureStream.Arrival | None:
        """The next result, from the oldest job that has one; None if there is none."""
        for run in self._runs:
            if run.results and (final or self._devices.ever_connected or not run.open):
                measurement = run.results.popleft()
                if not (run.open or run.results):
                    self._runs.remove(run)
                    run.release()
                return MeasureStream.Arrival(job=run.job, measurement=measurement)
        return None

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        for run in self._runs:
            run.release()
        self._runs.clear()
        self._closed()


_PER_DEVICE, _SMALL_BATCH, _BUILDERS_BATCH = 2, 8, 16


class FleetRunner(MeasuringRunner[FleetOptions, WorkerPool]):
    """Builds candidates in local worker processes, and measures each on a free device."""

    def __init__(
        self, options: FleetOptions, device_refs: Callable[[], Sequence[DeviceRef]], *, kind: str
    ) -> None:
        super().__init__(options, kind=kind, threads=options.threads)
        self._device_refs = device_refs
        self._devices: DevicePool | None = None
        self._paces: PaceMonitor | None = None

    @property
    def batch_size(self) -> int:
        # Small, because a search learns between batches, but enough to keep devices and builders
        # busy.
        builders = min(self._size, _BUILDERS_BATCH)
        return max(_SMALL_BATCH, _PER_DEVICE * len(self._device_states), builders)

    @property
    def lanes(self) -> int:
        return (
            0
            if any(device.ref.here for device in self._device_states)
            else len(self._device_states)
        )

    @property
    def _device_states(self) -> list[DeviceState]:
        return list(self._devices.known.values()) if self._devices is not None else []

    @property
    def _target(self) -> str | None:
        return self._devices.target if self._devices is not None else None

    def _make_pool(self) -> WorkerPool:
        return self._process_pool(threads=1, blas_threads=1)

    @property
    def _recycle_after(self) -> int | None:
        return self._options.recycle_after

    def _started(self, resources: Resources[WorkerPool]) -> None:
        devices = DevicePool(resources.pool, self._options, self._device_refs)
        devices.refresh()
        self._devices = devices

    @property
    def _listed_devices(self) -> DevicePool:
        if self._devices is None:
            raise RuntimeError("devices are listed when the workers start")
        return self._devices

    def _context(
        self, resources: Resources[WorkerPool], reference: Reference, deadlines: Deadlines
    ) -> FleetContext:
        devices = self._listed_devices
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
            key = builder_key(job.space, job.task)
            reference = resources.references.of(key)
            context = self._context(resources, reference, self._deadlines_of(key))
            return FleetJobRun(job, context=context, numbers=self._numbers)

        stream = FleetStream(
            resources.pool,
            resources.builders,
            self._listed_devices,
            self._options,
            begin=begin,
            closed=self._deactivate,
        )
        self._activate(stream)
        return stream

    def _deactivate(self) -> None:
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
        return {"devices": [device.to_json() for device in self._device_states]}

    def _release_devices(self, *, graceful: bool) -> None:
        if graceful and self._devices is not None:
            # Workers may have ended, and cannot be told then.
            with contextlib.suppress(StoppedError, ChameleonError):
                self._devices.disconnect_idle()
