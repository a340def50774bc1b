"""Waiting for devices when none is left, aloud, and not for ever."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence

import structlog
from chameleon_core.errors import TargetError

from chameleon_runners.engine.stage_errors import raise_stage_error
from chameleon_runners.fleet.device_state import DeviceState, DeviceStatus

_log = structlog.get_logger()

_SAY_SECONDS = 30.0
_REFUSED = os.strerror(errno.ECONNREFUSED)
_REFUSED_SECONDS = 30.0
"""So long a connection that is refused is tried before there was any: nobody has started a server,
or one is just starting."""

_START = (
    "start what is to answer there with `chameleon serve`, and see that its port can be reached "
    "from here"
)
_NAMED = 8
"""Devices whose reasons are told; more would fill the screen."""


class WaitingPolicy:
    """Counts how long there has been no device.

    Args:
        seconds: how long that is borne; None for ever.
    """

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds
        self._since: float | None = None
        self._said: float | None = None

    def rest(self) -> None:
        """There is a device."""
        self._since = self._said = None

    def wait(self, now: float, devices: Sequence[DeviceState]) -> float:
        """There is none now.

        Args:
            now: seconds on the clock.
            devices: the devices that are known.

        Returns:
            When to be asked again.

        Raises:
            ChameleonError: no device can ever be used, or it has been too long.
        """
        if devices and all(device.status is DeviceStatus.EXCLUDED for device in devices):
            _refuse(devices)
        self._since = now if self._since is None else self._since
        refused = bool(devices) and all(_REFUSED in device.reason for device in devices)
        patience = self._seconds
        if refused and patience is not None and not any(one.description for one in devices):
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
        f"no device can run what is built: {_reasons(devices)}",
        hint=next((hint for hint in hints if hint), "set the pipeline's target to the device's"),
    )


def _reasons(devices: Sequence[DeviceState]) -> str:
    if not devices:
        return "no device is known"
    told = [f"{device.name}: {device.reason or device.status}" for device in devices[:_NAMED]]
    more = len(devices) - len(told)
    return "; ".join(told) + (f"; and {more} more" if more > 0 else "")
