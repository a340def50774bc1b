"""A simulated fleet: workers whose answers come from a function, on a simulated clock.

Everything except the workers is the code of real fleets. Tests with a simulated fleet need no
device. They show how long the scheduling of hundreds of devices takes, and how the runner handles
devices that fail.
"""

import heapq
from collections.abc import Callable, Sequence
from typing import ClassVar

import attrs
from chameleon_core._measurement import FailureKind, Measurement
from chameleon_core.plugin_api import StageRef
from chameleon_runners._engine.workers import (
    EndReason,
    Listener,
    Work,
    Worker,
    WorkerEnd,
    WorkerEvent,
    WorkerPool,
)
from chameleon_runners._fleet.device_state import DeviceRef
from chameleon_runners._fleet.options import FleetOptions
from chameleon_runners._fleet.runner import FleetRunner
from chameleon_runners._worker.protocol import Message

Outcome = Callable[[tuple[int, ...], str], Measurement]
"""Returns the measurement of a configuration on the device with some name.

Its ``build_seconds`` and ``run_seconds`` pass on the simulated clock. The failure ``crash`` ends
the device's worker, ``run_timeout`` lasts until the deadline, and ``device_lost`` is what a worker
would report.
"""

Reach = Callable[[str], Message]
"""Returns the reply of the device with some name when it is connected or tested."""

_BUILDING = (FailureKind.INVALID, FailureKind.BUILD_ERROR, FailureKind.BUILD_TIMEOUT)
"""Failures of builds; all others are failures on devices."""


@attrs.define(kw_only=True, eq=False)
class SimulatedWorker(Worker):
    """A worker of a simulated fleet, without a process.

    Attributes:
        device: The name of the worker's device; empty before the device is connected.
    """

    device: str = ""


