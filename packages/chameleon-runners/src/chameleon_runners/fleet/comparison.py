"""The final comparison on a fleet: all contenders on one device, timed in turn.

Times of two devices do not compare, nor do those before and after a device was lost: when one
has to be replaced, the comparison begins anew on the next.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from enum import Enum

import attrs
from chameleon_core.measurement import FailureKind, Measurement
from chameleon_core.stages import Contender
from chameleon_core.task import Task

from chameleon_runners.contenders import turns
from chameleon_runners.fleet.comparison_builds import ComparisonBuilds, FleetContender
from chameleon_runners.fleet.device_state import DeviceState
from chameleon_runners.fleet.dispatch import FleetContext
from chameleon_runners.fleet.remote_candidate import RemoteCandidate
from chameleon_runners.fleet.verdicts import Verdict
from chameleon_runners.fleet.workers import ClosedError, WorkerEvent
from chameleon_runners.worker.protocol import Message


class _Outcome(Enum):
    """How a session on one device ended."""

    COMPLETE = "complete"
    MOVED = "moved"
    STOPPED = "stopped"


class FleetComparison:
    """Compares contenders of one task.

    Args:
        task: the task.
        contenders: who takes part.
        context: what they are compared with.
        numbers: numbers that no artifact in the folder has.
    """

    def __init__(
        self,
        task: Task,
        contenders: Sequence[Contender],
        *,
        context: FleetContext,
        numbers: Iterator[int],
    ) -> None:
        self._task = task
        self._context = context
        self._options = context.options
        self._devices = context.devices
        self._pool = context.pool
        self._interrupted = False
        self._avoid: set[str] = set()
        self._entries = [
            FleetContender(
                contender=contender,
                candidate=RemoteCandidate(
                    config=tuple(contender.config),
                    slot=(number := next(numbers)),
                    artifact=context.folder / f"artifact-{number}",
                    tries=context.options.retries + 1,
                ),
            )
            for contender in contenders
        ]

    def interrupt(self) -> None:
        """End after the repeat in flight."""
        self._interrupted = True
        self._pool.wake()

    def run(self) -> list[Measurement]:
        """One measurement per contender, in order; a failure is a measurement.

        Raises:
            ChameleonError: no device is to be had, or nobody knows the expected outputs.
        """
        try:
            with contextlib.suppress(ClosedError):
                self._compare()
        finally:
            for entry in self._entries:
                entry.candidate.discard()
        return [entry.measurement for entry in self._entries]

    def _compare(self) -> None:
        self._devices.aim(self._task.target)
        ComparisonBuilds(
            self._task, self._entries, context=self._context, turn=self._next_turn
        ).run()
        while self._racing and (device := self._acquire()) is not None:
            outcome = self._session(device)
            if outcome is _Outcome.STOPPED:
                self._devices.abandon(device)
            if outcome is not _Outcome.MOVED:
                return

    @property
    def _racing(self) -> list[FleetContender]:
        """Contenders that may still be timed."""
        return [entry for entry in self._entries if entry.result is None and entry.built]

    def _next_turn(self) -> bool:
        """Wait until something happens; False when all is to stop."""
        if not (self._interrupted or self._pool.closed):
            self._pool.run_once(self._devices.attend())
        return not (self._interrupted or self._pool.closed)

    def _acquire(self) -> DeviceState | None:
        """A device to compare on, other than those that failed if there is one."""
        while not (self._interrupted or self._pool.closed):
            avoid = self._avoid if self._devices.elsewhere(self._avoid) else ()
            device = self._devices.take(avoid)
            if device is not None:
                return device
            self._next_turn()
        return None

    # -- on one device ----------------------------------------------------------------------

    def _session(self, device: DeviceState) -> _Outcome:
        """Load, check and time all contenders that have not failed for good."""
        for entry in self._racing:
            entry.candidate.again.clear()
            entry.candidate.repeats = ()
            outcome = self._prepare(entry, device)
            if outcome is not None:
                return outcome
        for entry in turns(lambda: self._racing, self._options.compare_rounds):
            outcome = self._repeat(entry, device)
            if outcome is not None:
                return outcome
        # The kernels are dropped with the next command, which may as well test the device.
        drop = {"command": "probe", "drop": [entry.candidate.slot for entry in self._entries]}
        event = self._ask(device, drop, self._options.connect_timeout)
        if event is None:
            return _Outcome.STOPPED
        if event.reply is not None and event.reply["status"] == "ok":
            self._devices.finished(device)
        else:
            self._devices.lost(device)
        return _Outcome.COMPLETE

    def _prepare(self, entry: FleetContender, device: DeviceState) -> _Outcome | None:
        """Load and check a contender."""
        candidate, reference = entry.candidate, self._context.reference
        load: Message = {
            "command": "load",
            "slot": candidate.slot,
            "artifact": str(candidate.artifact),
        }
        check: Message = {
            "command": "measure",
            "slot": candidate.slot,
            "cores": [],
            "reference": str(reference.path),
            "tolerance": reference.tolerance,
            "policy": attrs.asdict(self._context.policy),
            "probe": True,
            "best": None,
        }
        for message in (load, check):
            event = self._ask(device, message, self._options.reference_timeout)
            if event is None:
                return _Outcome.STOPPED
            reply = event.reply
            if reply is None or reply["status"] != "ok":
                return self._failed(entry, device, event)
            candidate.run_seconds += event.seconds
            candidate.error = reply.get("error")
            candidate.number = reply.get("number", 0)
        return None

    def _repeat(self, entry: FleetContender, device: DeviceState) -> _Outcome | None:
        """One turn of a contender."""
        candidate, policy = entry.candidate, self._context.policy
        if entry.result is not None:
            return None
        message: Message = {
            "command": "repeat",
            "slot": candidate.slot,
            "cores": [],
            "number": candidate.number,
            "count": policy.repeats_per_turn(candidate.repeat_seconds),
            "cold_bytes": policy.cold_bytes,
        }
        event = self._ask(device, message, self._options.reference_timeout)
        if event is None:
            return _Outcome.STOPPED
        if event.reply is None or event.reply["status"] != "ok":
            return self._failed(entry, device, event)
        candidate.run_seconds += event.seconds
        candidate.take_turn(event.reply["seconds"])
        return None

    def _ask(self, device: DeviceState, message: Message, timeout: float) -> WorkerEvent | None:
        """The answer of a device's worker, or its end; None when all is to stop."""
        if device.worker is None:
            raise RuntimeError("a device was taken that nobody has")
        events: list[WorkerEvent] = []
        self._pool.submit(device.worker, events.append, message, timeout)
        while not events:
            if not self._next_turn():
                return None
        return events[0]

    def _failed(
        self, entry: FleetContender, device: DeviceState, event: WorkerEvent
    ) -> _Outcome | None:
        """A contender failed on a device; returns None where the session can go on."""
        candidate = entry.candidate
        candidate.tries -= 1
        report = candidate.fail(
            device.name, event, reliability=device.reliability, identity=device.actual_name
        )
        if report.back is None:
            self._devices.lost(device, report)
        verdict = self._judge(candidate)
        if isinstance(verdict, Measurement):
            entry.result = verdict
            if report.back is True and report.kind is FailureKind.WRONG_OUTPUT:
                return None
        self._avoid.add(device.name)
        if device.worker is not None and event.end is None and report.back is True:
            # Whatever it holds is let go with its worker.
            self._devices.abandon(device)
        return _Outcome.MOVED if verdict is not None else _Outcome.STOPPED

    def _judge(self, candidate: RemoteCandidate) -> Measurement | Verdict | None:
        """What becomes of a contender; None when all is to stop."""
        while True:
            verdict = candidate.judge(elsewhere=self._devices.elsewhere(candidate.asked))
            if verdict is not Verdict.WAIT:
                return verdict
            if not self._next_turn():
                return None
