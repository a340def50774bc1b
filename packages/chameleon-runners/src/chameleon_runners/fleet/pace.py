"""How fast devices are, compared by a candidate that all of them run now and then.

Times are compared between candidates, so devices of one fleet have to be equally fast. A benchmark
finds a device that was clocked down, is hot, shares its processor or is another model. Every device
measures a candidate that another one has measured, at the start and once in fifty measurements of
each. Noise makes a reading slower, never faster. So no device is judged before all that seem slow
have been read three times, and the fastest reading counts.
"""

from __future__ import annotations

import statistics
from functools import partial

import attrs
import structlog
from chameleon_core.measurement import Measurement

from chameleon_runners.engine.references import Reference
from chameleon_runners.engine.workers import WorkerEvent, WorkerPool
from chameleon_runners.fleet.candidate_run import FleetCandidateRun
from chameleon_runners.fleet.device_pool import DevicePool
from chameleon_runners.fleet.device_state import DeviceState
from chameleon_runners.fleet.options import FleetOptions
from chameleon_runners.timing import TimingPolicy

_log = structlog.get_logger()

_EVERY = 50
"""Measurements of each device between two readings."""

_READINGS = 3
"""Readings of a device that seems slow before anybody is judged."""


@attrs.frozen(kw_only=True, eq=False)
class PaceBenchmark:
    """A candidate that every device is to run.

    Attributes:
        candidate: the candidate.
        target: that it was built for.
        reference: its expected outputs.
    """

    candidate: FleetCandidateRun
    target: str
    reference: Reference


@attrs.define(eq=False)
class PaceMonitor:
    """Reads how fast the devices are, and tells the pool of devices who differs from the others.

    Readings go on between batches: nobody waits for one but its device.

    Attributes:
        pool: the workers.
        devices: the pool of devices.
        options: the runner's options.
        policy: the clock policy.
    """

    _pool: WorkerPool
    _devices: DevicePool
    _options: FleetOptions
    _policy: TimingPolicy
    _benchmark: PaceBenchmark | None = attrs.field(default=None, init=False)
    _readings: dict[str, list[float]] = attrs.field(factory=dict, init=False)
    _suspects: set[str] = attrs.field(factory=set, init=False)
    _under_way: int = attrs.field(default=0, init=False)
    _measured: int = attrs.field(default=0, init=False)

    # -- the benchmark ----------------------------------------------------------------------

    def measured(
        self,
        candidate: FleetCandidateRun,
        measurement: Measurement,
        *,
        precise: bool,
        target: str,
        reference: Reference,
    ) -> bool:
        """Hear of a candidate that was measured, and make it the benchmark if it is time for one.

        Args:
            candidate: the candidate.
            measurement: its measurement, which is the reading of the device that made it.
            precise: whether it was timed as fast candidates are; others are timed in haste.
            target: that it was built for.
            reference: its expected outputs.

        Returns:
            Whether it is the benchmark now, and its artifact is to be kept.
        """
        self._measured += 1
        measurer = self._devices.known.get(candidate.passed_on)
        if not (precise and measurer is not None and self._wanted(target)):
            return False
        if self._benchmark is not None:
            self._benchmark.candidate.discard()
        self._benchmark = PaceBenchmark(candidate=candidate, target=target, reference=reference)
        self._measured = 0
        self._suspects.clear()
        self._readings = {measurer.actual_name: [min(measurement.seconds)]}
        return True

    def _wanted(self, target: str) -> bool:
        """Whether it is time for a new benchmark."""
        devices = len(self._devices.known)
        if self._options.pace_tolerance is None or devices == 1 or self._under_way:
            return False
        useless = self._benchmark is None or self._benchmark.target != target
        return useless or self._measured >= _EVERY * devices

    # -- readings ---------------------------------------------------------------------------

    def due(self, device: DeviceState) -> bool:
        """Whether a device is to run the benchmark before anything else."""
        if self._benchmark is None or self._benchmark.target != device.target:
            return False
        return device.actual_name not in self._readings or device.actual_name in self._suspects

    def read(self, device: DeviceState) -> None:
        """Have a device, which was taken, run the benchmark; it is free again afterwards."""
        benchmark = self._benchmark
        if benchmark is None or device.worker is None:
            raise RuntimeError("a device is read that nobody has, or with nothing")
        candidate = attrs.evolve(benchmark.candidate, tries=0, reports=[])
        # The best is not told: however slow the device, the reading is to be precise.
        message = candidate.run_command(benchmark.reference, self._policy, float("inf"))
        self._under_way += 1
        then = partial(self._heard, device, candidate)
        self._pool.submit(device.worker, then, message, self._options.run_timeout)

    def _heard(self, device: DeviceState, candidate: FleetCandidateRun, event: WorkerEvent) -> None:
        """A device has run the benchmark, or failed to, though it is known to be good."""
        self._under_way -= 1
        device.heard(event)
        reply = event.reply
        if reply is not None and reply["status"] == "ok":
            self._readings.setdefault(device.actual_name, []).append(min(reply["seconds"]))
            self.compare()
            self._devices.finished(device)
            return
        report = candidate.fail(
            device.name, event, reliability=device.reliability, identity=device.actual_name
        )
        if not report.outside:
            self._readings.setdefault(device.actual_name, [])
            self._suspects.discard(device.actual_name)
            self._devices.strike(device.name)
        self._devices.failed(device, report)

    # -- judging ----------------------------------------------------------------------------

    def compare(self) -> None:
        """Judge the devices that there are, once there are readings enough of all of them."""
        tolerance = self._options.pace_tolerance
        working = [device for device in self._devices.known.values() if device.hopeful]
        if tolerance is None or any(d.actual_name not in self._readings for d in working):
            return
        seconds = {d: min(some) for d in working if (some := self._readings[d.actual_name])}
        limit = tolerance * min(seconds.values(), default=0.0)
        self._suspects = {
            device.actual_name
            for device, own in seconds.items()
            if own > limit and len(self._readings[device.actual_name]) < _READINGS
        }
        if self._suspects or not seconds:
            return
        # Of two that differ, the slower one is to blame.
        median = statistics.median_low(seconds.values())
        for device, own in seconds.items():
            device.pace = own / median
            if 1.0 / tolerance <= device.pace <= tolerance:
                device.out_of_pace = ""
            else:
                self._differs(device, device.pace)

    def _differs(self, device: DeviceState, ratio: float) -> None:
        if not device.out_of_pace:
            _log.warning("device_out_of_pace", device=device.name, ratio=round(ratio, 3))
        device.out_of_pace = f"its times are {ratio:.2f} times those of the fleet's median device"
        if self._options.pace_aside:
            # When it is back it is read again, before it gets any work.
            self._readings.pop(device.actual_name, None)
            self._devices.condemn(device)
