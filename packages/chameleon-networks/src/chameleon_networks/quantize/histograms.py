"""Histograms of values, to which batches are added while the memory stays the same."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from chameleon_core.errors import ConfigError
from numpy.typing import NDArray

_BINS = 2048
"""Number of bins. Each step of eight bits has at least four bins, in any range."""

Floats = NDArray[np.float64]


class Histogram:
    """Counts of values in bins whose width is a power of two.

    Each bin begins at a multiple of the width. If a value lies beyond the bins, the width doubles
    as often as needed, and neighbouring bins are merged. So only resolution is lost. Zeros are
    in no bin: after a ReLU, most values are zero, and zero is exact in any range.

    Attributes:
        count: Number of values, zeros included.
        low: The smallest value, or zero if all values are positive.
        high: The largest value, or zero if all values are negative.
    """

    def __init__(self) -> None:
        self.count = 0
        self.low = 0.0
        self.high = 0.0
        self._counts = np.zeros(_BINS, np.int64)
        self._first = 0
        self._exponent: int | None = None

    def add(self, values: NDArray[Any]) -> None:
        """Add values to the histogram.

        Args:
            values: An array of any shape, which may be empty.

        Raises:
            ConfigError: A value is infinite or NaN.
        """
        flat = np.asarray(values).reshape(-1)
        if not flat.size:
            return
        least, most = float(flat.min()), float(flat.max())
        if not math.isfinite(least) or not math.isfinite(most):
            number = "NaN" if math.isnan(least) or math.isnan(most) else "an infinity"
            raise ConfigError(
                f"there is {number} among the values of a tensor, which has no range then",
                hint="Look for it among the calibration inputs and the network's weights.",
            )
        zeros = int(flat.size - np.count_nonzero(flat))
        self.count += int(flat.size)
        if zeros == flat.size:
            return
        exponent = self._reach(least, most)
        bins = np.floor(flat.astype(np.float64) * 2.0**-exponent).astype(np.int64)
        self._counts += np.bincount(bins - self._first, minlength=_BINS)
        self._counts[-self._first] -= zeros

    def _reach(self, least: float, most: float) -> int:
        """Extend the bins so that they cover two values and zero.

        Args:
            least: The smaller value.
            most: The larger value.

        Returns:
            The width of a bin is 2 to this power.
        """
        self.low, self.high = min(self.low, least), max(self.high, most)
        # Two bins are kept for what lies on either side of a multiple of the width.
        _, wanted = math.frexp((self.high - self.low) / (_BINS - 2))
        if self._exponent is not None:
            wanted = max(wanted, self._exponent)
        first = math.floor(self.low * 2.0**-wanted)
        if self._exponent is not None:
            shift = wanted - self._exponent
            if shift or first != self._first:
                occupied, counts = np.flatnonzero(self._counts), np.zeros_like(self._counts)
                bins = ((occupied + self._first) >> shift) - first
                np.add.at(counts, bins, self._counts[occupied])
                self._counts = counts
        self._exponent, self._first = wanted, first
        return wanted

    def bins(self) -> tuple[Floats, NDArray[np.int64]]:
        """The distribution of the values other than zero.

        Returns:
            The edges of n bins, of shape (n + 1,), and their counts, of shape (n,). n may be 0.
        """
        occupied = np.flatnonzero(self._counts)
        if self._exponent is None or not occupied.size:
            return np.zeros(1), np.zeros(0, np.int64)
        first, last = int(occupied[0]), int(occupied[-1]) + 1
        edges = np.arange(first, last + 1) + float(self._first)
        return np.ldexp(edges, self._exponent), self._counts[first:last]

    def percentile(self, percent: float) -> tuple[float, float]:
        """The range that remains if a share of the values is cut off at each end.

        Args:
            percent: Percentage of the values below the upper end, which is also the percentage of
                the values above the lower end.

        Returns:
            The lower and the upper end, between ``low`` and ``high``. Zero lies between the ends.
        """
        edges, counts = self.bins()
        if not counts.size:
            return 0.0, 0.0
        allowed = self.count * (1.0 - percent / 100.0)
        # Counting from the ends, zeros never matter: the range has to reach them anyway.
        below = np.concatenate([[0], np.cumsum(counts)])
        above = np.concatenate([[0], np.cumsum(counts[::-1])])
        low = float(np.interp(allowed, below, edges))
        high = float(np.interp(allowed, above, edges[::-1]))
        return min(0.0, max(low, self.low)), max(0.0, min(high, self.high))
