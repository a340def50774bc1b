"""Which configuration of a task is the best one: the fastest, or one of several that tie.

Two machines of one kind that measure the same candidates time them a little differently. Where the
fastest is taken, noise decides, and the machines run different programs: which costs speed where
they have to keep step, and deadlocks where programs allocate together
(https://github.com/flashinfer-ai/flashinfer/issues/3186, 4433 and 4459). So where a run shares its
records with others, times that nobody can tell apart are ties, and a fixed rule breaks them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable

from chameleon_core.measurement import Measurement

TIE = 0.02
"""Times this close to the lowest one, as a share of it, are ties."""

_NOTCH = 1.57
"""Medians differ (at about 5 %) where their notches, this many interquartile ranges over the root
of the number of repeats to either side, do not overlap (McGill, Tukey and Larsen 1978)."""


def best_of(measurements: Iterable[Measurement], *, shared: bool) -> Measurement | None:
    """The measurement of the configuration to choose; None where none succeeded.

    Args:
        measurements: of one task.
        shared: whether others may have to choose the same. Then it is, of all that tie with the
            fastest, the one whose knob indices come first, whatever was measured when and where;
            otherwise the fastest.
    """
    valid = [m for m in measurements if m.ok]
    fastest = min(valid, key=lambda m: m.cost, default=None)
    if fastest is None or not shared:
        return fastest
    return min((m for m in valid if ties(m, fastest)), key=lambda m: m.config)


def ties(one: Measurement, fastest: Measurement) -> bool:
    """Whether a time cannot be told from the lowest one.

    Intervals alone do not say so: on a busy machine they are as wide as the noise, and kernels of
    half the speed would tie. What disturbs a repeat makes it longer, so the shortest repeats have
    to agree as well.

    Args:
        one: a measurement that succeeded.
        fastest: the one with the lowest cost.
    """
    if one.cost <= (1.0 + TIE) * fastest.cost:
        return True
    if min(one.seconds) > (1.0 + TIE) * min(fastest.seconds):
        return False
    return one.cost - _half_width(one) <= fastest.cost + _half_width(fastest)


def _half_width(measurement: Measurement) -> float:
    """Half the interval around a median, in seconds; 0 where there is nothing to tell it by."""
    seconds = measurement.seconds
    if len(seconds) < 3:  # noqa: PLR2004 - quartiles need as many
        return 0.0
    low, _, high = statistics.quantiles(seconds, n=4, method="inclusive")
    return _NOTCH * (high - low) / math.sqrt(len(seconds))
