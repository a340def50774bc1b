"""Finds 8-bit ranges of tensors: by extremes, by percentiles and by least squares.

Jacob et al., arXiv 1712.05877, section 2.1: a real number is ``scale * (q - zero_point)``. The
integers ``q`` and ``zero_point`` have eight bits. So zero, which padding consists of, is exact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from chameleon_core.errors import ConfigError
from chameleon_tvm.types import STORAGE, UINT8

from chameleon_networks.quantize.histograms import Floats, Histogram

LEVELS = STORAGE[UINT8].high
"""Number of steps between the least and the largest number of eight bits."""

EXTREMES, LEAST_SQUARES = "minimum and maximum", "least squares"
PERCENTILES = (99.9, 99.99, 99.999)
"""Percentages of the values that lie below the upper end of a range, or above its lower end."""

_TINY = float(np.finfo(np.float32).tiny)
_FRACTIONS = 2.0 ** -(np.arange(33) / 8.0)
"""Clipping thresholds that least squares tries, as fractions of the largest value. They go down to
a sixteenth, each a twelfth below the previous one."""
_TURNS = 2
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
        """The mapping to 8-bit numbers whose range contains two numbers and zero.

        The zero point is rounded to an integer. So one of the two numbers may lie outside of the
        range by up to half a step.

        Args:
            low: The lower end of the range.
            high: The upper end of the range.

        Raises:
            ConfigError: A number is infinite or NaN.
        """
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ConfigError(
                f"a range from {low} to {high} cannot be divided into steps",
                hint="Look for infinities and NaN among the calibration inputs and the weights.",
            )
        low, high = min(low, 0.0), max(high, 0.0)
        if low == high:
            return cls(scale=1.0, zero_point=0)
        # Half of each, since the span of two numbers of float64 may be none.
        scale = _float32(max(2.0 * ((high / 2.0 - low / 2.0) / LEVELS), _TINY))
        return cls(scale=scale, zero_point=min(LEVELS, round(-low / scale)))


def ranges_to_json(ranges: Mapping[str, Affine]) -> dict[str, list[float]]:
    """Ranges of tensors as JSON values, for ``ranges_from_json``."""
    return {name: [affine.scale, affine.zero_point] for name, affine in ranges.items()}


def ranges_from_json(ranges: Mapping[str, Sequence[Any]]) -> dict[str, Affine]:
    """The ranges of tensors that ``ranges_to_json`` wrote, by tensor name."""
    return {name: Affine(scale=scale, zero_point=zero) for name, (scale, zero) in ranges.items()}


def mean_squared_errors(histogram: Histogram, affines: Sequence[Affine]) -> Floats:
    """The mean squared error of a tensor that is quantized to eight bits, for several mappings.

    Values count as spread evenly over their bin. Let ``u = x / scale + zero_point``, and ``n`` its
    rounding, clipped to 0 and 255. The antiderivative of ``(u - n)^2`` is ``n / 12 + (u - n)^3 /
    3``. Its first term adds the integral over a step of rounding, one twelfth, for each step. Its
    second term is for the incomplete step, or for values beyond the clipped range.

    Args:
        histogram: The distribution of the tensor's values.
        affines: The mappings.

    Returns:
        Mean squared errors, of shape (affines,). Zeros if the histogram is empty.
    """
    edges, counts = histogram.bins()
    if not counts.size:
        return np.zeros(len(affines))
    scales = np.array([affine.scale for affine in affines])[:, None]
    zeros = np.array([float(affine.zero_point) for affine in affines])[:, None]
    # Counted from the zero point on, which is the same but for a constant.
    steps = edges / scales
    nearest = np.clip(np.rint(steps), -zeros, LEVELS - zeros)
    primitive = nearest / 12.0 + (steps - nearest) ** 3 / 3.0
    width = edges[1] - edges[0]
    squares = np.diff(primitive, axis=1) * (scales**3 / width)
    errors: Floats = np.maximum(squares @ counts, 0.0) / histogram.count
    return errors


def candidates(histogram: Histogram) -> dict[str, Affine]:
    """Compute several 8-bit ranges for a tensor, one for each method, by the method's name.

    Args:
        histogram: The distribution of the tensor's values.

    Raises:
        ConfigError: The histogram is empty.
    """
    if not histogram.count:
        raise ConfigError(
            "a tensor of the network never had a value, so that it has no range",
            hint="Calibrate with at least one batch, of inputs that are not empty.",
        )
    affines = {EXTREMES: Affine.between(histogram.low, histogram.high)}
    for percent in PERCENTILES:
        affines[f"percentile {percent:g}"] = Affine.between(*histogram.percentile(percent))
    affines[LEAST_SQUARES] = _least_squares(histogram)
    return affines


def _least_squares(histogram: Histogram) -> Affine:
    """The range with the least mean squared error, a compromise of clipping and step size."""
    low, high = histogram.low, histogram.high
    best = Affine.between(low, high)
    for _ in range(_TURNS):
        for upper in (True, False):
            end = histogram.high if upper else histogram.low
            ends = [float(end * fraction) for fraction in _FRACTIONS]
            tried = [(low, bound) if upper else (bound, high) for bound in ends]
            affines = [Affine.between(*pair) for pair in tried]
            least = int(np.argmin(mean_squared_errors(histogram, affines)))
            (low, high), best = tried[least], affines[least]
    return best
