"""The final comparison on a fleet: all contenders on one device, timed in turn.

Times of two devices do not compare, nor do those before and after a device was lost: when one
has to be replaced, the comparison begins anew on the next.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from enum import Enum

import attrs
import numpy as np
from chameleon_core.measurement import FailureKind, Measurement
from chameleon_core.stages import Contender
from chameleon_core.task import Task

from chameleon_runners.fleet.dispatch import Means
from chameleon_runners.fleet.entries import Entry, EntryBuilding
from chameleon_runners.fleet.lanes import ClosedError, LaneEvent
from chameleon_runners.fleet.shipments import Shipment
from chameleon_runners.fleet.stations import Station
from chameleon_runners.fleet.verdicts import Verdict
from chameleon_runners.worker.protocol import Message

_FEW_ROUNDS = 3
_HOPELESS = 3.0
"""Contenders this much slower than the fastest are timed in a few rounds only."""


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
        means: what they are compared with.
        numbers: numbers that no artifact in the folder has.
    """

    def __init__(
        self,
        task: Task,
        contenders: Sequence[Contender],
        *,
        means: Means,
        numbers: Iterator[int],
    ) -> None:
        self._task = task
        self._means = means
        self._options = means.options
        self._roster = means.roster
        self._switchboard = means.switchboard
        self._interrupted = False
        self._avoid: set[str] = set()
        self._entries = [
            Entry(
                contender=contender,
                shipment=Shipment(
                    config=tuple(contender.config),
                    slot=(number := next(numbers)),
                    artifact=means.folder / f"artifact-{number}",
                    tries=means.options.retries + 1,
                ),
            )
            for contender in contenders
        ]

    def interrupt(self) -> None:
        """End after the repeat in flight."""
        self._interrupted = True
        self._switchboard.wake()

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
                entry.shipment.discard()
        return [self._result(entry) for entry in self._entries]

    def _compare(self) -> None:
        self._roster.aim(self._task.target)
        EntryBuilding(self._task, self._entries, means=self._means, turn=self._next_turn).run()
        while self._racing and (station := self._acquire()) is not None:
            outcome = self._session(station)
            if outcome is _Outcome.STOPPED:
                self._roster.abandon(station)
            if outcome is not _Outcome.MOVED:
                return

    @property
    def _racing(self) -> list[Entry]:
        """Contenders that may still be timed."""
        return [entry for entry in self._entries if entry.result is None and entry.built]

    def _next_turn(self) -> bool:
        """Wait until something happens; False when all is to stop."""
        if not (self._interrupted or self._switchboard.closed):
            self._switchboard.turn(self._roster.attend())
        return not (self._interrupted or self._switchboard.closed)

    def _acquire(self) -> Station | None:
        """A device to compare on, other than those that failed if there is one."""
        while not (self._interrupted or self._switchboard.closed):
            avoid = self._avoid if self._roster.elsewhere(self._avoid) else ()
            station = self._roster.take(avoid)
            if station is not None:
                return station
            self._next_turn()
        return None

    # -- on one device ----------------------------------------------------------------------

    def _session(self, station: Station) -> _Outcome:
        """Load, check and time all contenders that have not failed for good."""
        for entry in self._racing:
            entry.shipment.again.clear()
            entry.shipment.repeats = ()
            outcome = self._prepare(entry, station)
            if outcome is not None:
                return outcome
        generator = np.random.default_rng(0)
        for done in range(self._options.compare_rounds):
            racing = self._racing
            # A new order every round: nobody always runs after the same neighbour.
            for place in generator.permutation(len(racing)).tolist():
                entry = racing[place]
                if done < _FEW_ROUNDS or not self._hopeless(entry):
                    outcome = self._repeat(entry, station)
                    if outcome is not None:
                        return outcome
        # The kernels are dropped with the next command, which may as well test the device.
        drop = {"command": "probe", "drop": [entry.shipment.slot for entry in self._entries]}
        event = self._ask(station, drop, self._options.connect_timeout)
        if event is None:
            return _Outcome.STOPPED
        if event.reply is not None and event.reply["status"] == "ok":
            self._roster.finished(station)
        else:
            self._roster.lost(station)
        return _Outcome.COMPLETE

    def _hopeless(self, entry: Entry) -> bool:
        """Whether a contender is so slow that more repeats would tell nothing new."""
        best = min(other.shipment.fastest for other in self._racing)
        return entry.shipment.fastest > _HOPELESS * best

    def _prepare(self, entry: Entry, station: Station) -> _Outcome | None:
        """Load and check a contender."""
        shipment, reference = entry.shipment, self._means.reference
        load: Message = {
            "command": "load",
            "slot": shipment.slot,
            "artifact": str(shipment.artifact),
        }
        check: Message = {
            "command": "measure",
            "slot": shipment.slot,
            "cores": [],
            "reference": str(reference.path),
            "tolerance": reference.tolerance,
            "policy": attrs.asdict(self._means.policy),
            "probe": True,
            "best": None,
        }
        for message in (load, check):
            event = self._ask(station, message, self._options.reference_timeout)
            if event is None:
                return _Outcome.STOPPED
            reply = event.reply
            if reply is None or reply["status"] != "ok":
                return self._failed(entry, station, event)
            shipment.run_seconds += event.seconds
            shipment.error = reply.get("error")
            shipment.number = reply.get("number", 0)
        return None

    def _repeat(self, entry: Entry, station: Station) -> _Outcome | None:
        """One turn of a contender."""
        shipment, policy = entry.shipment, self._means.policy
        if entry.result is not None:
            return None
        message: Message = {
            "command": "repeat",
            "slot": shipment.slot,
            "cores": [],
            "number": shipment.number,
            "count": policy.repeats_per_turn(shipment.repeat_seconds),
            "cold_bytes": policy.cold_bytes,
        }
        event = self._ask(station, message, self._options.reference_timeout)
        if event is None:
            return _Outcome.STOPPED
        if event.reply is None or event.reply["status"] != "ok":
            return self._failed(entry, station, event)
        shipment.run_seconds += event.seconds
        shipment.take_turn(event.reply["seconds"])
        return None

    def _ask(self, station: Station, message: Message, timeout: float) -> LaneEvent | None:
        """The answer of a device's lane, or its end; None when all is to stop."""
        if station.lane is None:
            raise RuntimeError("a device was taken that nobody has")
        events: list[LaneEvent] = []
        self._switchboard.submit(station.lane, events.append, message, timeout)
        while not events:
            if not self._next_turn():
                return None
        return events[0]

    def _failed(self, entry: Entry, station: Station, event: LaneEvent) -> _Outcome | None:
        """A contender failed on a device; returns None where the session can go on."""
        shipment = entry.shipment
        shipment.tries -= 1
        opinion = shipment.fail(
            station.name, event, witness=station.witness, identity=station.device
        )
        if opinion.back is None:
            self._roster.lost(station, opinion)
        verdict = self._judge(shipment)
        if isinstance(verdict, Measurement):
            entry.result = verdict
            if opinion.back is True and opinion.kind is FailureKind.WRONG_OUTPUT:
                return None
        self._avoid.add(station.name)
        if station.lane is not None and event.end is None and opinion.back is True:
            # Whatever it holds is let go with its worker.
            self._roster.abandon(station)
        return _Outcome.MOVED if verdict is not None else _Outcome.STOPPED

    def _judge(self, shipment: Shipment) -> Measurement | Verdict | None:
        """What becomes of a contender; None when all is to stop."""
        while True:
            verdict = shipment.judge(elsewhere=self._roster.elsewhere(shipment.asked))
            if verdict is not Verdict.WAIT:
                return verdict
            if not self._next_turn():
                return None

    def _result(self, entry: Entry) -> Measurement:
        if entry.result is not None:
            return entry.result
        if entry.shipment.again:
            return entry.shipment.succeeded()
        return entry.shipment.failed(FailureKind.RUN_ERROR, "the comparison was interrupted")
