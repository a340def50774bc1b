"""Curves, strips and bars, as SVG and HTML that need no library to be looked at.

A run ends with its page, so that drawing takes milliseconds: coordinates are worked out here, the
elements are in ``templates``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import attrs
from markupsafe import Markup

from chameleon_bench.pages.rendering import rendered

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8a6d3b")
"""Okabe and Ito's palette, which colour-blind readers can tell apart, and a brown."""

_TICKS = 5
_GOLDEN = 137.5
"""Degrees between the hues of neighbours: any few of them are spread over the wheel."""
_BAR = 180.0
"""Pixels of a bar that fills its cell."""
_STRIP, _FIELD = 22, (3.0, 16.0)
"""Height of a strip in pixels, and the least and greatest width of a turn in it."""


@attrs.frozen(kw_only=True)
class Level:
    """A horizontal line to compare with.

    Attributes:
        name: written beside it.
        value: where it is.
    """

    name: str
    value: float


@attrs.frozen(kw_only=True)
class Line:
    """Values that hold until the next one, as a line of steps.

    Attributes:
        name: what it is of.
        at: where each value begins, rising, shape (n,).
        values: shape (n,); not finite where there is none.
        low: lower ends of a band around it, shape (n,), all finite; empty where there is none.
        high: upper ends of the band, likewise.
        colour: of the line.
    """

    name: str
    at: Sequence[float]
    values: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    colour: str = COLOURS[0]


def steps_figure(
    values: Sequence[float],
    best: Sequence[float],
    *,
    across: str,
    upwards: str,
    levels: Sequence[Level] = (),
) -> Markup:
    """What was found at each step as dots, and the best until then as a line.

    Args:
        values: one per step, the first one at 1; not finite where there is none.
        best: the best until each step; not finite before there is one.
        across: label of the horizontal axis.
        upwards: label of the vertical axis.
        levels: to compare with.

    Returns:
        An SVG element, or a sentence where there is nothing to draw.
    """
    finite = [value for value in (*values, *best) if math.isfinite(value)]
    if not finite:
        return Markup("<p class=note>Nothing has a time.</p>")
    top = max([*finite, *(level.value for level in levels)]) * 1.04
    count = max(len(values), len(best))
    line = Line(name="best so far", at=range(1, len(best) + 1), values=best)
    dots = [(step, value) for step, value in enumerate(values, start=1) if math.isfinite(value)]
    return lines_figure(
        [line],
        across=across,
        upwards=upwards,
        right=float(max(count, 2)),
        top=top,
        dots=dots,
        levels=levels,
    )


def lines_figure(
    lines: Sequence[Line],
    *,
    across: str,
    upwards: str,
    right: float,
    top: float,
    dots: Sequence[tuple[float, float]] = (),
    levels: Sequence[Level] = (),
) -> Markup:
    """Lines of steps over axes that begin at 0, as an SVG element.

    Args:
        lines: with their bands.
        across: label of the horizontal axis.
        upwards: label of the vertical axis.
        right: where the horizontal axis ends, positive.
        top: where the vertical axis ends, positive.
        dots: points, each (across, upwards).
        levels: to compare with.
    """
    return rendered(
        "figure.svg",
        frame=_Frame(right=right, top=top),
        upward_ticks=ticks(top),
        across_ticks=ticks(right),
        across=across,
        upwards=upwards,
        lines=lines,
        dots=dots,
        dot_colour=COLOURS[5],
        levels=levels,
    )


def strip_figure(names: Sequence[str]) -> Markup:
    """A sequence of turns, one coloured field each, in the order in which they came.

    Args:
        names: whose turn it was.
    """
    least, greatest = _FIELD
    wide = round(max(least, min(greatest, 1000.0 / max(len(names), 1))), 1)
    colours = colours_of(names)
    fields = [
        {"x": round(place * wide, 1), "width": wide, "colour": colours[name], "name": name}
        for place, name in enumerate(names)
    ]
    return rendered("strip.svg", fields=fields, width=math.ceil(wide * len(names)), height=_STRIP)


def bar(parts: Mapping[str, float], whole: float) -> Markup:
    """A bar of coloured parts, for a cell of a table.

    Args:
        parts: lengths by name, at most as many as there are colours.
        whole: the length that fills the cell.
    """
    made = [
        {"name": name, "colour": colour, "width": round(_BAR * part / whole if whole else 0.0, 1)}
        for (name, part), colour in zip(parts.items(), COLOURS, strict=False)
    ]
    return rendered("bar.html", parts=made)


def colours_of(names: Iterable[str]) -> dict[str, str]:
    """A colour for each distinct name, in order of appearance."""
    distinct = list(dict.fromkeys(names))
    if len(distinct) <= len(COLOURS):
        return dict(zip(distinct, COLOURS, strict=False))
    # Neighbours in the list are far apart on the wheel.
    return {
        name: f"hsl({_GOLDEN * place % 360:.0f} 65% {38 + 16 * (place % 3)}%)"
        for place, name in enumerate(distinct)
    }


def ticks(top: float) -> list[float]:
    """Round numbers from 0 up to a positive one, about five of them."""
    rough = top / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * nice for nice in (1, 2, 5, 10) if power * nice >= rough)
    return [round(step * place, 12) for place in range(int(top / step + 1e-9) + 1)]


@attrs.frozen(kw_only=True)
class _Frame:
    """Where numbers are in a figure whose axes begin at 0; coordinates are pixels.

    Attributes:
        right: the number at the right edge.
        top: the number at the upper edge.
    """

    right: float
    top: float
    width: int = 520
    height: int = 230
    x0: int = 58
    x1: int = 508
    y0: int = 10
    y1: int = 192

    def x(self, value: float) -> float:
        return round(self.x0 + (self.x1 - self.x0) * value / self.right, 1)

    def y(self, value: float) -> float:
        return round(self.y1 - (self.y1 - self.y0) * value / self.top, 1)

    def dots(self, points: Iterable[tuple[float, float]]) -> str:
        """A path of points."""
        return "".join(f"M{self.x(across)} {self.y(upwards)}h0" for across, upwards in points)

    def stairs(self, at: Sequence[float], values: Sequence[float]) -> str:
        """A path that stays at each value until the next one."""
        words: list[str] = []
        for step, value in zip(at, values, strict=True):
            if math.isfinite(value):
                x, y = self.x(step), self.y(value)
                words.append(f"H{x}V{y}" if words else f"M{x} {y}")
        return "".join(words)

    def band(self, line: Line) -> str:
        """A path around a line's band: along its upper ends, and back along the lower ones."""
        back = "".join(
            f"V{self.y(value)}H{self.x(step)}"
            for step, value in zip(reversed(line.at), reversed(line.low), strict=True)
        )
        return f"{self.stairs(line.at, line.high)}{back}Z"
