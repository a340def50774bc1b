"""One job on its way through a fleet: built here, run wherever a device is free."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from functools import partial
from pathlib import Path

import attrs
from chameleon_core.measurement import FailureKind, Measurement
from chameleon_core.stages import MeasureJob

from chameleon_runners.deadlines import Deadlines
from chameleon_runners.fleet.exporting import Exporting
from chameleon_runners.fleet.lanes import LaneEvent, Switchboard
from chameleon_runners.fleet.options import FleetOptions
from chameleon_runners.fleet.roster import Roster
from chameleon_runners.fleet.shipments import Shipment
from chameleon_runners.fleet.stations import Station
from chameleon_runners.fleet.verdicts import Verdict
from chameleon_runners.fleet.workshop import Workshop
from chameleon_runners.references import Reference
from chameleon_runners.timing import TimingPolicy

_LOOK_AHEAD = 8
"""Candidates to be tried again that are looked at for whether a free device may take them."""

_BREAKING = frozenset({FailureKind.RUN_ERROR, FailureKind.OUT_OF_MEMORY})
"""Failures that may leave a device unable to run anything else."""


@attrs.frozen(kw_only=True, eq=False)
class Means:
    """What jobs of one task are measured with.

    Attributes:
        switchboard: the lanes.
        roster: the devices.
        workshop: the builders.
        options: the runner's options.
        policy: the clock policy.
        reference: the task's expected outputs.
        deadlines: the task's time-outs.
        folder: where artifacts are put.
    """

    switchboard: Switchboard
    roster: Roster
    workshop: Workshop
    options: FleetOptions
    policy: TimingPolicy
    reference: Reference
    deadlines: Deadlines
    folder: Path


class Dispatch:
    """Measures one job.

    Args:
        job: the job.
        key: identity of the job's builder.
        means: what it is measured with.
        numbers: numbers that no artifact in the folder has.
    """

    def __init__(self, job: MeasureJob, key: str, *, means: Means, numbers: Iterator[int]) -> None:
        self._means = means
        self._roster = means.roster
        self._target = job.task.target
        self._best = job.best_seconds
        self._policy = attrs.asdict(means.policy)
        self._built: deque[Shipment] = deque()
        self._again: deque[Shipment] = deque()
        self._parked: list[Shipment] = []
        self._running: dict[Station, Shipment] = {}
        self._results: deque[Measurement] = deque()
        self._interrupted = False
        pending = deque(
            Shipment(
                config=tuple(int(index) for index in config),
                slot=(number := next(numbers)),
                artifact=means.folder / f"artifact-{number}",
                tries=means.options.retries + 1,
            )
            for config in job.configs
        )
        self._open = len(pending)
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

    def interrupt(self) -> None:
        """Finish what runs on devices, and begin nothing."""
        self._interrupted = True
        self._means.switchboard.wake()

    def run(self) -> Generator[Measurement, None, None]:
        """Yield one measurement per configuration, each as soon as it is known.

        Raises:
            ChameleonError: no device is to be had, or the stage is broken.
        """
        switchboard = self._means.switchboard
        self._roster.aim(self._target)
        try:
            while self._open and not switchboard.closed:
                if not self._interrupted:
                    self._assign()
                    self._exporting.employ(self._room)
                elif not self._running:
                    break
                until = self._roster.attend()
                if self._results and self._roster.reached:
                    yield from self._hand_out()
                    continue
                switchboard.turn(until)
                if self._roster.news():
                    self._reconsider()
            yield from self._hand_out()
        finally:
            self._release()

    @property
    def _room(self) -> int:
        """How many builds may be under way now."""
        most = self._means.options.build_ahead * max(1, self._roster.hopeful)
        return max(0, most - len(self._built))

    def _hand_out(self) -> Generator[Measurement, None, None]:
        while self._results:
            yield self._results.popleft()

    # -- devices ----------------------------------------------------------------------------

    def _assign(self) -> None:
        """Give free devices work: first what others failed on."""
        if not self._means.reference.ready:
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
            self._start(self._built.popleft(), station)

    def _start(self, shipment: Shipment, station: Station) -> None:
        means = self._means
        if station.lane is None:
            raise RuntimeError("a device is free that nobody has")
        self._running[station] = shipment
        shipment.tries -= 1
        message = {
            "command": "run",
            "artifact": str(shipment.artifact),
            "cores": [],
            "reference": str(means.reference.path),
            "tolerance": means.reference.tolerance,
            "policy": self._policy,
            "probe": False,
            "best": self._best,
        }
        then = partial(self._ran, station)
        means.switchboard.submit(station.lane, then, message, means.deadlines.run(self._best))

    def _ran(self, station: Station, event: LaneEvent) -> None:
        """A device is done with a candidate, or gone."""
        shipment = self._running.pop(station)
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
        opinion = shipment.fail(station.name, event, trusted=station.trusted)
        if opinion.back is None:
            self._roster.lost(station, opinion)
        elif opinion.kind in _BREAKING:
            self._roster.suspected(station)
        else:
            self._roster.finished(station)
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

    def _reconsider(self) -> None:
        """Devices came or went: judge again those who wait for one."""
        waiting, self._parked = [*self._parked, *self._again], []
        self._again.clear()
        for shipment in waiting:
            self._consider(shipment)

    def _finish(self, shipment: Shipment, measurement: Measurement) -> None:
        self._open -= 1
        shipment.discard()
        self._results.append(measurement)
        if measurement.ok:
            self._best = min(self._best, measurement.cost)
            for opinion in shipment.opinions:
                if not opinion.outside:
                    self._roster.strike(opinion.device)

    def _release(self) -> None:
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
