"""Finds 8-bit ranges of tensors: by extremes, percentiles and least squares.

A real number is ``scale * (q - zero_point)`` (Jacob et al., arXiv 1712.05877, section 2.1), so that
zero, as in padding, is exact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from chameleon_core.plugin_api import ConfigError
from chameleon_tvm.api import STORAGE, UINT8
from numpy.typing import NDArray

_BINS = 2048
"""Number of bins. Each step of eight bits has at least four bins, in any range."""

Floats = NDArray[np.float64]


class Histogram:
    """Counts of non-zero values in bins, whose width, a power of two, doubles on demand.

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
        """Add values to the histogram."""
        flat = np.asarray(values).reshape(-1)
        if not flat.size:
            return
        low_value, high_value = float(flat.min()), float(flat.max())
        if not math.isfinite(low_value) or not math.isfinite(high_value):
            number = "NaN" if math.isnan(low_value) or math.isnan(high_value) else "an infinity"
            raise ConfigError(
                f"there is {number} among the values of a tensor, which has no range then",
                hint="Look for it among the calibration inputs and the network's weights.",
            )
        zeros = int(flat.size - np.count_nonzero(flat))
        self.count += int(flat.size)
        if zeros == flat.size:
            return
        exponent = self._extend_bins(low_value, high_value)
        bins = np.floor(flat.astype(np.float64) * 2.0**-exponent).astype(np.int64)
        self._counts += np.bincount(bins - self._first, minlength=_BINS)
        self._counts[-self._first] -= zeros

    def _extend_bins(self, low_value: float, high_value: float) -> int:
        """Extend the bins so that they cover two values and zero."""
        self.low, self.high = min(self.low, low_value), max(self.high, high_value)
        # Two bins are spare, for rounding at both ends.
        _, exponent = math.frexp((self.high - self.low) / (_BINS - 2))
        if self._exponent is not None:
            exponent = max(exponent, self._exponent)
        first = math.floor(self.low * 2.0**-exponent)
        if self._exponent is not None:
            shift = exponent - self._exponent
            if shift or first != self._first:
                nonempty, counts = np.flatnonzero(self._counts), np.zeros_like(self._counts)
                bins = ((nonempty + self._first) >> shift) - first
                np.add.at(counts, bins, self._counts[nonempty])
                self._counts = counts
        self._exponent, self._first = exponent, first
        return exponent

    def bins(self) -> tuple[Floats, NDArray[np.int64]]:
        """The distribution of the values other than zero.

        Returns:
            The edges of n bins, of shape (n + 1,), and their counts, of shape (n,). n may be 0.
        """
        nonempty = np.flatnonzero(self._counts)
        if self._exponent is None or not nonempty.size:
            return np.zeros(1), np.zeros(0, np.int64)
        first, last = int(nonempty[0]), int(nonempty[-1]) + 1
        edges = np.arange(first, last + 1) + float(self._first)
        return np.ldexp(edges, self._exponent), self._counts[first:last]

    def percentile(self, percent: float) -> tuple[float, float]:
        """The range that remains if a share of the values is cut off at each end."""
        edges, counts = self.bins()
        if not counts.size:
            return 0.0, 0.0
        allowed = self.count * (1.0 - percent / 100.0)
        # Zeros are not counted, because every range contains them.
        below = np.concatenate([[0], np.cumsum(counts)])
        above = np.concatenate([[0], np.cumsum(counts[::-1])])
        low = float(np.interp(allowed, below, edges))
        high = float(np.interp(allowed, above, edges[::-1]))
        return min(0.0, max(low, self.low)), max(0.0, min(high, self.high))


LEVELS = STORAGE[UINT8].high
"""Number of steps between the least and the largest number of eight bits."""

MIN_MAX, LEAST_SQUARES = "minimum and maximum", "least squares"
PERCENTILES = (99.9, 99.99, 99.999)
"""Percentages of the values that lie below the upper end of a range, or above its lower end."""

_TINY = float(np.finfo(np.float32).tiny)
_FRACTIONS = 2.0 ** -(np.arange(33) / 8.0)
"""Clipping thresholds that least squares tries, as fractions of the largest value. They go down to
a sixteenth, each a twelfth below the previous one."""
_ROUNDS = 2
"""How often least squares searches for the best upper end and then for the best lower end."""


def _float32(value: float) -> float:
    return float(np.float32(value))


