"""The axes of a still plot: where values are on them, and the ticks beside them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from chameleon_core.words import in_seconds
from numpy.typing import NDArray

_MARGIN = 0.03
"""Share of an axis that is left free beyond the outermost values."""

_STEPS = 6
"""Parts into which round values divide an axis at most, or a little more."""

_FEW, _MANY = 3, 8
"""Ticks of a logarithmic axis at 1, 2 and 5: with fewer or more of them others are drawn."""


@attrs.frozen(kw_only=True, eq=False)
class Axis:
    """An axis; places on it are shares of its length.

    Attributes:
        title: beside it.
        low: the value at its begin, a power of ten where ``log``.
        high: the value at its end likewise.
        log: whether it is logarithmic.
        names: its words, the first at its begin; empty for an axis of numbers.
        band: the begin and the end of a word's marks, as shares of the room that it has.
        ticks: places and what is written there.
    """

    title: str
    low: float = 0.0
    high: float = 1.0
    log: bool = False
    names: Sequence[str] = ()
    band: tuple[float, float] = (0.1, 0.9)
    ticks: Sequence[tuple[float, str]] = ()

    def places(self, values: Sequence[Any] | NDArray[Any]) -> NDArray[np.float64]:
        """Where values are; NaN for gaps and for words that the axis does not show."""
        if self.names:
            rank = {name: place for place, name in enumerate(self.names)}
            ranks = np.array([rank.get(str(value), np.nan) for value in values], np.float64)
            return (ranks + sum(self.band) / 2) / len(self.names)
        numbers = np.array(values, np.float64)
        if self.log:
            numbers = np.log10(np.where(numbers > 0.0, numbers, np.nan))
        shares: NDArray[np.float64] = (numbers - self.low) / (self.high - self.low)
        return np.where(np.isfinite(shares), shares, np.nan)

    def upwards(self, values: Sequence[Any] | NDArray[Any]) -> NDArray[np.float64]:
        """Where values are from the top on: numbers rise, and the first word is at the top."""
        places = self.places(values)
        return places if self.names else 1.0 - places


def axis_of(layout: Mapping[str, Any], column: str, values: Sequence[Any], *, zero: bool) -> Axis:
    """An axis as plotly.js is told of it.

    Args:
        layout: of the axis.
        column: its title where the layout has none.
        values: all that is to be seen on it.
        zero: whether it begins at 0 unless the layout says where.
    """
    title = layout.get("title", {}).get("text", column)
    if layout.get("type") == "category":
        names = list(layout.get("categoryarray") or dict.fromkeys(map(str, values)))
        if "range" in layout:
            names = names[: round(max(layout["range"]) + 0.5)]
        ticks = [((place + 0.5) / len(names), name) for place, name in enumerate(names)]
        return Axis(title=title, names=names, ticks=ticks)
    log = layout.get("type") == "log"
    low, high = layout.get("range") or _ends(values, log=log, zero=zero)
    axis = Axis(title=title, low=low, high=high, log=log)
    marked = _powers(low, high) if log else _steps(low, high)
    written = [(axis.places([value])[0], _word(value, layout)) for value in marked]
    return attrs.evolve(axis, ticks=written)


def _ends(values: Sequence[Any], *, log: bool, zero: bool) -> tuple[float, float]:
    """Where an axis begins and ends."""
    numbers = np.array(values, np.float64)
    numbers = numbers[np.isfinite(numbers)]
    if log:
        numbers = np.log10(numbers[numbers > 0.0])
    if not len(numbers):
        return 0.0, 1.0
    low, high = float(numbers.min()), float(numbers.max())
    low = min(0.0, low) if zero else low
    room = _MARGIN * (high - low) or 0.5
    return (low if zero and low >= 0.0 else low - room), high + room


def _steps(low: float, high: float) -> list[float]:
    """A few round values."""
    least = (high - low) / _STEPS
    power = 10.0 ** math.floor(math.log10(least))
    step = next(power * digit for digit in (1, 2, 5, 10) if power * digit >= least * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{step * place:.12g}") for place in range(first, last + 1)]


def _powers(low: float, high: float) -> list[float]:
    """Values of a logarithmic axis: 1, 2 and 5, or powers of ten, or any where there is no room."""
    powers = range(math.floor(low), math.ceil(high) + 1)
    digits = [digit * 10.0**power for power in powers for digit in (1, 2, 5)]
    inside = [value for value in digits if low <= math.log10(value) <= high]
    if len(inside) < _FEW:
        return _steps(10.0**low, 10.0**high)
    if len(inside) > _MANY:
        return [10.0**power for power in powers if low <= power <= high]
    return inside


def _word(value: float, layout: Mapping[str, Any]) -> str:
    if "ticksuffix" in layout:
        return in_seconds(value, ".3g") if value else "0"
    return f"{value:.0%}" if layout.get("tickformat", "").endswith("%") else f"{value:,.6g}"
