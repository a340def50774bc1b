"""The final comparison on a fleet: all contenders on one device, timed in turn.

Times of two devices do not compare, nor do those before and after a device was lost: when one
has to be replaced, the comparison begins anew on the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from chameleon_core.measurement import FailureKind, Measurement
from chameleon_core.stages import Contender
from chameleon_core.task import Task

from chameleon_runners.engine.comparison import Comparison
from chameleon_runners.engine.contenders import ContenderState
from chameleon_runners.engine.workers import StoppedError, WorkerEvent
from chameleon_runners.fleet.candidate_run import FleetCandidateRun
from chameleon_runners.fleet.context import FleetContext
from chameleon_runners.fleet.device_state import DeviceState
from chameleon_runners.fleet.verdicts import Verdict
from chameleon_runners.worker.protocol import Message


class _DeviceReplacedError(Exception):
    """The comparison has to begin anew on another device."""


class DeviceComparison(Comparison[FleetCandidateRun]):
    """Compares contenders of one task on one device after the other, until one sees it through.

    Args:
        task: the task.
        contenders: who takes part.
        context: what they are compared with.
        numbers: numbers that no artifact in the folder has.
    """

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
            ContenderState(contender=one, candidate=context.candidate(one.config, next(numbers)))
            for one in contenders
        ]
        super().__init__(task, entries, context=context, keep=False)
        self._devices = context.devices
        self._device: DeviceState | None = None
        self._avoid: set[str] = set()

    def _prepare(self) -> None:
        self._devices.aim(self._task.target)

    def _due(self) -> float:
        return self._devices.attend()

    def _time(self) -> None:
        seen_through = False
        while self._racing and not seen_through:
            self._device = self._acquire()
            try:
                self._time_in_turn()
                self._let_go()
                seen_through = True
            except _DeviceReplacedError:
                continue
            except StoppedError:
                self._devices.abandon(self._device)
                raise

    def _acquire(self) -> DeviceState:
        """A device to compare on, other than those that failed if there is one."""
        while True:
            avoid = self._avoid if self._devices.elsewhere(self._avoid) else ()
            device = self._devices.take(avoid)
            if device is not None:
                return device
            self._turn()

    def _let_go(self) -> None:
        """Free the device: the kernels go with its next command, which may as well test it."""
        slots = [entry.candidate.slot for entry in self._entries]
        event = self._ask({"command": "probe", "drop": slots})
        if event.ok:
            self._devices.finished(self._taken)
        else:
            self._devices.lost(self._taken)

    @property
    def _taken(self) -> DeviceState:
        if self._device is None:
            raise RuntimeError("no device was taken")
        return self._device

    def _ask(self, message: Message) -> WorkerEvent:
        """The answer of the device's worker, or its end."""
        worker, options = self._taken.worker, self._context.options
        if worker is None:
            raise RuntimeError("a device was taken that nobody has")
        probing = message["command"] == "probe"
        timeout = options.connect_timeout if probing else options.reference_timeout
        return self._pool.ask(worker, message, timeout, self._turn)

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
        """A contender failed on the device.

        Raises:
            _DeviceReplacedError: the others cannot go on there.
            StoppedError: all is to stop.
        """
        candidate, device = entry.candidate, self._taken
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
                return
        self._avoid.add(device.name)
        if device.worker is not None and event.end is None and report.back is True:
            # Whatever it holds is let go with its worker.
            self._devices.abandon(device)
        raise _DeviceReplacedError

    def _judge(self, candidate: FleetCandidateRun) -> Measurement | Verdict:
        """What becomes of a contender."""
        while True:
            verdict = candidate.judge(elsewhere=self._devices.elsewhere(candidate.asked))
            if verdict is not Verdict.WAIT:
                return verdict
            self._turn()
