"""Medians with bootstrap intervals, of values some of which may be censored (infinite)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

RESAMPLES = 2000
"""Bootstrap resamples; with these the ends of a 95 % interval are stable to about a percent."""

CONFIDENCE = 0.95


@attrs.frozen(kw_only=True)
class Estimate:
    """A median over seeds, or turns, with its bootstrap interval.

    Attributes:
        median: infinity if at least half of the values are censored.
        low: lower end of the 95 % interval; NaN if there are fewer than two values.
        high: upper end.
        reached: values that are not censored.
        of: all values.
    """

    median: float
    low: float
    high: float
    reached: int
    of: int

    def to_json(self) -> dict[str, Any]:
        """As JSON values, null for infinity and NaN."""
        return {name: finite(value) for name, value in attrs.asdict(self).items()}


def estimate(values: Sequence[float]) -> Estimate:
    """The median and its 95 % percentile-bootstrap interval.

    Args:
        values: one per seed or turn, infinity if censored; not empty.
    """
    array = np.asarray(values, float)
    drawn = resampled_medians(array, np.random.default_rng(0)) if len(array) > 1 else None
    low, high = (math.nan, math.nan) if drawn is None else interval(drawn)
    return Estimate(
        # The mean of the two middle values is infinite if one of them is.
        median=float(np.median(array)),
        low=low,
        high=high,
        reached=int(np.isfinite(array).sum()),
        of=len(array),
    )


def estimated(values: Iterable[float]) -> dict[str, Any] | None:
    """The median as JSON values; None if every search failed, or nobody knows."""
    known = [value for value in values if not math.isnan(value)]
    return estimate(known).to_json() if known else None


def resampled_medians(values: Floats, rng: np.random.Generator) -> Floats:
    """Medians of bootstrap resamples, shape (RESAMPLES,)."""
    rows = rng.integers(len(values), size=(RESAMPLES, len(values)))
    medians: Floats = np.median(values[rows], axis=1)
    return medians


def interval(drawn: Floats) -> tuple[float, float]:
    """The ends of the central 95 %; drawn values themselves, so that infinity is allowed."""
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail], method="inverted_cdf")
    return float(low), float(high)


def finite(value: float) -> float | None:
    """The number, or None for infinity and NaN, which JSON has not."""
    return value if math.isfinite(value) else None
