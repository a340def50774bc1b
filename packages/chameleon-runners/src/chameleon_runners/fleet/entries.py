"""The contenders of a final comparison, built for devices."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

import attrs
from chameleon_core.errors import PluginError
from chameleon_core.measurement import FailureKind, Measurement
from chameleon_core.stages import Contender
from chameleon_core.task import Task

from chameleon_runners.batch import stage_key
from chameleon_runners.fleet.dispatch import Means
from chameleon_runners.fleet.lanes import Lane, LaneEvent
from chameleon_runners.fleet.shipments import Shipment
from chameleon_runners.preparing import open_command
from chameleon_runners.worker.protocol import Message


@attrs.define(kw_only=True, eq=False)
class Entry:
    """A contender and what became of it.

    Attributes:
        contender: the contender.
        shipment: its configuration on its way.
        built: whether its artifact is there.
        result: its measurement, once it has failed for good.
    """

    contender: Contender
    shipment: Shipment
    built: bool = False
    result: Measurement | None = None


class EntryBuilding:
    """Computes the reference if nobody has yet, and has every contender exported.

    Args:
        task: the task.
        entries: the contenders.
        means: what it is done with.
        turn: waits until something happens; False when all is to stop.
    """

    def __init__(
        self, task: Task, entries: Sequence[Entry], *, means: Means, turn: Callable[[], bool]
    ) -> None:
        self._task = task
        self._entries = entries
        self._means = means
        self._turn = turn
        self._waiting: deque[Entry] = deque()
        self._working: set[Lane] = set()

    def run(self) -> None:
        """Build all that can be built; a failure is the contender's result.

        Raises:
            PluginError: nobody can compute the expected outputs.
        """
        try:
            if not self._means.reference.ready:
                self._compute_reference()
            self._waiting.extend(self._entries)
            while self._waiting or self._working:
                self._employ()
                if not self._turn():
                    return
        finally:
            for lane in self._working:
                self._means.workshop.end(lane)

    def _key(self, entry: Entry) -> str:
        return f"{entry.contender.variant}|{stage_key(entry.contender.stage, self._task)}"

    def _open(self, lane: Lane, entry: Entry, then: Callable[[LaneEvent], None]) -> None:
        means, contender = self._means, entry.contender
        command = open_command(
            contender.stage,
            self._task,
            threads=means.options.threads,
            variant=contender.variant,
        )
        means.workshop.submit(lane, then, command, means.options.start_timeout)

    # -- the reference ----------------------------------------------------------------------

    def _compute_reference(self) -> None:
        """Let the first contender that can do it compute the expected outputs."""
        reference, options = self._means.reference, self._means.options
        reasons = []
        for entry in self._entries:
            command: Message = {"command": "reference", "path": str(reference.path)}
            event = self._ask_builder(entry, command, options.reference_timeout)
            if event is None:
                return
            if event.reply is not None and event.reply["status"] == "ok":
                reference.tolerance = event.reply["tolerance"]
                reference.ready = True
                return
            words = event.end.explain() if event.end is not None else ""
            words = event.reply["message"] if event.reply is not None else words
            reasons.append(f"{entry.contender.name}: {words}")
        raise PluginError(
            f"no contender can compute the expected outputs of task {self._task.name!r} "
            f"({'; '.join(reasons)})",
            hint="the builder of a space has to implement reference()",
        )

    def _ask_builder(self, entry: Entry, command: Message, timeout: float) -> LaneEvent | None:
        """Open a builder for a contender and have it do something; None when all stops."""
        workshop = self._means.workshop
        while (lane := workshop.take()) is None:
            workshop.fill(1)
            if not self._turn():
                return None
        self._working.add(lane)
        events: list[LaneEvent] = []
        if lane.opened != self._key(entry):
            self._open(lane, entry, events.append)
            while not events:
                if not self._turn():
                    return None
            lane.opened = self._key(entry) if _ok(events[-1]) else None
        if not events or _ok(events[-1]):
            events.clear()
            workshop.submit(lane, events.append, command, timeout)
            while not events:
                if not self._turn():
                    return None
        self._working.discard(lane)
        workshop.give_back(lane)
        return events[-1]

    # -- artifacts --------------------------------------------------------------------------

    def _employ(self) -> None:
        workshop = self._means.workshop
        workshop.fill(len(self._waiting) + len(self._working))
        while self._waiting and (lane := workshop.take()) is not None:
            self._working.add(lane)
            entry = self._waiting.popleft()
            if lane.opened != self._key(entry):
                self._open(lane, entry, partial(self._opened, entry))
            else:
                self._export(lane, entry)

    def _opened(self, entry: Entry, event: LaneEvent) -> None:
        if _ok(event):
            event.lane.opened = self._key(entry)
            self._export(event.lane, entry)
        else:
            event.lane.opened = None
            self._refused(entry, event)

    def _export(self, lane: Lane, entry: Entry) -> None:
        lane.built += 1
        command: Message = {
            "command": "export",
            "config": entry.shipment.config,
            "artifact": str(entry.shipment.artifact),
        }
        timeout = self._means.options.build_timeout
        self._means.workshop.submit(lane, partial(self._exported, entry), command, timeout)

    def _exported(self, entry: Entry, event: LaneEvent) -> None:
        if not _ok(event):
            self._refused(entry, event)
            return
        entry.built = True
        entry.shipment.build_seconds = event.seconds
        self._give_back(event.lane)

    def _refused(self, entry: Entry, event: LaneEvent) -> None:
        """A contender was not built: once more if somebody else ended its builder."""
        shipment, end, reply = entry.shipment, event.end, event.reply
        shipment.build_seconds = event.seconds
        shipment.discard()
        log = event.lane.log
        self._give_back(event.lane)
        if end is not None and end.from_outside and shipment.losses < self._means.options.retries:
            shipment.losses += 1
            self._waiting.append(entry)
        elif end is not None:
            entry.result = shipment.ended(end, building=True)
        elif reply is not None and reply["status"] == "failed":
            entry.result = shipment.failed_reply(reply, log)
        elif reply is not None:
            entry.result = shipment.failed(FailureKind.BUILD_ERROR, reply["message"])

    def _give_back(self, lane: Lane) -> None:
        self._working.discard(lane)
        self._means.workshop.give_back(lane)


def _ok(event: LaneEvent) -> bool:
    return event.reply is not None and event.reply["status"] == "ok"
