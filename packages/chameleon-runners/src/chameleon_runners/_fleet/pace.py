"""Compares how fast the devices of a fleet are, by a candidate that all devices measure.

Times of candidates are comparable only if all devices are equally fast. Every device measures the
same candidate at the start, and again after about fifty measurements per device. Devices that seem
slow are timed three times, and the shortest time counts, because noise only makes times longer.
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
        target: the target that the candidate was built for.
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
    _running: int = attrs.field(default=0, init=False)
    _measured: int = attrs.field(default=0, init=False)

    def offer(
        self,
        candidate: FleetCandidateRun,
        measurement: Measurement,
        *,
        precise: bool,
        target: str,
        reference: Reference,
    ) -> bool:
        """Use a candidate as the benchmark, and return True, if a new one is needed."""
        self._measured += 1
        measurer = self._devices.known.get(candidate.success_device)
        if not (precise and measurer is not None and self._needs_benchmark(target)):
            return False
        if self._benchmark is not None:
            self._benchmark.candidate.discard()
        self._benchmark = PaceBenchmark(candidate=candidate, target=target, reference=reference)
        self._measured = 0
        self._suspects.clear()
        self._readings = {measurer.actual_name: [min(measurement.seconds)]}
        return True

    def _needs_benchmark(self, target: str) -> bool:
        """Whether a new benchmark is needed."""
        devices = len(self._devices.known)
        if self._options.pace_tolerance is None or devices == 1 or self._running:
            return False
        useless = self._benchmark is None or self._benchmark.target != target
        return useless or self._measured >= _EVERY * devices

    def due(self, device: DeviceState) -> bool:
        """Whether a device must measure the benchmark before its next work."""
        if self._benchmark is None or self._benchmark.target != device.target:
            return False
        return device.actual_name not in self._readings or device.actual_name in self._suspects

    def time_benchmark(self, device: DeviceState) -> None:
        """Let a device time the benchmark; the device is free again afterwards."""
        benchmark = self._benchmark
        if benchmark is None or device.worker is None:
            raise RuntimeError("there is no benchmark, or the device has no worker")
        candidate = attrs.evolve(benchmark.candidate, tries=0, reports=[])
        # Without the best time, slow devices are timed precisely, too.
        message = candidate.run_command(benchmark.reference, self._policy, float("inf"))
        self._running += 1
        then = partial(self._heard, device, candidate)
        self._pool.submit(device.worker, then, message, self._options.run_timeout)

    def _heard(self, device: DeviceState, candidate: FleetCandidateRun, event: WorkerEvent) -> None:
        """Handle a device's result for the benchmark."""
        self._running -= 1
        device.record_identity(event)
        reply = event.reply
        if reply is not None and reply["status"] == "ok":
            self._readings.setdefault(device.actual_name, []).append(min(reply["seconds"]))
            self.compare()
            self._devices.finished(device)
            return
        report = candidate.fail(device, event)
        if not report.killed_externally:
            self._readings.setdefault(device.actual_name, [])
            self._suspects.discard(device.actual_name)
            self._devices.strike(device.name)
        self._devices.failed(device, report)

    def compare(self) -> None:
        """Find devices that are too slow or too fast compared with the fleet's median device."""
        tolerance = self._options.pace_tolerance
        working = [device for device in self._devices.known.values() if device.may_work]
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
        # If two devices differ, the slower one is out of pace.
        median = statistics.median_low(seconds.values())
        for device, own in seconds.items():
            device.pace = own / median
            if 1.0 / tolerance <= device.pace <= tolerance:
                device.out_of_pace = ""
            else:
                self._mark_out_of_pace(device, device.pace)

    def _mark_out_of_pace(self, device: DeviceState, ratio: float) -> None:
        if not device.out_of_pace:
            _log.warning("device_out_of_pace", device=device.name, ratio=round(ratio, 3))
        device.out_of_pace = f"its times are {ratio:.2f} times those of the fleet's median device"
        if self._options.pace_aside:
            # After the quarantine, it times the benchmark first.
            self._readings.pop(device.actual_name, None)
            self._devices.quarantine_after_work(device)
