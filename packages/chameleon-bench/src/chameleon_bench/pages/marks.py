"""The marks of a still plot as SVG: bars, points, lines and bands.

Bars and words are placed by shares of the plot. What is a path lies in a grid that is stretched
over the plot, while the width of its strokes stays in pixels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from chameleon_bench.pages.axes import Axis

_GRID = 2000
"""Units of the grid's width and height: finer than any screen's pixels."""

_SHADES = 8
"""Steps of a scale of colours."""

_DASHES = {"dash": "7 5", "dot": "2 4"}
_LINE_ENDS = {"circle": "round", "square": "square"}

Trace = Mapping[str, Any]
Places = NDArray[np.float64]


def paint(colour: str) -> tuple[str, float]:
    """A colour of the style sheet as CSS, and its opacity: ``--c1/26`` is mostly transparent."""
    name, _, opacity = colour.partition("/")
    return (f"var({name})" if name.startswith("--") else name), int(opacity or "ff", 16) / 255


def path(way: str, colour: str, *, width: float = 0.0, opacity: float = 1.0, more: str = "") -> str:
    """A path in the grid.

    Args:
        way: its commands.
        colour: as ``paint`` takes it.
        width: of its stroke in pixels; it is filled if 0.
        opacity: of all of it.
        more: attributes.
    """
    css, share = paint(colour)
    look = f'style="stroke:{css}" stroke-width="{width:g}"' if width else f'style="fill:{css}"'
    drawn = f'<path d="{way}" {look} opacity="{opacity * share:.2g}"{more}/>'
    return Markup(drawn)  # noqa: S704 - numbers and names of colours


def text(x: float, y: float, words: str, more: str) -> Markup:
    """Words at a place; ``more`` are attributes that shift them by pixels."""
    opening = f'<text x="{x:.2%}" y="{y:.2%}" {more}>'
    return Markup("{}{}</text>").format(Markup(opening), words)  # noqa: S704 - of numbers


def grid(paths: Sequence[str]) -> Markup:
    """Paths, stretched over the plot."""
    stretched = '<svg viewBox="0 0 {0} {0}" preserveAspectRatio="none">{1}</svg>'
    return Markup(stretched).format(_GRID, Markup("").join(paths))  # noqa: S704 - a constant


def bars(
    trace: Trace, x: Axis, y: Axis, *, begins: Places, lane: int, lanes: int
) -> Iterator[Markup]:
    """Bars that lie, and the words at their ends.

    Args:
        trace: its arrays are values.
        x: the axis of lengths.
        y: that of words.
        begins: where each bar begins, a value of ``x``.
        lane: its place among the bars of one word.
        lanes: how many there are side by side.
    """
    thick = (y.band[1] - y.band[0]) / lanes / len(y.names)
    middles = y.places(trace["y"]) + (lane - (lanes - 1) / 2) * thick
    lengths = np.nan_to_num(trace["x"])
    words = list(trace.get("text", ()))
    if "texttemplate" in trace:
        words = [f"{length:.0%}" for length in lengths]
    bar = Markup('<rect x="{:.2%}" y="{:.2%}" width="{:.2%}" height="{:.2%}" style="fill:{}"/>')
    css, _ = paint(trace["marker"]["color"])
    ends = zip(middles, x.places(begins), x.places(begins + lengths), strict=True)
    for place, (middle, start, end) in enumerate(ends):
        if np.isnan(middle):
            continue
        yield bar.format(start, middle - 0.46 * thick, end - start, 0.92 * thick, css)
        if words:
            yield text(end, middle, words[place], "dx=5 dy=.35em class=small")


def line(trace: Trace, before: Trace | None, x: Axis, y: Axis) -> str:
    """A line, or the band between it and the line of another trace.

    Args:
        trace: its arrays are values.
        before: the trace before it.
        x: the axis across.
        y: the one upwards.
    """
    steps = trace["line"].get("shape") == "hv"
    way = _way(x.places(trace["x"]), y.upwards(trace["y"]), steps=steps)
    if trace.get("fill") == "tonexty" and before is not None:
        lower = _way(x.places(before["x"]), y.upwards(before["y"]), steps=steps, back=True)
        return path(way + lower, trace["fillcolor"])
    return path(way, trace["line"]["color"], width=trace["line"]["width"], more=dashes(trace))


def dashes(trace: Trace) -> str:
    """The attribute of a line that is not drawn through."""
    dash = trace["line"].get("dash")
    return f' stroke-dasharray="{_DASHES[dash]}"' if dash else ""


def errors(trace: Trace, across: Places, y: Axis) -> str:
    """A line from the lower to the upper end of what each point may be."""
    error = trace["error_y"]
    highs = y.upwards(trace["y"] + error["array"])
    lows = y.upwards(trace["y"] - error["arrayminus"])
    ends = zip(_units(across), _units(highs), _units(lows), strict=True)
    way = "".join(f"M{at} {high}V{low}" for at, high, low in ends)
    return path(way, trace["marker"]["color"], width=error["thickness"])


def points(marker: Trace, across: Places, up: Places) -> Iterator[tuple[str, bool]]:
    """Points, and whether each piece belongs into the grid.

    Round and square ones are the ends of short lines, a path for each colour.

    Args:
        marker: of the trace; its colour may be values on a scale.
        across: places, shape (n,).
        up: likewise.
    """
    end = _LINE_ENDS.get(marker.get("symbol", "circle"))
    opacity = marker.get("opacity", 1.0)
    if end is None:
        css, _ = paint(marker["color"])
        use = Markup('<use href="#{}" x="{:.2%}" y="{:.2%}" style="fill:{}" opacity="{}"/>')
        for place in zip(across, up, strict=True):
            yield use.format(marker["symbol"], *place, css, opacity), False
        return
    for colour, rows in _coloured(marker, len(across)):
        ends = zip(_units(across[rows]), _units(up[rows]), strict=True)
        # Square ends of a line without any length are not seen on paper.
        length = 0 if end == "round" else 1
        way = "".join(f"M{a} {b}h{length}" for a, b in ends)
        look = f' stroke-linecap="{end}"'
        yield path(way, colour, width=marker["size"], opacity=opacity, more=look), True


def shades(marker: Trace) -> list[str]:
    """The colours of a scale, in steps."""
    first, last = (f"var({name})" for _, name in marker["colorscale"])
    parts = [round(100 * step / (_SHADES - 1)) for step in range(_SHADES)]
    return [f"color-mix(in srgb,{last} {part}%,{first})" for part in parts]


def _coloured(marker: Trace, count: int) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Which points have which colour."""
    if "colorscale" not in marker:
        yield marker["color"], np.arange(count)
        return
    shares = (marker["color"] - marker["cmin"]) / (marker["cmax"] - marker["cmin"])
    steps = np.rint(np.clip(shares, 0.0, 1.0) * (_SHADES - 1))
    # The best ones lie over the others.
    for step, colour in reversed(list(enumerate(shades(marker)))):
        rows = np.flatnonzero(steps == step)
        if len(rows):
            yield colour, rows


def _units(places: Places) -> list[int]:
    """Places in the grid."""
    return [round(place) for place in (_GRID * places).tolist()]


def _way(across: Places, up: Places, *, steps: bool, back: bool = False) -> str:
    """Commands along points; steps go across before they go up."""
    seen = np.isfinite(across) & np.isfinite(up)
    ends = list(zip(_units(across[seen]), _units(up[seen]), strict=True))
    step = "H{0}V{1}" if steps else "L{0} {1}"
    if back:
        ends, step = ends[::-1], "V{1}H{0}" if steps else step
    begin = "L{0} {1}" if back else "M{0} {1}"
    return "".join((step if at else begin).format(*end) for at, end in enumerate(ends))