class SimulatedPool(WorkerPool):
    """A pool of simulated workers, whose answers to commands come from a function.

    Args:
        outcome: A function that returns the measurement of a configuration on a device. The clock
            advances by the seconds that it would take.
        reach: A function that returns a device's reply when it is connected or tested. By default,
            every device works.
        start_seconds: The simulated seconds that the start of a worker takes.
    """

    def __init__(
        self, outcome: Outcome, *, reach: Reach | None = None, start_seconds: float = 0.5
    ) -> None:
        super().__init__()
        self._outcome = outcome
        self._reach = reach or _always_there
        self._start_seconds = start_seconds
        self._now = 0.0
        self._future: list[tuple[float, int, Listener, WorkerEvent, Work]] = []
        self._artifacts: dict[str, tuple[int, ...]] = {}
        self.busy_seconds = 0.0
        """Seconds that devices were at work on candidates, all together."""

    def now(self) -> float:
        return self._now

    def start_worker(self, listener: Listener, *, preload: str | None = None) -> Worker:
        del preload
        self._require_open()
        worker = SimulatedWorker()
        self._promise(worker, listener, {"status": "ok"}, self._start_seconds)
        return worker

    def submit(self, worker: Worker, then: Listener, message: Message, timeout: float) -> None:
        if not isinstance(worker, SimulatedWorker):
            raise TypeError(f"{type(worker).__name__} is no simulated worker")
        reply, end, seconds = self._answer(worker, message)
        if seconds > timeout:
            reply, end, seconds = None, EndReason.DEADLINE, timeout
        if message["command"] == "run":
            self.busy_seconds += seconds
        self._promise(worker, then, reply, seconds, end)

    def _promise(
        self,
        worker: SimulatedWorker,
        then: Listener,
        reply: Message | None,
        seconds: float,
        end: EndReason | None = None,
    ) -> None:
        work = Work(tag=then, started=self._now, deadline=self._now + seconds)
        worker.work = work
        ended = None
        if end is not None:
            ended = WorkerEnd(reason=end, status=-11, log="", seconds=seconds)
        answer = None if reply is None else {"elapsed": seconds, **reply}
        event = WorkerEvent(worker=worker, reply=answer, end=ended, seconds=seconds)
        heapq.heappush(self._future, (work.deadline, next(self._numbers), then, event, work))

    def _answer(
        self, worker: SimulatedWorker, message: Message
    ) -> tuple[Message | None, EndReason | None, float]:
        command = message["command"]
        if command == "export":
            config = tuple(message["config"])
            self._artifacts[message["artifact"]] = config
            outcome = self._outcome(config, "")
            reply: Message = {"status": "ok"}
            if outcome.failure in _BUILDING:
                kind = outcome.failure.value
                reply = {"status": "failed", "kind": kind, "message": outcome.message}
            return reply, None, outcome.build_seconds
        if command == "connect":
            worker.device = message["options"]["name"]
        if command in {"connect", "probe"}:
            return {"description": {"name": worker.device}, **self._reach(worker.device)}, None, 0.0
        if command == "run":
            return self._ran(self._outcome(self._artifacts[message["artifact"]], worker.device))
        if command == "reference":
            return {"status": "ok", "tolerance": 0.0}, None, 0.0
        return {"status": "ok"}, None, 0.0

    @staticmethod
    def _ran(measurement: Measurement) -> tuple[Message | None, EndReason | None, float]:
        kind, seconds = measurement.failure, measurement.run_seconds
        if kind is None:
            reply: Message = {
                "status": "ok",
                "seconds": list(measurement.seconds),
                "error": measurement.max_relative_error,
                "number": 1,
            }
        elif kind is FailureKind.CRASH:
            return None, EndReason.DIED, seconds
        elif kind is FailureKind.RUN_TIMEOUT:
            return None, EndReason.DEADLINE, float("inf")
        elif kind is FailureKind.DEVICE_LOST:
            reply = {"status": "lost", "message": measurement.message}
        else:
            reply = {"status": "failed", "kind": kind.value, "message": measurement.message}
        return reply, None, seconds

    def end_worker(self, worker: Worker) -> None:
        self.forget_events(worker)
        if isinstance(worker, SimulatedWorker) and worker.alive:
            worker.mark_ended()

    def wait(self, until: float | None) -> None:
        if not self._future and until is None:
            raise RuntimeError("nothing is under way that could happen")
        if until is not None and (not self._future or until < self._future[0][0]):
            self._now = max(self._now, until)
            return
        self._now = self._future[0][0]
        while self._future and self._future[0][0] <= self._now:
            _, _, then, event, work = heapq.heappop(self._future)
            worker = event.worker
            if not worker.alive or worker.work is not work:
                continue
            worker.work = None
            worker.end = event.end
            self.enqueue(then, event)

    def wake(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


class SimulatedFleetRunner(FleetRunner):
    """Measures on simulated devices; its clock shows the time that real devices would take.

    Args:
        options: The runner's options. Its builders (``workers``) are simulated too.
        outcome: A function that returns the measurement of a configuration on a device.
        names: A function that lists the names of the devices that exist now.
        reach: A function that returns a device's reply when it is connected or tested. By default,
            every device works.
        about: More attributes of the devices' ``DeviceRef``.
    """

    measures_hardware: ClassVar[bool] = False

    def __init__(
        self,
        options: FleetOptions,
        outcome: Outcome,
        names: Callable[[], Sequence[str]],
        *,
        reach: Reach | None = None,
        **about: bool,
    ) -> None:
        def device_refs() -> list[DeviceRef]:
            return [_device_ref(name, **about) for name in names()]

        super().__init__(options, device_refs, kind="simulated")
        self.pool = SimulatedPool(outcome, reach=reach)

    def _make_pool(self) -> WorkerPool:
        return self.pool

    def now(self) -> float:
        return self.pool.now()


def _device_ref(name: str, **about: bool) -> DeviceRef:
    device = StageRef(factory="", options={"name": name})
    return DeviceRef(name=name, device=device, **about)


def _always_there(_device: str) -> Message:
    return {"status": "ok"}
