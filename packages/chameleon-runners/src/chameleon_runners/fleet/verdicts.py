"""Whose fault a failure is: the candidate's, or the device's that it ran on.

A kernel may crash its device, and a device may fail, lie or vanish whatever runs on it. One
failure alone says little; two devices that agree settle it (three where one of them is known to
fail by itself), and right outputs prove a candidate good: nobody computes them by accident.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import attrs
from chameleon_core.measurement import FailureKind, Measurement

_GONE = frozenset({FailureKind.DEVICE_LOST, FailureKind.CRASH})
"""Two ways to see one thing: a device lost by its client, a client that crashed with it."""

_AWAITED = _GONE | {FailureKind.RUN_TIMEOUT}
"""Failures after which it has to be seen whether the device still works."""


class Verdict(Enum):
    """What to do with a candidate that is not done with."""

    AGAIN = "again"
    WAIT = "wait"


@attrs.define(kw_only=True, eq=False)
class Opinion:
    """What one device made of a candidate that failed there.

    Attributes:
        device: the device's name.
        failure: the candidate's measurement if this were the last word.
        outside: whether somebody else ended the worker, which says nothing about anybody.
        back: whether the device works again; None while that is awaited.
        trusted: whether the device has not failed before where others succeeded.
    """

    device: str
    failure: Measurement
    outside: bool = False
    back: bool | None = True
    trusted: bool = True

    @property
    def kind(self) -> FailureKind:
        """The kind of failure."""
        return self.failure.failure or FailureKind.RUN_ERROR

    def agrees(self, other: Opinion) -> bool:
        """Whether both say the same."""
        if self.outside or other.outside:
            return False
        return self.kind is other.kind or {self.kind, other.kind} <= _GONE


def awaited(kind: FailureKind) -> bool:
    """Whether it has to be seen if the device still works after such a failure."""
    return kind in _AWAITED


def judge(opinions: Sequence[Opinion], *, tries: int, elsewhere: bool) -> Measurement | Verdict:
    """What becomes of a candidate that has failed, so far everywhere.

    Args:
        opinions: one for each failure, oldest first; at least one.
        tries: how often it may still be tried.
        elsewhere: whether there is a device that has no opinion yet.

    Returns:
        Its measurement, or what to do first.
    """
    last = opinions[-1]
    agreeing = [opinion for opinion in opinions if opinion.agrees(last)]
    again: Measurement | Verdict = Verdict.AGAIN if tries > 0 else _last_word(opinions)
    if last.outside or last.kind is FailureKind.INVALID:
        return again if last.outside else last.failure
    enough = 2 if all(opinion.trusted for opinion in agreeing) else 3
    if last.kind not in _AWAITED:
        settled = len(agreeing) >= enough or not elsewhere
        return last.failure if settled else again
    if len(agreeing) < enough and (tries > 0 or len(agreeing) == 1):
        return again
    if any(opinion.back for opinion in agreeing):
        return _blamed(agreeing)
    if any(opinion.back is None for opinion in agreeing):
        return Verdict.WAIT
    return again


def _blamed(agreeing: Sequence[Opinion]) -> Measurement:
    """The candidate's failure, where devices that work without it do not survive it."""
    last = agreeing[-1]
    if last.kind not in _GONE:
        return last.failure
    names = " and ".join(dict.fromkeys(opinion.device for opinion in agreeing))
    words = next((o for o in agreeing if o.kind is FailureKind.CRASH), last).failure.message
    return attrs.evolve(
        last.failure,
        failure=FailureKind.CRASH,
        message=f"{len(agreeing)} times the device was lost while this ran, on {names}: {words}",
    )


def _last_word(opinions: Sequence[Opinion]) -> Measurement:
    """The failure of a candidate whose tries are used up without two that agree."""
    for opinion in reversed(opinions):
        if not opinion.outside and opinion.kind is not FailureKind.DEVICE_LOST:
            if opinion.back is False:
                break
            return opinion.failure
    last = opinions[-1]
    if last.outside:
        return last.failure
    names = ", ".join(dict.fromkeys(opinion.device for opinion in opinions))
    return attrs.evolve(
        last.failure,
        failure=FailureKind.DEVICE_LOST,
        message=f"every device that it was tried on was lost ({names}): {last.failure.message}",
    )