@attrs.frozen(kw_only=True)
class Affine:
    """A mapping between real numbers and unsigned 8-bit numbers, by a scale and a zero point.

    Attributes:
        scale: The size of a step, a float32 number above zero.
        zero_point: The 8-bit number that represents zero, from 0 to 255.
    """

    scale: float = attrs.field(converter=_float32)
    zero_point: int = attrs.field(
        converter=int, validator=[attrs.validators.ge(0), attrs.validators.le(LEVELS)]
    )

    @scale.validator
    def _check_scale(self, _: Any, value: float) -> None:
        if not (math.isfinite(value) and value > 0.0):
            raise ValueError(f"a scale must be a finite number above zero, not {value}")

    @classmethod
    def between(cls, low: float, high: float) -> Affine:
        """The mapping whose range contains two numbers and zero, but for half a step."""
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ConfigError(
                f"a range from {low} to {high} cannot be divided into steps",
                hint="Look for infinities and NaN among the calibration inputs and the weights.",
            )
        low, high = min(low, 0.0), max(high, 0.0)
        if low == high:
            return cls(scale=1.0, zero_point=0)
        # Halved, because the difference of two float64 numbers may overflow.
        scale = _float32(max(2.0 * ((high / 2.0 - low / 2.0) / LEVELS), _TINY))
        return cls(scale=scale, zero_point=min(LEVELS, round(-low / scale)))


def ranges_to_json(ranges: Mapping[str, Affine]) -> dict[str, list[float]]:
    """Ranges of tensors as JSON values, for ``ranges_from_json``."""
    return {name: [affine.scale, affine.zero_point] for name, affine in ranges.items()}


def ranges_from_json(ranges: Mapping[str, Sequence[Any]]) -> dict[str, Affine]:
    """The ranges of tensors that ``ranges_to_json`` wrote, by tensor name."""
    return {name: Affine(scale=scale, zero_point=zero) for name, (scale, zero) in ranges.items()}


def mean_squared_errors(histogram: Histogram, affines: Sequence[Affine]) -> Floats:
    """The mean squared errors of 8-bit mappings, of shape (affines,)."""
    # Values spread evenly over a bin. With ``u = x / scale + zero_point`` and its clipped rounding
    # n, the antiderivative of ``(u - n)^2`` is ``n / 12 + (u - n)^3 / 3``: 1/12 for each full step,
    # and the incomplete step.
    edges, counts = histogram.bins()
    if not counts.size:
        return np.zeros(len(affines))
    scales = np.array([affine.scale for affine in affines])[:, None]
    zeros = np.array([float(affine.zero_point) for affine in affines])[:, None]
    # Relative to the zero point, which changes the antiderivative by a constant only.
    steps = edges / scales
    nearest = np.clip(np.rint(steps), -zeros, LEVELS - zeros)
    primitive = nearest / 12.0 + (steps - nearest) ** 3 / 3.0
    width = edges[1] - edges[0]
    squares = np.diff(primitive, axis=1) * (scales**3 / width)
    errors: Floats = np.maximum(squares @ counts, 0.0) / histogram.count
    return errors


def candidate_ranges(histogram: Histogram) -> dict[str, Affine]:
    """Compute several 8-bit ranges for a tensor, one for each method, by the method's name."""
    if not histogram.count:
        raise ConfigError(
            "a tensor of the network never had a value, so that it has no range",
            hint="Calibrate with at least one batch, of inputs that are not empty.",
        )
    affines = {MIN_MAX: Affine.between(histogram.low, histogram.high)}
    for percent in PERCENTILES:
        affines[f"percentile {percent:g}"] = Affine.between(*histogram.percentile(percent))
    affines[LEAST_SQUARES] = _least_squares(histogram)
    return affines


def _least_squares(histogram: Histogram) -> Affine:
    """The range with the least mean squared error, a compromise of clipping and step size."""
    low, high = histogram.low, histogram.high
    best = Affine.between(low, high)
    for _ in range(_ROUNDS):
        for upper in (True, False):
            end = histogram.high if upper else histogram.low
            ends = [float(end * fraction) for fraction in _FRACTIONS]
            candidates_tried = [(low, bound) if upper else (bound, high) for bound in ends]
            affines = [Affine.between(*pair) for pair in candidates_tried]
            low_value = int(np.argmin(mean_squared_errors(histogram, affines)))
            (low, high), best = candidates_tried[low_value], affines[low_value]
    return best
