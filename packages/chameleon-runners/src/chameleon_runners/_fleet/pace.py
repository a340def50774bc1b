"""Compares how fast the devices of a fleet are, by a candidate that all devices measure.

Times of candidates are only comparable if all devices are equally fast. A device may be slower
because of its clocks, its temperature, other programs or its model. So every device measures the
same candidate at the start, and again after about fifty measurements per device. Noise makes a time
longer, never shorter. All devices that seem slow are timed three times before any device is judged,
and the shortest time counts.
"""

from __future__ import annotations

import statistics
from functools import partial

import attrs
import structlog
from chameleon_core.plugin_api import Measurement

from chameleon_runners._engine.references import Reference
from chameleon_runners._engine.workers import WorkerEvent, WorkerPool
from chameleon_runners._fleet.candidate_run import FleetCandidateRun
from chameleon_runners._fleet.device_pool import DevicePool
from chameleon_runners._fleet.device_state import DeviceState
from chameleon_runners._fleet.options import FleetOptions
from chameleon_runners._timing import TimingPolicy

_log = structlog.get_logger()

_EVERY = 50
"""The number of measurements per device between two comparisons."""

_READINGS = 3
"""The number of times that a device that seems slow is timed before any device is judged."""


@attrs.frozen(kw_only=True, eq=False)
class PaceBenchmark:
    """The candidate that every device of a fleet must measure, to compare their speed.

    Attributes:
        target: The target that the candidate was built for.
    """

    candidate: FleetCandidateRun
    target: str
    reference: Reference


@attrs.define(eq=False)
class PaceMonitor:
    """Times a common candidate on every device, and reports devices that differ too much."""

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
        """Use a measured candidate to compare the devices' speed, if a new candidate is needed.

        Either there is none for the target, or the devices have made many measurements since the
        last one was chosen.
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
        """Whether a new benchmark is needed."""
        devices = len(self._devices.known)
        if self._options.pace_tolerance is None or devices == 1 or self._under_way:
            return False
        useless = self._benchmark is None or self._benchmark.target != target
        return useless or self._measured >= _EVERY * devices

    # -- readings ---------------------------------------------------------------------------

    def due(self, device: DeviceState) -> bool:
        """Whether a device must measure the benchmark before its next work."""
        if self._benchmark is None or self._benchmark.target != device.target:
            return False
        return device.actual_name not in self._readings or device.actual_name in self._suspects

    def read(self, device: DeviceState) -> None:
        """Let a device time the common candidate; the device is free again afterwards."""
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
        """Handle a device's result for the benchmark."""
        self._under_way -= 1
        device.heard(event)
        reply = event.reply
        if reply is not None and reply["status"] == "ok":
            self._readings.setdefault(device.actual_name, []).append(min(reply["seconds"]))
            self.compare()
            self._devices.finished(device)
            return
        report = candidate.fail(device, event)
        if not report.outside:
            self._readings.setdefault(device.actual_name, [])
            self._suspects.discard(device.actual_name)
            self._devices.strike(device.name)
        self._devices.failed(device, report)

    # -- judging ----------------------------------------------------------------------------

    def compare(self) -> None:
        """Find devices that are too slow or too fast compared with the fleet's median device."""
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
