"""Medians with bootstrap intervals, for values that may be censored (infinite)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

RESAMPLES = 2000
"""The number of bootstrap resamples.

With this number, the ends of a 95 % interval are stable to about a percent.
"""

CONFIDENCE = 0.95


@attrs.frozen(kw_only=True)
class Estimate:
    """A median over seeds or repeats, with its bootstrap interval.

    Attributes:
        median: The median; infinity if at least half of the values are censored.
        low: The lower end of the 95 % interval; NaN if there are fewer than two values.
        reached: The number of values that are not censored.
    """

    median: float
    low: float
    high: float
    reached: int
    of: int

    def to_json(self) -> dict[str, Any]:
        """The attributes as JSON values, null for infinity and NaN."""
        return {name: finite(value) for name, value in attrs.asdict(self).items()}


def estimate(values: Sequence[float]) -> Estimate:
    """The median of some values with its 95 % interval by the percentile bootstrap.

    Args:
        values: At least one value, one per seed or repeat; infinity if it is censored.
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


def shift_interval(values: Sequence[float], confidence: float) -> tuple[float, float, float]:
    """The Hodges-Lehmann estimate of the center of values, and its distribution-free interval.

    The interval inverts Wilcoxon's signed-rank test (Hollander, Wolfe and Chicken, Nonparametric
    Statistical Methods, section 3.3). It holds for any symmetric distribution. With too few values
    for the confidence, the ends are infinite.

    Args:
        values: At least one value.
        confidence: The confidence of the interval, such as 0.95.
    """
    array = np.asarray(values, float)
    rows, columns = np.triu_indices(len(array))
    means = np.sort((array[rows] + array[columns]) / 2)
    shares = np.ones(1)
    for rank in range(1, len(array) + 1):
        shares = np.convolve(shares, [0.5, *[0.0] * (rank - 1), 0.5])
    excluded = int(np.sum(np.cumsum(shares) <= (1 - confidence) / 2))
    if not excluded:
        return float(np.median(means)), -math.inf, math.inf
    return float(np.median(means)), float(means[excluded - 1]), float(means[-excluded])


def estimated(values: Iterable[float]) -> dict[str, Any] | None:
    """The median of some searches' values with its interval, as JSON values.

    Args:
        values: One value per search. NaN means unknown, and infinity means censored.
    """
    known = [value for value in values if not math.isnan(value)]
    return estimate(known).to_json() if known else None


def resampled_medians(values: Floats, rng: np.random.Generator) -> Floats:
    """Medians of bootstrap resamples, shape (RESAMPLES,)."""
    rows = rng.integers(len(values), size=(RESAMPLES, len(values)))
    medians: Floats = np.median(values[rows], axis=1)
    return medians


def interval(drawn: Floats) -> tuple[float, float]:
    """The ends of the interval that contains the central 95 % of the given values.

    The ends are values themselves, without interpolation, so that infinity is allowed.

    Args:
        drawn: The values, such as medians of bootstrap samples, shape (n,).
    """
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn, [tail, 1 - tail], method="inverted_cdf")
    return float(low), float(high)


def finite(value: float) -> float | None:
    """Convert infinity and NaN to None, because JSON does not have them."""
    return value if math.isfinite(value) else None
