"""All devices of a fleet: how they are listed, connected, lent, tested and set aside."""

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

_SAY_SECONDS = 30.0
_REFUSED = os.strerror(errno.ECONNREFUSED)
_REFUSED_SECONDS = 30.0
"""Seconds to retry refused connections if no device was ever connected.

A refused connection means that no server was started, or that it is still starting.
"""

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
        self._said: float | None = None

    def rest(self) -> None:
        """Record that a device works again, so that a later wait begins at zero."""
        self._since = self._said = None

    def wait(self, now: float, devices: Sequence[DeviceState]) -> float:
        """Record that no device works now, and log a warning from time to time.

        ``now`` is the time on the pool's clock in seconds.
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
        if self._said is None or now >= self._said + _SAY_SECONDS:
            self._said = now
            _log.warning(
                "waiting_for_a_device",
                reasons=_reasons(devices),
                waited_seconds=round(now - self._since),
                patience_seconds=patience,
                **({"hint": _START} if refused else {}),
            )
        limits = [self._said + _SAY_SECONDS]
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


_ASIDE_PAUSES = 8.0
"""The pause of a device that is set aside, over the pause after a lost connection."""

_BREAKING = frozenset({FailureKind.RUN_ERROR, FailureKind.OUT_OF_MEMORY})
"""Failures that may leave a device unable to run other candidates."""

_STALE_SECONDS = 10.0
"""Idle seconds after which a device is tested before its next work: sessions expire."""

_FAREWELL_SECONDS = 1.0

_LIST_SECONDS = 10.0
"""Seconds between two listings of the devices."""


class DevicePool(Availability):
    """Keeps the devices of a fleet, lends free ones, and handles their successes and failures.

    Attributes:
        shares_cpus: Whether any device shares its CPU with builders.
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

    # -- who there is -----------------------------------------------------------------------

    def news(self) -> bool:
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

    # -- listing ----------------------------------------------------------------------------

    def aim(self, target: str) -> None:
        """Prepare every device for kernels of a target."""
        now = self._pool.now()
        anew = target != self._connector.target
        self._connector.target = target
        self.reached &= not anew
        if anew and self._list_due is not None:
            # Some fleets have other devices for other targets.
            self._list_due = now
        self.list_anew()
        for device in list(self.known.values()):
            waiting = device.worker is not None and device.worker.idle
            if device.status is DeviceStatus.READY and device.target != target:
                self._connector.connect(device)
            elif device.status is DeviceStatus.READY and now - device.used > _STALE_SECONDS:
                self._connector.test(device)
            elif device.status is DeviceStatus.EXCLUDED and anew:
                self._connector.reach(device)
            elif device.status is DeviceStatus.STARTING and waiting:
                self._connector.connect(device)

    def list_anew(self) -> None:
        """List the fleet's devices again if it is time, and start the workers of new devices."""
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
                self._connector.reach(self.known[name])
            elif known.ref != ref:
                known.ref = ref
                if known.unusable:
                    self._connector.reach(known)

    # -- time -------------------------------------------------------------------------------

    def attend(self) -> float:
        """Do what is due: retry lost devices, list devices again, and check for a long wait."""
        now = self._pool.now()
        for device in self.due(now):
            self._connector.reach(device)
        self.list_anew()
        limits = [self._list_due or now, self.next_due]
        if self.hopeful:
            self._waiting_policy.rest()
        else:
            limits.append(self._waiting_policy.wait(now, list(self.known.values())))
        return min(limits)

    # -- after work -------------------------------------------------------------------------

    def finished(self, device: DeviceState) -> None:
        """Make a device that completed its work ready for more work, or set the device aside."""
        if device.doomed:
            self._put_aside(device)
        elif device.target != self._connector.target:
            self._connector.connect(device)
        else:
            device.used = self._pool.now()
            self.release(device)

    def succeeded(self, device: DeviceState) -> None:
        """Record that a candidate succeeded on a device, and forget its earlier failures."""
        device.reliability.succeeded()
        device.strikes, device.asides, device.condemned = 0, 0, ""

    def failed(self, device: DeviceState, report: FailureReport) -> None:
        """Handle a device on which a candidate failed: reconnect it, test it or lend it again."""
        if report.back is None:
            self.lost(device, report)
        elif report.kind in _BREAKING:
            self.suspected(device)
        else:
            self.finished(device)

    def suspected(self, device: DeviceState) -> None:
        """Test a device, because a candidate failed in a way that may have broken the device."""
        if device.doomed:
            self._put_aside(device)
        else:
            device.fresh = False
            self._connector.test(device)

    def lost(self, device: DeviceState, report: FailureReport | None = None) -> None:
        """Reconnect a device that was lost, or whose worker ended, during its work."""
        if device.worker is not None and not device.worker.alive:
            device.worker = None
        if report is not None:
            device.awaiting.append(report)
        if device.doomed:
            self._put_aside(device)
        else:
            self._connector.reach(device)

    def strike(self, name: str) -> None:
        """Count against a device that a candidate failed on it and succeeded on another."""
        device = self.known.get(name)
        if device is None:
            return
        device.reliability.failed()
        device.strikes += 1
        if device.strikes < self._options.set_aside_after or device.unusable:
            return
        device.condemned = (
            f"{device.strikes} candidates in a row failed here and succeeded elsewhere"
        )
        if device.status is DeviceStatus.READY:
            self._put_aside(device)

    def condemn(self, device: DeviceState) -> None:
        """Set a device with unusual times aside, after its current work."""
        device.leaving = not device.unusable
        if device.status is DeviceStatus.READY:
            self._put_aside(device)

    def _put_aside(self, device: DeviceState) -> None:
        reason = device.condemned or device.out_of_pace
        if device.condemned:
            # It comes back on probation: the next such candidate sends it away again, for longer.
            device.strikes = self._options.set_aside_after - 1
        device.condemned, device.leaving = "", False
        device.asides += 1
        self._connector.drop_worker(device)
        pause = _ASIDE_PAUSES * self._options.probe_after * 2.0 ** min(device.asides - 1, 10)
        pause = min(pause, _ASIDE_PAUSES * LONGEST_PAUSE)
        _log.warning("device_set_aside", device=device.name, reason=reason, seconds=pause)
        self.leave(device, DeviceStatus.AWAY, reason)
        self.remind(device, self._pool.now() + pause)

    # -- the end ----------------------------------------------------------------------------

    def abandon(self, device: DeviceState) -> None:
        """Stop the work of a device by ending its worker, and connect the device again."""
        self._connector.drop_worker(device)
        self._connector.reach(device)

    def farewell(self) -> None:
        """Disconnect idle devices at the end of a run, and so make them free for other clients."""
        leaving: set[str] = set()

        def left(name: str, _event: WorkerEvent) -> None:
            leaving.discard(name)

        for device in self.known.values():
            if (
                device.status is DeviceStatus.READY
                and device.worker is not None
                and device.worker.idle
            ):
                leaving.add(device.name)
                then = partial(left, device.name)
                message: Message = {"command": "disconnect"}
                self._pool.submit(device.worker, then, message, _FAREWELL_SECONDS)
        limit = self._pool.now() + _FAREWELL_SECONDS
        while leaving and self._pool.now() < limit and not self._pool.closed:
            self._pool.run_once(limit)
