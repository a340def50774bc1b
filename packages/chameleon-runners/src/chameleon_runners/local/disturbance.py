"""Records how other programs disturb timing on this machine, and whether rankings are stable."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from chameleon_core.loop.end.comparison import TIE
from chameleon_core.stages import Disturbance
from chameleon_system.disturbance import CoreMeter

Looks = tuple[float, float]
"""A candidate's cost in seconds when it was timed first, and when it was timed again."""


class LocalDisturbance:
    """Counts how much other programs and noise disturb the timing of a runner, for its report.

    Args:
        meter: The object that measures how much the kernels' cores are used by other programs.
    """

    def __init__(self, meter: CoreMeter) -> None:
        self.meter = meter
        self._pairs = self._kept = 0

    def ranked(self, candidates: Sequence[Looks]) -> None:
        """Add the fastest candidates of one batch, which were timed twice."""
        pairs, agreeing = kept_order(candidates)
        self._pairs += pairs
        self._kept += agreeing

    @property
    def total(self) -> Disturbance:
        """The disturbance since the runner was made."""
        return Disturbance(
            core_seconds=self.meter.seconds,
            stolen_seconds=self.meter.stolen,
            others_seconds=self.meter.others,
            pairs=self._pairs,
            kept=self._kept,
        )


def kept_order(candidates: Sequence[Looks]) -> tuple[int, int]:
    """Count pairs of fast candidates that have the same order in a second timing.

    A low share means that rankings are not reliable.

    Args:
        candidates: First and second cost of each candidate, in seconds.

    Returns:
        The number of pairs whose second costs clearly differ, and the number of those pairs whose
        first costs had the same order.
    """
    orders = [
        (first - other_first) * (again - other_again) > 0.0
        for (first, again), (other_first, other_again) in combinations(candidates, 2)
        if abs(again - other_again) > TIE * min(again, other_again)
    ]
    return len(orders), sum(orders)
