"""Waiting for devices when none is left, aloud, and not for ever."""

from __future__ import annotations

from collections.abc import Sequence

import structlog
from chameleon_core.errors import TargetError

from chameleon_runners.fleet.stations import State, Station
from chameleon_runners.stage_errors import raise_stage_error

_log = structlog.get_logger()

_SAY_SECONDS = 30.0
_NAMED = 8
"""Devices whose reasons are told; more would fill the screen."""


class Patience:
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

    def wait(self, now: float, stations: Sequence[Station]) -> float:
        """There is none now.

        Args:
            now: seconds on the clock.
            stations: the devices that are known.

        Returns:
            When to be asked again.

        Raises:
            ChameleonError: no device can ever be used, or it has been too long.
        """
        if stations and all(station.state is State.EXCLUDED for station in stations):
            _refuse(stations)
        self._since = now if self._since is None else self._since
        if self._seconds is not None and now >= self._since + self._seconds:
            raise TargetError(
                f"there was no device for {now - self._since:.0f} s: {_reasons(stations)}",
                hint="see that the devices run and can be reached; the runner's patience says "
                "how long it waits",
            )
        if self._said is None or now >= self._said + _SAY_SECONDS:
            self._said = now
            _log.warning(
                "waiting_for_a_device",
                reasons=_reasons(stations),
                waited_seconds=round(now - self._since),
                patience_seconds=self._seconds,
            )
        limits = [self._said + _SAY_SECONDS]
        if self._seconds is not None:
            limits.append(self._since + self._seconds)
        return min(limits)


def _refuse(stations: Sequence[Station]) -> None:
    for station in stations:
        if station.refusal is not None and station.refusal["type"] != TargetError.__name__:
            raise_stage_error(station.place.device.factory, station.refusal)
    hints = [s.refusal["hint"] for s in stations if s.refusal is not None]
    raise TargetError(
        f"no device can run what is built: {_reasons(stations)}",
        hint=next((hint for hint in hints if hint), "set the pipeline's target to the device's"),
    )


def _reasons(stations: Sequence[Station]) -> str:
    if not stations:
        return "no device is known"
    told = [f"{station.name}: {station.reason or station.state}" for station in stations[:_NAMED]]
    more = len(stations) - len(told)
    return "; ".join(told) + (f"; and {more} more" if more > 0 else "")
