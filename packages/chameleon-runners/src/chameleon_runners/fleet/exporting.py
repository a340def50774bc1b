"""Builds the candidates of one batch for devices, and computes what their outputs should be."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from chameleon_core.errors import PluginError
from chameleon_core.measurement import Measurement
from chameleon_core.stages import MeasureJob

from chameleon_runners.deadlines import Deadlines
from chameleon_runners.fleet.lanes import Lane, LaneEvent
from chameleon_runners.fleet.options import FleetOptions
from chameleon_runners.fleet.shipments import Shipment
from chameleon_runners.fleet.workshop import Workshop
from chameleon_runners.preparing import Preparation
from chameleon_runners.references import Reference


class Exporting:
    """Has a batch's candidates built, a few ahead of the devices.

    Args:
        job: the job.
        key: identity of the job's builder.
        pending: candidates to build.
        workshop: lends the builders.
        reference: the task's expected outputs.
        deadlines: the task's time-outs.
        options: the runner's options.
        built: told of each candidate that is built.
        failed: told of each that is not, and how that is to be recorded.
    """

    def __init__(
        self,
        job: MeasureJob,
        key: str,
        *,
        pending: deque[Shipment],
        workshop: Workshop,
        reference: Reference,
        deadlines: Deadlines,
        options: FleetOptions,
        built: Callable[[Shipment], None],
        failed: Callable[[Shipment, Measurement], None],
    ) -> None:
        self._job = job
        self._key = key
        self._pending = pending
        self._workshop = workshop
        self._reference = reference
        self._deadlines = deadlines
        self._options = options
        self._built = built
        self._failed = failed
        self._preparation = Preparation(
            job.space, job.task, reference=reference, threads=options.threads
        )
        self._working: dict[Lane, bool] = {}
        """Who is at work, and whether that is of use when the batch is given up."""
        self._computing = False
        self._released = False
        self.under_way = 0

    def employ(self, room: int) -> None:
        """Give idle builders work.

        Args:
            room: how many candidates may be built or be under way.
        """
        self._workshop.fill(max(1, len(self._pending) + len(self._working)))
        while self._missing_reference or (self._pending and self.under_way < room):
            lane = self._workshop.take()
            if lane is None:
                return
            self._begin(lane)

    @property
    def _missing_reference(self) -> bool:
        return not (self._reference.ready or self._computing)

    def _begin(self, lane: Lane) -> None:
        """Give a builder the most urgent work there is for it."""
        options = self._options
        if lane.opened != self._key:
            self._working[lane] = True
            message, timeout = self._preparation.open_command, options.start_timeout
            self._workshop.submit(lane, self._opened, message, timeout)
        elif self._missing_reference:
            self._computing = True
            self._working[lane] = False
            message, timeout = self._preparation.reference_command, options.reference_timeout
            self._workshop.submit(lane, self._computed, message, timeout)
        else:
            shipment = self._pending.popleft()
            self._working[lane] = False
            self.under_way += 1
            lane.built += 1
            message = {
                "command": "export",
                "config": shipment.config,
                "artifact": str(shipment.artifact),
            }
            then = partial(self._exported, shipment)
            self._workshop.submit(lane, then, message, self._deadlines.build)

    def _done(self, event: LaneEvent) -> None:
        self._working.pop(event.lane, None)
        self._workshop.give_back(event.lane)

    def _opened(self, event: LaneEvent) -> None:
        if event.reply is not None and event.reply["status"] == "ok":
            event.lane.opened = self._key
        self._done(event)
        if self._released:
            return
        if event.end is not None:
            self._preparation.open_ended(event.end)
        elif event.reply is not None:
            self._preparation.opened(event.reply)

    def _computed(self, event: LaneEvent) -> None:
        self._computing = False
        self._done(event)
        if event.end is not None:
            self._preparation.reference_ended(event.end)
        elif event.reply is not None:
            self._preparation.computed(event.reply)

    def _exported(self, shipment: Shipment, event: LaneEvent) -> None:
        self.under_way -= 1
        log = event.lane.log
        self._done(event)
        reply, end = event.reply, event.end
        if end is not None:
            shipment.build_seconds = end.seconds
            shipment.discard()
            if end.from_outside and shipment.losses < self._options.retries:
                shipment.losses += 1
                self._pending.append(shipment)
            else:
                self._failed(shipment, shipment.ended(end, building=True))
        elif reply is not None:
            shipment.build_seconds = reply["elapsed"]
            if reply["status"] == "ok":
                self._deadlines.built(shipment.build_seconds)
                self._built(shipment)
            elif reply["status"] == "none":
                raise PluginError(
                    f"candidates of {self._job.space.factory!r} cannot be sent to devices: "
                    f"{reply['message']}",
                    hint="its builder has to implement export(); or use the runner 'local'",
                )
            else:
                self._failed(shipment, shipment.failed_reply(reply, log))

    def release(self) -> None:
        """End builders whose work nobody waits for; those that open go on."""
        self._released = True
        for lane, useful in list(self._working.items()):
            if not useful:
                self._workshop.end(lane)
        self._working.clear()
