"""All devices of a fleet: how they are listed, connected, lent, tested and quarantined."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from functools import partial

import structlog
from chameleon_core.plugin_api import ChameleonError, FailureKind, TargetError

from chameleon_runners._engine.stage_errors import raise_stage_error
from chameleon_runners._engine.workers import WorkerEvent, WorkerPool
from chameleon_runners._fleet.availability import Availability
from chameleon_runners._fleet.connector import LONGEST_PAUSE, Connector
from chameleon_runners._fleet.device_state import DeviceRef, DeviceState, DeviceStatus
from chameleon_runners._fleet.options import FleetOptions
from chameleon_runners._fleet.verdicts import FailureReport, Reliability
from chameleon_runners._worker.protocol import Message

_log = structlog.get_logger()

_WARNING_SECONDS = 30.0
_REFUSED = os.strerror(errno.ECONNREFUSED)
_REFUSED_SECONDS = 30.0
"""Seconds to retry refused connections if no device was ever connected."""

_START = (
    "start what is to answer there with `chameleon serve`, and see that its port can be reached "
    "from here"
)
_NAMED = 8
"""The largest number of devices whose reasons a message names."""


class WaitingPolicy:
    """Decides how long a runner waits while no device works."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._since: float | None = None
        self._last_warning: float | None = None

    def reset(self) -> None:
        """Record that a device works again."""
        self._since = self._last_warning = None

    def next_check(self, now: float, devices: Sequence[DeviceState]) -> float:
        """Record that no device works, and return the time of the next check.

        Both times are seconds on the pool's clock. A warning is logged from time to time.
        """
        if devices and all(device.status is DeviceStatus.EXCLUDED for device in devices):
            _refuse(devices)
        self._since = now if self._since is None else self._since
        refused = bool(devices) and all(_REFUSED in device.reason for device in devices)
        patience = self._seconds
        if refused and patience is not None and not any(device.description for device in devices):
            patience = min(patience, _REFUSED_SECONDS)
        if patience is not None and now >= self._since + patience:
            raise TargetError(
                f"there was no device for {now - self._since:.0f} s: {_reasons(devices)}",
                hint=_START
                if refused
                else "see that the devices run and can be reached; the runner's patience says "
                "how long it waits",
            )
        if self._last_warning is None or now >= self._last_warning + _WARNING_SECONDS:
            self._last_warning = now
            _log.warning(
                "waiting_for_a_device",
                reasons=_reasons(devices),
                waited_seconds=round(now - self._since),
                patience_seconds=patience,
                **({"hint": _START} if refused else {}),
            )
        limits = [self._last_warning + _WARNING_SECONDS]
        if patience is not None:
            limits.append(self._since + patience)
        return min(limits)


def _refuse(devices: Sequence[DeviceState]) -> None:
    for device in devices:
        if device.refusal is not None and device.refusal["type"] != TargetError.__name__:
            raise_stage_error(device.ref.device.factory, device.refusal)
    hints = [s.refusal["hint"] for s in devices if s.refusal is not None]
    raise TargetError(
        f"no device can run the built kernels: {_reasons(devices)}",
        hint=next((hint for hint in hints if hint), "set the pipeline's target to the device's"),
    )


def _reasons(devices: Sequence[DeviceState]) -> str:
    if not devices:
        return "no device is known"
    lines = [f"{device.name}: {device.reason or device.status}" for device in devices[:_NAMED]]
    more = len(devices) - len(lines)
    return "; ".join(lines) + (f"; and {more} more" if more > 0 else "")


_QUARANTINE_PAUSES = 8.0
"""The pause of a quarantined device, over the pause after a lost connection."""

_MAY_BREAK_DEVICE = frozenset({FailureKind.RUN_ERROR, FailureKind.OUT_OF_MEMORY})
"""Failures that may leave a device unable to run other candidates."""

_STALE_SECONDS = 10.0
"""Idle seconds after which a device is tested before its next work: sessions expire."""

