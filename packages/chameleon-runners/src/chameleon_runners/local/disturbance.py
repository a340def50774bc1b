"""Disturbances of timing on this machine: others on its cores, and orders that do not last."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from chameleon_core.loop.end.comparison import TIE
from chameleon_core.stages import Disturbance
from chameleon_system.disturbance import CoreMeter

Looks = tuple[float, float]
"""The cost of one candidate as it was timed first, and as it was timed again, in seconds."""


class LocalDisturbance:
    """Adds up what disturbs the timing of one runner.

    Args:
        meter: of the cores that kernels run on.
    """

    def __init__(self, meter: CoreMeter) -> None:
        self.meter = meter
        self._pairs = self._kept = 0

    def ranked(self, candidates: Sequence[Looks]) -> None:
        """Take in the leaders of one batch, which were all timed twice."""
        pairs, agreeing = kept_order(candidates)
        self._pairs += pairs
        self._kept += agreeing

    @property
    def total(self) -> Disturbance:
        """All of it until now."""
        return Disturbance(
            core_seconds=self.meter.seconds,
            stolen_seconds=self.meter.stolen,
            others_seconds=self.meter.others,
            pairs=self._pairs,
            kept=self._kept,
        )


def kept_order(candidates: Sequence[Looks]) -> tuple[int, int]:
    """How many pairs could be told apart the second time, and how many were in that order before.

    Args:
        candidates: all pairs of these.
    """
    orders = [
        (first - other_first) * (again - other_again) > 0.0
        for (first, again), (other_first, other_again) in combinations(candidates, 2)
        if abs(again - other_again) > TIE * min(again, other_again)
    ]
    return len(orders), sum(orders)
