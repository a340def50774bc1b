"""Whose fault a failure is: the candidate's, or the device's that it ran on.

A kernel may crash its device, and a device may fail, lie or vanish whatever runs on it. One
failure alone says little; devices that agree settle it, as soon as it is unlikely that all of them
failed by themselves. How likely that is, each device's history tells: two that have not failed
yet where others succeeded are enough, of poor witnesses it takes three or four. Right outputs
prove a candidate good: nobody computes them by accident.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum

import attrs
from chameleon_core.measurement import FailureKind, Measurement

_GONE = frozenset({FailureKind.DEVICE_LOST, FailureKind.CRASH})
"""Two ways to see one thing: a device lost by its client, a client that crashed with it."""

_AWAITED = _GONE | {FailureKind.RUN_TIMEOUT}
"""Failures after which it has to be seen whether the device still works."""

_USUAL, _USUAL_RUNS = 0.03, 20.0
"""Share of candidates that fail by a device's fault before anything is known, and how many runs
that counts for."""

_DOUBT = 0.001
"""Failures less likely than this to be the devices' own are the candidate's: two by devices that
nothing is known of are, those of a device that is known to fail and of another are not. In a fleet
whose devices lose one candidate in 20, two would blame one good candidate in 400."""

_DOUBT_ALONE = 0.06
"""Where no other device can be asked, one that rarely fails is believed: that nothing is known of
is enough."""


class Verdict(Enum):
    """What to do with a candidate that is not done with."""

    AGAIN = "again"
    WAIT = "wait"


@attrs.define(kw_only=True, eq=False)
class Witness:
    """How far a device's word can be trusted.

    Attributes:
        faults: candidates that failed on it and succeeded elsewhere.
        successes: candidates that succeeded on it.
        fleet: the same of all devices together, which a device resembles until it has shown that
            it does not; None where it is not known.
    """

    faults: int = 0
    successes: int = 0
    fleet: Witness | None = None

    @property
    def doubt(self) -> float:
        """How likely a good candidate fails on it: the share that did, drawn to the usual."""
        usual = _USUAL if self.fleet is None else self.fleet.doubt
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
class Opinion:
    """What one device made of a candidate that failed there.

    Attributes:
        device: the device's name.
        failure: the candidate's measurement if this were the last word.
        outside: whether somebody else ended the worker, which says nothing about anybody.
        back: whether the device works again; None while that is awaited.
        witness: the device's history, as it is known when a verdict is found.
        identity: which device the name stood for.
    """

    device: str
    failure: Measurement
    outside: bool = False
    back: bool | None = True
    witness: Witness = attrs.field(factory=Witness)
    identity: str = attrs.field(default=attrs.Factory(lambda self: self.device, takes_self=True))

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


def convincing(opinions: Sequence[Opinion], *, elsewhere: bool = True) -> bool:
    """Whether devices that agree are unlikely to be wrong about a candidate.

    Args:
        opinions: theirs; at least one.
        elsewhere: whether there is a device that can be asked besides. While there is, a device
            that says the same twice has said it once.
    """
    doubts = [opinion.witness.doubt for opinion in opinions]
    if not elsewhere:
        return min(doubts) <= _DOUBT_ALONE or math.prod(doubts) <= _DOUBT
    distinct = {opinion.identity: opinion.witness.doubt for opinion in opinions}
    return math.prod(distinct.values()) <= _DOUBT


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
    if last.kind not in _AWAITED:
        return last.failure if convincing(agreeing, elsewhere=elsewhere) else again
    unsure = len(agreeing) == 1 or not convincing(agreeing, elsewhere=elsewhere)
    if unsure and (tries > 0 or len(agreeing) == 1):
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