_DISCONNECT_SECONDS = 1.0

_LIST_SECONDS = 10.0
"""Seconds between two listings of the devices."""


class DevicePool(Availability):
    """Keeps the devices of a fleet, lends free ones, and handles their successes and failures.

    Attributes:
        shares_cpus: whether any device shares its CPU with builders.
    """

    def __init__(
        self,
        pool: WorkerPool,
        options: FleetOptions,
        device_refs: Callable[[], Sequence[DeviceRef]],
    ) -> None:
        super().__init__()
        self._pool = pool
        self._options = options
        self._device_refs = device_refs
        self._waiting_policy = WaitingPolicy(options.patience)
        self._fleet = Reliability()
        self._connector = Connector(pool, options, self, self.finished)
        self._list_due: float | None = None
        self.shares_cpus = False

    def take_changed(self) -> bool:
        """Whether devices came or went since the last call."""
        changed, self.changed = self.changed, False
        return changed

    @property
    def target(self) -> str | None:
        """The target that devices are connected for; None until it is known."""
        return self._connector.target

    @property
    def busy(self) -> bool:
        """Whether any device is busy."""
        return any(device.status is DeviceStatus.BUSY for device in self.known.values())

    def set_target(self, target: str) -> None:
        """Prepare every device for kernels of a target."""
        now = self._pool.now()
        target_changed = target != self._connector.target
        self._connector.target = target
        self.ever_connected &= not target_changed
        if target_changed and self._list_due is not None:
            # The devices may depend on the target, so they are listed again.
            self._list_due = now
        self.refresh()
        for device in list(self.known.values()):
            waiting = device.worker is not None and device.worker.idle
            if device.status is DeviceStatus.READY and device.target != target:
                self._connector.connect(device)
            elif device.status is DeviceStatus.READY and now - device.last_used > _STALE_SECONDS:
                self._connector.test(device)
            elif device.status is DeviceStatus.EXCLUDED and target_changed:
                self._connector.start_connecting(device)
            elif device.status is DeviceStatus.STARTING and waiting:
                self._connector.connect(device)

    def refresh(self) -> None:
        """List the devices again if it is time, and start the workers of new devices."""
        now = self._pool.now()
        if self._list_due is not None and now < self._list_due:
            return
        first = self._list_due is None
        self._list_due = now + _LIST_SECONDS
        try:
            device_refs = self._device_refs()
        except ChameleonError as error:
            if first:
                raise
            _log.warning("devices_not_listed", reason=str(error))
            return
        self._compare({ref.name: ref for ref in device_refs})

    def _compare(self, device_refs: dict[str, DeviceRef]) -> None:
        """Add devices that appeared, and remove unusable or unused ones that are not listed."""
        self.shares_cpus = any(ref.shared for ref in device_refs.values())
        for name in set(self.known) - set(device_refs):
            device = self.known[name]
            if device.unusable or device.target is None:
                self._connector.drop_worker(device)
                self.remove(device)
                _log.info("device_vanished", device=name, reason=device.reason)
        for name, ref in device_refs.items():
            known = self.known.get(name)
            if known is None:
                self.known[name] = DeviceState(ref=ref, reliability=Reliability(fleet=self._fleet))
                self._connector.start_connecting(self.known[name])
            elif known.ref != ref:
                known.ref = ref
                if known.unusable:
                    self._connector.start_connecting(known)

    def run_due_work(self) -> float:
        """Retry lost devices, list devices, check for a long wait; return the next due time."""
        now = self._pool.now()
        for device in self.due(now):
            self._connector.start_connecting(device)
        self.refresh()
        limits = [self._list_due or now, self.next_retry]
        if self.may_work:
            self._waiting_policy.reset()
        else:
            limits.append(self._waiting_policy.next_check(now, list(self.known.values())))
        return min(limits)

    def finished(self, device: DeviceState) -> None:
        """Lend a device that completed its work again, or quarantine it."""
        if device.should_quarantine:
            self._quarantine(device)
        elif device.target != self._connector.target:
            self._connector.connect(device)
        else:
            device.last_used = self._pool.now()
            self.release(device)

    def succeeded(self, device: DeviceState) -> None:
        """Record that a candidate succeeded on a device, and forget its earlier failures."""
        device.reliability.succeeded()
        device.strikes, device.quarantines, device.quarantine_reason = 0, 0, ""

    def failed(self, device: DeviceState, report: FailureReport) -> None:
        """Handle a device on which a candidate failed: reconnect it, test it or lend it again."""
        if report.device_recovered is None:
            self.lost(device, report)
        elif report.kind in _MAY_BREAK_DEVICE:
            self.test_after_failure(device)
        else:
            self.finished(device)

    def test_after_failure(self, device: DeviceState) -> None:
        """Test a device, because a candidate failed in a way that may have broken the device."""
        if device.should_quarantine:
            self._quarantine(device)
        else:
            device.new_worker = False
            self._connector.test(device)

    def lost(self, device: DeviceState, report: FailureReport | None = None) -> None:
        """Reconnect a device that was lost, or whose worker ended, during its work."""
        if device.worker is not None and not device.worker.alive:
            device.worker = None
        if report is not None:
            device.pending_reports.append(report)
        if device.should_quarantine:
            self._quarantine(device)
        else:
            self._connector.start_connecting(device)

    def strike(self, name: str) -> None:
        """Count against a device that a candidate failed on it and succeeded on another."""
        device = self.known.get(name)
        if device is None:
            return
        device.reliability.failed()
        device.strikes += 1
        if device.strikes < self._options.set_aside_after or device.unusable:
            return
        device.quarantine_reason = (
            f"{device.strikes} candidates in a row failed here and succeeded elsewhere"
        )
        if device.status is DeviceStatus.READY:
            self._quarantine(device)

    def quarantine_after_work(self, device: DeviceState) -> None:
        """Quarantine a device with unusual times, after its current work."""
        device.quarantine_pending = not device.unusable
        if device.status is DeviceStatus.READY:
            self._quarantine(device)

    def _quarantine(self, device: DeviceState) -> None:
        reason = device.quarantine_reason or device.out_of_pace
        if device.quarantine_reason:
            # One more such candidate quarantines it again, for longer.
            device.strikes = self._options.set_aside_after - 1
        device.quarantine_reason, device.quarantine_pending = "", False
        device.quarantines += 1
        self._connector.drop_worker(device)
        pause = (
            _QUARANTINE_PAUSES * self._options.probe_after * 2.0 ** min(device.quarantines - 1, 10)
        )
        pause = min(pause, _QUARANTINE_PAUSES * LONGEST_PAUSE)
        _log.warning("device_set_aside", device=device.name, reason=reason, seconds=pause)
        self.mark_unusable(device, DeviceStatus.AWAY, reason)
        self.schedule_retry(device, self._pool.now() + pause)

    def restart_worker(self, device: DeviceState) -> None:
        """Stop the work of a device by ending its worker, and connect the device again."""
        self._connector.drop_worker(device)
        self._connector.start_connecting(device)

    def disconnect_idle(self) -> None:
        """Disconnect idle devices at the end of a run, so that other clients can use them."""
        quarantine_pending: set[str] = set()

        def on_disconnect(name: str, _event: WorkerEvent) -> None:
            quarantine_pending.discard(name)

        for device in self.known.values():
            if (
                device.status is DeviceStatus.READY
                and device.worker is not None
                and device.worker.idle
            ):
                quarantine_pending.add(device.name)
                then = partial(on_disconnect, device.name)
                message: Message = {"command": "disconnect"}
                self._pool.submit(device.worker, then, message, _DISCONNECT_SECONDS)
        limit = self._pool.now() + _DISCONNECT_SECONDS
        while quarantine_pending and self._pool.now() < limit and not self._pool.closed:
            self._pool.run_once(limit)
