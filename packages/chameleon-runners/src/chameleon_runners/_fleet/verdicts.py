"""Decides whether a candidate or its device is at fault for a failure.

If several devices report the same failure, the candidate is at fault as soon as it is unlikely that
all these devices failed by themselves. Each device's history gives this probability. Correct
outputs prove a candidate good, since no device computes them by accident.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum

import attrs
from chameleon_core.plugin_api import FailureKind, Measurement

_GONE = frozenset({FailureKind.DEVICE_LOST, FailureKind.CRASH})
"""Failures that are one event: the client loses its device, or crashes together with it."""

_NEEDS_DEVICE_TEST = _GONE | {FailureKind.RUN_TIMEOUT}
"""Failures after which the runner first checks whether the device still works."""

_PRIOR_RATE, _PRIOR_RUNS = 0.03, 20.0
"""The assumed share of good candidates that fail on a device, and its weight in runs."""

_FAULT_PROBABILITY = 0.001
"""A candidate is at fault if its failures are the devices' own with at most this probability.

Two failures on devices without a history reach it.
"""

_FAULT_PROBABILITY_ALONE = 0.06
"""The same probability if no other device can try the candidate.

One failure is then enough on a device that rarely fails, or that has no history.
"""


class Verdict(Enum):
    """The next step with a candidate that has no result yet."""

    RETRY = "again"
    WAIT = "wait"


@attrs.define(kw_only=True, eq=False)
class Reliability:
    """How often a device fails by its own fault, from its history.

    Attributes:
        faults: the number of candidates that failed on the device and succeeded elsewhere.
        successes: the number of candidates that succeeded on the device.
        fleet: the same numbers for all devices together, the prior of each device; None if unknown.
    """

    faults: int = 0
    successes: int = 0
    fleet: Reliability | None = None

    @property
    def fault_rate(self) -> float:
        """The estimated probability that a candidate without faults fails on the device."""
        usual = _PRIOR_RATE if self.fleet is None else self.fleet.fault_rate
        return (_PRIOR_RUNS * usual + self.faults) / (_PRIOR_RUNS + self.faults + self.successes)

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
        failure: the measurement that the candidate gets if it is at fault.
        killed_externally: whether another process ended the worker, which says nothing about the
            candidate.
        device_recovered: whether the device works again; None while that is unknown.
        reliability: the device's history, which may grow before the failure is judged.
        identity: the actual device, if several devices share one name.
    """

    device: str
    failure: Measurement
    killed_externally: bool = False
    device_recovered: bool | None = True
    reliability: Reliability = attrs.field(factory=Reliability)
    identity: str = attrs.field(default=attrs.Factory(lambda self: self.device, takes_self=True))

    @property
    def kind(self) -> FailureKind:
        """The kind of failure."""
        return self.failure.failure or FailureKind.RUN_ERROR

    def agrees(self, other: FailureReport) -> bool:
        """Whether both reports show the same failure."""
        if self.killed_externally or other.killed_externally:
            return False
        return self.kind is other.kind or {self.kind, other.kind} <= _GONE


def needs_device_test(kind: FailureKind) -> bool:
    """Whether a failure of this kind may have broken the device, so that it must be tested."""
    return kind in _NEEDS_DEVICE_TEST


def is_candidate_fault(reports: Sequence[FailureReport], *, has_other_device: bool = True) -> bool:
    """Whether the candidate is at fault, because faults of all reporting devices are unlikely."""
    rates = [report.reliability.fault_rate for report in reports]
    if not has_other_device:
        return min(rates) <= _FAULT_PROBABILITY_ALONE or math.prod(rates) <= _FAULT_PROBABILITY
    distinct = {report.identity: report.reliability.fault_rate for report in reports}
    return math.prod(distinct.values()) <= _FAULT_PROBABILITY


def judge(
    reports: Sequence[FailureReport], *, tries: int, has_other_device: bool
) -> Measurement | Verdict:
    """Decide about a candidate that has failed on every device so far."""
    last = reports[-1]
    agreeing = [report for report in reports if report.agrees(last)]
    again: Measurement | Verdict = Verdict.RETRY if tries > 0 else _final_failure(reports)
    if last.killed_externally or last.kind is FailureKind.INVALID:
        return again if last.killed_externally else last.failure
    if last.kind not in _NEEDS_DEVICE_TEST:
        return (
            last.failure
            if is_candidate_fault(agreeing, has_other_device=has_other_device)
            else again
        )
    unsure = len(agreeing) == 1 or not is_candidate_fault(
        agreeing, has_other_device=has_other_device
    )
    if unsure and (tries > 0 or len(agreeing) == 1):
        return again
    if any(report.device_recovered for report in agreeing):
        return _confirmed_failure(agreeing)
    if any(report.device_recovered is None for report in agreeing):
        return Verdict.WAIT
    return again


def _confirmed_failure(agreeing: Sequence[FailureReport]) -> Measurement:
    """The failure of a candidate on devices that work without it."""
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
        if not report.killed_externally and report.kind is not FailureKind.DEVICE_LOST:
            if report.device_recovered is False:
                break
            return report.failure
    last = reports[-1]
    if last.killed_externally:
        return last.failure
    names = ", ".join(dict.fromkeys(report.device for report in reports))
    return attrs.evolve(
        last.failure,
        failure=FailureKind.DEVICE_LOST,
        message=f"every device that it was tried on was lost ({names}): {last.failure.message}",
    )
