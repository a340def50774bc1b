"""Decides whose fault a failure is: the candidate's, or the device's that it ran on.

A kernel may crash its device, and a device may fail, compute wrongly or vanish whatever runs on it.
One failure alone says little. Several devices that report the same failure decide against the
candidate once it is unlikely that all of them failed by themselves. That likelihood follows from
each device's history. Two devices that have never failed where others succeeded are enough; it
takes three or four unreliable ones. Right outputs prove a candidate good, since no device computes
them by accident.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum

import attrs
from chameleon_core.measurement import FailureKind, Measurement

_GONE = frozenset({FailureKind.DEVICE_LOST, FailureKind.CRASH})
"""One event seen in two ways: the client loses its device, or crashes along with it."""

_AWAITED = _GONE | {FailureKind.RUN_TIMEOUT}
"""Failures after which it has to be seen whether the device still works."""

_USUAL, _USUAL_RUNS = 0.03, 20.0
"""Share of candidates that fail by a device's fault before anything is known, and how many runs
that counts for."""

_CHANCE = 0.001
"""A candidate is to blame where its failures have at most this chance of being the devices' own.
Two failures on devices that nothing is known of do; one on a device that is known to fail and one
on another do not. In a fleet whose devices lose one candidate in 20, two failures would blame one
good candidate in 400."""

_CHANCE_ALONE = 0.06
"""The same chance if no other device can be asked: one failure is enough on a device that rarely
fails, or that nothing is known of."""


class Verdict(Enum):
    """The next step with a candidate that is not done with."""

    AGAIN = "again"
    WAIT = "wait"


@attrs.define(kw_only=True, eq=False)
class Reliability:
    """How often a device fails by its own fault.

    Attributes:
        faults: candidates that failed on it and succeeded elsewhere.
        successes: candidates that succeeded on it.
        fleet: the same of all devices together, which a device resembles until it has shown that
            it does not; None if it is not known.
    """

    faults: int = 0
    successes: int = 0
    fleet: Reliability | None = None

    @property
    def fault_rate(self) -> float:
        """The probability that a good candidate fails on it.

        That is the share of those that did, shrunk towards the usual one.
        """
        usual = _USUAL if self.fleet is None else self.fleet.fault_rate
        return (_USUAL_RUNS * usual + self.faults) / (_USUAL_RUNS + self.faults + self.successes)

    def failed(self) -> None:
        """A candidate failed on it and succeeded elsewhere."""
        self.faults += 1
        if self.fleet is not None:
            self.fleet.failed()

    def succeeded(self) -> None:
        """A candidate succeeded on it."""
        self.successes += 1
        if self.fleet is not None:
            self.fleet.succeeded()


@attrs.define(kw_only=True, eq=False)
class FailureReport:
    """One failure of a candidate on one device.

    Attributes:
        device: the device's name.
        failure: the candidate's measurement if no other device were asked.
        outside: whether somebody else ended the worker, which says nothing about anybody.
        back: whether the device works again; None while that is awaited.
        reliability: the device's history, as it is known when a verdict is found.
        identity: which device the name stood for.
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
        """Whether both report the same failure."""
        if self.outside or other.outside:
            return False
        return self.kind is other.kind or {self.kind, other.kind} <= _GONE


def awaited(kind: FailureKind) -> bool:
    """Whether it has to be seen if the device still works after such a failure."""
    return kind in _AWAITED


def conclusive(reports: Sequence[FailureReport], *, elsewhere: bool = True) -> bool:
    """Whether several failures alike are unlikely to be the devices' own.

    Args:
        reports: of the failures; at least one.
        elsewhere: whether there is a device that can be asked besides. While there is, a device
            that fails twice counts once.
    """
    rates = [report.reliability.fault_rate for report in reports]
    if not elsewhere:
        return min(rates) <= _CHANCE_ALONE or math.prod(rates) <= _CHANCE
    distinct = {report.identity: report.reliability.fault_rate for report in reports}
    return math.prod(distinct.values()) <= _CHANCE


def judge(
    reports: Sequence[FailureReport], *, tries: int, elsewhere: bool
) -> Measurement | Verdict:
    """Decide what becomes of a candidate that has failed, so far everywhere.

    Args:
        reports: one for each failure, oldest first; at least one.
        tries: how often it may still be tried.
        elsewhere: whether there is a device that it has not failed on.

    Returns:
        Its measurement, or what to do first.
    """
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
    """The candidate's failure, if devices that work without it do not survive it."""
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
    """The failure of a candidate whose tries are used up without two that agree."""
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
