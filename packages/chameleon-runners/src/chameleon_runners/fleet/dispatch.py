"""One job on its way through a fleet: built here, run wherever a device is free."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import attrs
from chameleon_core.measurement import Measurement
from chameleon_core.stages import MeasureJob

from chameleon_runners.deadlines import Deadlines
from chameleon_runners.fleet.exporting import Exporting
from chameleon_runners.fleet.lanes import LaneEvent, Switchboard
from chameleon_runners.fleet.options import FleetOptions
from chameleon_runners.fleet.pace import Paces
from chameleon_runners.fleet.roster import Roster
from chameleon_runners.fleet.shipments import Shipment
from chameleon_runners.fleet.stations import Station
from chameleon_runners.fleet.verdicts import Verdict
from chameleon_runners.fleet.workshop import Workshop
from chameleon_runners.references import Reference
from chameleon_runners.timing import TimingPolicy

_LOOK_AHEAD = 8
"""Candidates to be tried again that are looked at for whether a free device may take them."""


@attrs.frozen(kw_only=True, eq=False)
class Means:
    """What jobs of one task are measured with.

    Attributes:
        switchboard: the lanes.
        roster: the devices.
        paces: how fast they are.
        workshop: the builders.
        options: the runner's options.
        policy: the clock policy.
        reference: the task's expected outputs.
        deadlines: the task's time-outs.
        folder: where artifacts are put.
    """

    switchboard: Switchboard
    roster: Roster
    paces: Paces
    workshop: Workshop
    options: FleetOptions
    policy: TimingPolicy
    reference: Reference
    deadlines: Deadlines
    folder: Path


class Dispatch:
    """Measures one job, in steps that leave room for those of others.

    Args:
        job: the job.
        key: identity of the job's builder.
        means: what it is measured with.
        numbers: numbers that no artifact in the folder has.

    Attributes:
        job: the job.
        key: identity of its builder.
        open: how many of its candidates have no result yet.
        results: what was not handed out yet.
    """

    def __init__(self, job: MeasureJob, key: str, *, means: Means, numbers: Iterator[int]) -> None:
        self.job = job
        self.key = key
        self.open = len(job.configs)
        self.results: deque[Measurement] = deque()
        self._means = means
        self._roster = means.roster
        self._best = job.best_seconds
        self._policy = attrs.asdict(means.policy)
        self._built: deque[Shipment] = deque()
        self._again: deque[Shipment] = deque()
        self._parked: list[Shipment] = []
        self._running: dict[Station, Shipment] = {}
        pending = deque(
            Shipment(
                config=tuple(int(index) for index in config),
                slot=(number := next(numbers)),
                artifact=means.folder / f"artifact-{number}",
                tries=means.options.retries + 1,
            )
            for config in job.configs
        )
        self._exporting = Exporting(
            job,
            key,
            pending=pending,
            workshop=means.workshop,
            reference=means.reference,
            deadlines=means.deadlines,
            options=means.options,
            built=self._built.append,
            failed=self._finish,
        )

    @property
    def prepared(self) -> bool:
        """Whether the expected outputs are known."""
        return self._means.reference.ready

    @property
    def running(self) -> bool:
        """Whether a device has one of its candidates."""
        return bool(self._running)

    @property
    def waiting(self) -> int:
        """Built candidates that wait for a device."""
        return len(self._built)

    @property
    def building(self) -> int:
        """Builds that are under way."""
        return self._exporting.under_way

    def employ(self, room: int) -> None:
        """Give idle builders work.

        Args:
            room: how many builds may be under way.
        """
        self._exporting.employ(room)

    # -- devices ----------------------------------------------------------------------------

    def assign(self) -> None:
        """Give free devices work: first what others failed on."""
        if not self.prepared:
            return
        for _ in range(min(_LOOK_AHEAD, len(self._again))):
            shipment = self._again.popleft()
            asked = shipment.asked
            avoid = asked if self._roster.elsewhere(asked) else ()
            station = self._roster.take(avoid)
            if station is None:
                self._again.append(shipment)
            else:
                self._start(shipment, station)
        while self._built and (station := self._roster.take()) is not None:
            if self._means.paces.due(station):
                self._means.paces.read(station)
            else:
                self._start(self._built.popleft(), station)

    def _start(self, shipment: Shipment, station: Station) -> None:
        means = self._means
        if station.lane is None:
            raise RuntimeError("a device is free that nobody has")
        self._running[station] = shipment
        shipment.tries -= 1
        message = shipment.run_command(means.reference, self._policy, self._best)
        then = partial(self._ran, station)
        means.switchboard.submit(station.lane, then, message, means.deadlines.run(self._best))

    def _ran(self, station: Station, event: LaneEvent) -> None:
        """A device is done with a candidate, or gone."""
        shipment = self._running.pop(station)
        station.heard(event)
        reply = event.reply
        if reply is not None and reply["status"] == "ok":
            shipment.run_seconds = event.seconds
            shipment.repeats, shipment.error = tuple(reply["seconds"]), reply["error"]
            self._means.deadlines.ran(event.seconds)
            self._roster.succeeded(station)
            self._roster.finished(station)
            elsewhere = self._roster.elsewhere({*shipment.asked, station.name})
            self._settle(shipment, shipment.succeed(station.name, elsewhere=elsewhere))
            return
        opinion = shipment.fail(
            station.name, event, witness=station.witness, identity=station.device
        )
        self._roster.failed(station, opinion)
        self._consider(shipment)

    # -- judging ----------------------------------------------------------------------------

    def _consider(self, shipment: Shipment) -> None:
        elsewhere = self._roster.elsewhere(shipment.asked)
        self._settle(shipment, shipment.judge(elsewhere=elsewhere))

    def _settle(self, shipment: Shipment, verdict: Measurement | Verdict) -> None:
        if verdict is Verdict.AGAIN:
            self._again.append(shipment)
        elif verdict is Verdict.WAIT:
            self._parked.append(shipment)
        elif isinstance(verdict, Measurement):
            self._finish(shipment, verdict)

    def reconsider(self) -> None:
        """Devices came or went: judge again what depends on who there is."""
        waiting, self._parked = [*self._parked, *self._again], []
        self._again.clear()
        for shipment in waiting:
            self._consider(shipment)
        self._means.paces.compare()

    def _finish(self, shipment: Shipment, measurement: Measurement) -> None:
        self.open -= 1
        if not (measurement.ok and self._becomes_yardstick(shipment, measurement)):
            shipment.discard()
        self.results.append(measurement)
        if measurement.ok:
            self._best = min(self._best, measurement.cost)
            for opinion in shipment.opinions:
                if not opinion.outside:
                    self._roster.strike(opinion.device)

    def _becomes_yardstick(self, shipment: Shipment, measurement: Measurement) -> bool:
        """Whether devices are compared by this candidate from now on."""
        means = self._means
        return means.paces.measured(
            shipment,
            measurement,
            precise=measurement.cost <= means.policy.slow_factor * self._best,
            target=self.job.task.target,
            reference=means.reference,
        )

    def release(self) -> None:
        """Let go of what nobody waits for any more."""
        if self._means.switchboard.closed:
            return
        self._exporting.release()
        for station, shipment in self._running.items():
            shipment.discard()
            self._roster.abandon(station)
        for shipment in (*self._built, *self._again, *self._parked):
            shipment.discard()
        self._running.clear()
