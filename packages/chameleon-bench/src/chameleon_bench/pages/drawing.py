"""Curves and bars as SVG and HTML, drawn here.

A run ends with its report, so this may take milliseconds and no library beyond the core's.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape

import attrs

from chameleon_bench.pages.html import COLOURS

_WIDTH, _HEIGHT = 520, 230
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 12, 10, 38
_TICKS = 5
_GOLDEN = 137.5
"""Degrees between the hues of neighbours: any few of them are spread over the wheel."""


@attrs.frozen(kw_only=True)
class Level:
    """A horizontal line to compare with.

    Attributes:
        name: written beside it.
        value: where it is.
    """

    name: str
    value: float


def steps_figure(
    values: Sequence[float],
    best: Sequence[float],
    *,
    across: str,
    upwards: str,
    levels: Sequence[Level] = (),
) -> str:
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
        return "<p class=note>Nothing has a time.</p>"
    top = max([*finite, *(level.value for level in levels)]) * 1.04
    count = max(len(values), len(best))
    frame = _Frame(right=float(max(count, 2)), top=top)
    parts = [*frame.axes(across, upwards)]
    for level in levels:
        y = frame.y(level.value)
        parts += [
            (
                f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}" stroke="#999" '
                'stroke-dasharray="4 3"/>'
            ),
            (
                f'<text x="{_WIDTH - _RIGHT}" y="{y - 3:.1f}" text-anchor="end" fill="#666">'
                f"{escape(level.name)}</text>"
            ),
        ]
    dots = "".join(
        f"M{frame.x(step)} {frame.y(value)}h0"
        for step, value in enumerate(values, start=1)
        if math.isfinite(value)
    )
    parts.append(
        f'<path d="{dots}" stroke="{COLOURS[5]}" stroke-width="3.2" stroke-linecap="round"/>'
    )
    parts.append(
        f'<path d="{_stairs(best, frame)}" fill="none" stroke="{COLOURS[0]}" stroke-width="1.8"/>'
    )
    return _svg(parts, _WIDTH, _HEIGHT)


def strip_figure(names: Sequence[str]) -> str:
    """A sequence of turns, one coloured field each, in the order in which they came.

    Args:
        names: whose turn it was.
    """
    wide, high = max(3.0, min(16.0, 1000.0 / max(len(names), 1))), 22
    colours = _colours(names)
    fields = [
        f'<rect x="{place * wide:.1f}" y="0" width="{wide:.1f}" height="{high}" '
        f'fill="{colours[name]}"><title>{place + 1}: {escape(name)}</title></rect>'
        for place, name in enumerate(names)
    ]
    return _svg(fields, math.ceil(wide * len(names)), high)


def legend(names: Iterable[str]) -> str:
    """Names with the colours that ``strip_figure`` gives them."""
    return " ".join(
        f'<span style="white-space:nowrap"><span style="color:{colour}">&#9632;</span> '
        f"{escape(name)}</span>"
        for name, colour in _colours(list(names)).items()
    )


def bar(parts: Mapping[str, float], whole: float) -> str:
    """A bar of coloured parts, for a cell of a table.

    Args:
        parts: lengths by name.
        whole: the length that fills the cell.
    """
    fields = "".join(
        f'<span title="{escape(name)}" style="display:inline-block;height:.8em;'
        f'width:{180.0 * part / whole if whole else 0.0:.1f}px;background:{colour}"></span>'
        for (name, part), colour in zip(parts.items(), COLOURS, strict=False)
    )
    return f'<span style="display:inline-block;width:182px;text-align:left">{fields}</span>'


@attrs.frozen(kw_only=True)
class _Frame:
    """Where numbers are in a figure whose axes begin at 0."""

    right: float
    top: float

    def x(self, value: float) -> float:
        return round(_LEFT + (_WIDTH - _LEFT - _RIGHT) * value / self.right, 1)

    def y(self, value: float) -> float:
        return round(_HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * value / self.top, 1)

    def axes(self, across: str, upwards: str) -> Iterable[str]:
        """Grid, ticks and labels."""
        for value in ticks(self.top):
            y = self.y(value)
            yield f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}" stroke="#e4e4e4"/>'
            yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'
        for value in ticks(self.right):
            yield (
                f'<text x="{self.x(value)}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">'
                f"{value:g}</text>"
            )
        middle = (_HEIGHT - _BOTTOM) / 2
        yield (
            f'<text x="{(_WIDTH + _LEFT) / 2:.0f}" y="{_HEIGHT - 6}" text-anchor="middle" '
            f'fill="#666">{escape(across)}</text>'
        )
        yield (
            f'<text transform="translate(12 {middle:.0f}) rotate(-90)" text-anchor="middle" '
            f'fill="#666">{escape(upwards)}</text>'
        )


def ticks(top: float) -> list[float]:
    """Round numbers from 0 up to a positive one, about five of them."""
    rough = top / _TICKS
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * nice for nice in (1, 2, 5, 10) if power * nice >= rough)
    return [round(step * place, 12) for place in range(int(top / step + 1e-9) + 1)]


def _stairs(best: Sequence[float], frame: _Frame) -> str:
    """A path that stays at each value until the next one."""
    words: list[str] = []
    for step, value in enumerate(best, start=1):
        if not math.isfinite(value):
            continue
        y = frame.y(value)
        words.append(f"H{frame.x(step)}V{y}" if words else f"M{frame.x(step)} {y}")
    return "".join(words)


def _colours(names: Sequence[str]) -> dict[str, str]:
    """A colour for each distinct name, in order of appearance."""
    distinct = list(dict.fromkeys(names))
    if len(distinct) <= len(COLOURS):
        return dict(zip(distinct, COLOURS, strict=False))
    # Neighbours in the list are far apart on the wheel.
    return {
        name: f"hsl({_GOLDEN * place % 360:.0f} 65% {38 + 16 * (place % 3)}%)"
        for place, name in enumerate(distinct)
    }


def _svg(parts: Iterable[str], width: int, height: int) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'font-size="11" font-family="sans-serif">{"".join(parts)}</svg>'
    )
