"""Decides whether a candidate or its device is at fault for a failure.

A kernel may crash its device, and a device may fail with any kernel. One failure alone says little.
If several devices report the same failure, the candidate is at fault as soon as it is unlikely that
all these devices failed by themselves. Each device's history gives this probability. Two devices
that never failed alone are enough; unreliable devices need three or four reports. Correct outputs
prove a candidate good, since no device computes them by accident.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum

import attrs
from chameleon_core.plugin_api import FailureKind, Measurement

_GONE = frozenset({FailureKind.DEVICE_LOST, FailureKind.CRASH})
"""Failures that are one event: the client loses its device, or crashes together with it."""

_AWAITED = _GONE | {FailureKind.RUN_TIMEOUT}
"""Failures after which the runner first checks whether the device still works."""

_USUAL, _USUAL_RUNS = 0.03, 20.0
"""The assumed share of good candidates that fail on a device, and its weight in runs."""

_CHANCE = 0.001
"""A candidate is at fault if its failures are the devices' own with at most this probability.

Two failures on devices without a history reach it. A failure on an unreliable device and one on
another device do not. If devices fail on one candidate in 20, two failures would blame one good
candidate in 400.
"""

_CHANCE_ALONE = 0.06
"""The same probability if no other device can try the candidate.

One failure is then enough on a device that rarely fails, or that has no history.
"""


class Verdict(Enum):
    """The next step with a candidate that has no result yet."""

    AGAIN = "again"
    WAIT = "wait"


@attrs.define(kw_only=True, eq=False)
class Reliability:
    """How often a device fails by its own fault, from its history.

    Attributes:
        faults: The number of candidates that failed on the device and succeeded elsewhere.
        successes: The number of candidates that succeeded on the device.
        fleet: The same numbers for all devices together, which are the estimate for a device
            without a history; None if unknown.
    """

    faults: int = 0
    successes: int = 0
    fleet: Reliability | None = None

    @property
    def fault_rate(self) -> float:
        """The estimated probability that a candidate without faults fails on the device."""
        usual = _USUAL if self.fleet is None else self.fleet.fault_rate
        return (_USUAL_RUNS * usual + self.faults) / (_USUAL_RUNS + self.faults + self.successes)

    def failed(self) -> None:
        """Count a candidate that failed on the device and succeeded elsewhere."""
        self.faults += 1
        if self.fleet is not None:
            self.fleet.failed()

    def succeeded(self) -> None:
        """Count a candidate that succeeded on the device."""
        self.successes += 1
        if self.fleet is not None:
            self.fleet.succeeded()


@attrs.define(kw_only=True, eq=False)
class FailureReport:
    """One failure of a candidate on one device.

    Attributes:
        failure: The measurement that the candidate gets if this failure counts as its fault.
        outside: Whether another process ended the worker. Such a failure says nothing about the
            candidate.
        back: Whether the device works again; None while that is unknown.
        reliability: The device's history, which may grow before the failure is judged.
        identity: The actual device, if several devices share one name.
    """

    device: str
    failure: Measurement
    outside: bool = False
    back: bool | None = True
    reliability: Reliability = attrs.field(factory=Reliability)
    identity: str = attrs.field(default=attrs.Factory(lambda self: self.device, takes_self=True))

    @property
    def kind(self) -> FailureKind:
        """The kind of failure."""
        return self.failure.failure or FailureKind.RUN_ERROR

    def agrees(self, other: FailureReport) -> bool:
        """Whether both reports show the same failure."""
        if self.outside or other.outside:
            return False
        return self.kind is other.kind or {self.kind, other.kind} <= _GONE


def awaited(kind: FailureKind) -> bool:
    """Whether a failure of this kind may have broken the device, so that it must be tested."""
    return kind in _AWAITED


def conclusive(reports: Sequence[FailureReport], *, elsewhere: bool = True) -> bool:
    """Whether the candidate is at fault, because faults of all reporting devices are unlikely."""
    rates = [report.reliability.fault_rate for report in reports]
    if not elsewhere:
        return min(rates) <= _CHANCE_ALONE or math.prod(rates) <= _CHANCE
    distinct = {report.identity: report.reliability.fault_rate for report in reports}
    return math.prod(distinct.values()) <= _CHANCE


def judge(
    reports: Sequence[FailureReport], *, tries: int, elsewhere: bool
) -> Measurement | Verdict:
    """Decide about a candidate that has failed on every device so far."""
    last = reports[-1]
    agreeing = [report for report in reports if report.agrees(last)]
    again: Measurement | Verdict = Verdict.AGAIN if tries > 0 else _final_failure(reports)
    if last.outside or last.kind is FailureKind.INVALID:
        return again if last.outside else last.failure
    if last.kind not in _AWAITED:
        return last.failure if conclusive(agreeing, elsewhere=elsewhere) else again
    unsure = len(agreeing) == 1 or not conclusive(agreeing, elsewhere=elsewhere)
    if unsure and (tries > 0 or len(agreeing) == 1):
        return again
    if any(report.back for report in agreeing):
        return _blamed(agreeing)
    if any(report.back is None for report in agreeing):
        return Verdict.WAIT
    return again


def _blamed(agreeing: Sequence[FailureReport]) -> Measurement:
    """The candidate's failure, if devices that work without it failed with it."""
    last = agreeing[-1]
    if last.kind not in _GONE:
        return last.failure
    names = " and ".join(dict.fromkeys(report.device for report in agreeing))
    words = next((o for o in agreeing if o.kind is FailureKind.CRASH), last).failure.message
    return attrs.evolve(
        last.failure,
        failure=FailureKind.CRASH,
        message=f"{len(agreeing)} times the device was lost while this ran, on {names}: {words}",
    )


def _final_failure(reports: Sequence[FailureReport]) -> Measurement:
    """The failure of a candidate without further tries, if no two reports agree."""
    for report in reversed(reports):
        if not report.outside and report.kind is not FailureKind.DEVICE_LOST:
            if report.back is False:
                break
            return report.failure
    last = reports[-1]
    if last.outside:
        return last.failure
    names = ", ".join(dict.fromkeys(report.device for report in reports))
    return attrs.evolve(
        last.failure,
        failure=FailureKind.DEVICE_LOST,
        message=f"every device that it was tried on was lost ({names}): {last.failure.message}",
    )
