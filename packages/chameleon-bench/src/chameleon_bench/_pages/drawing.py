"""Draws plots as SVG, which needs no script and can be printed.

The input is the same description of a plot that plotly.js draws on the page. A drawing stretches to
the width of the page, while letters, points and strokes keep their size. For this reason the
positions of bars and words are percentages of the plot's width and height. Lines and areas are SVG
paths, whose coordinates are stretched to the size of the plot. Their strokes are not stretched.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from chameleon_core.api import words
from markupsafe import Markup
from numpy.typing import NDArray

from chameleon_bench._pages.plots import Plot
from chameleon_bench._pages.run_record import Categories

MOST = 2000
"""The largest number of points that a drawing shows; ``plots.js`` has the same number."""

_TOP, _RIGHT, _BOTTOM, _LEFT = 28, 34, 46, 14
"""The margins around the axes in pixels; words beside the axes need more."""

_LETTER = 7.0
"""The width of a letter beside an axis in pixels."""

_LONG = 18
"""The number of letters beyond which a name stands above its bars, not beside them."""

_NAME = 16
"""The height in pixels of a name above its bars."""


@attrs.frozen(kw_only=True, eq=False)
class Drawing:
    """A plot of a page, drawn as SVG inside HTML.

    Attributes:
        about: A sentence about the number of drawn points; empty if all points are drawn.
    """

    html: Markup
    about: str


def drawing(plot: Plot) -> Drawing:
    """Draw a plot as SVG, which is shown before or without plotly.js."""
    traces = [_resolved(plot, trace) for trace in plot.traces]
    x, y = _axis(plot, traces, "x"), _axis(plot, traces, "y")
    above = max(map(len, y.names), default=0) > _LONG
    if above:
        top = _NAME * len(y.names) / (plot.height - _TOP - _BOTTOM)
        y = attrs.evolve(y, band=(top, 0.92))
    beside = 0 if above else max((len(word) for _, word in y.ticks), default=0)
    left = _LEFT + round(_LETTER * beside)
    counts = [0 if x.names or y.names else _count(trace) for trace in traces]
    share = min(1.0, MOST / max(1, sum(counts)))
    limits = [count if share == 1.0 else max(20, int(share * count)) for count in counts]
    shown = sum(map(min, counts, limits))
    pieces: list[str] = []
    paths: list[str] = []
    for index in range(len(traces)):
        for piece, in_grid in _marks(plot, traces, index, x, y, limit=limits[index]):
            (paths if in_grid else pieces).append(piece)
    html = Markup(
        '{}<div class=axes style="height:{}px;padding:{}px {}px {}px {}px"><svg role=img>'
        "<title>{}: {} over {}</title>{}{}{}</svg></div>"
    ).format(
        *(_legend(plot), plot.height, _TOP, _RIGHT, _BOTTOM, left, plot.title, y.title, x.title),
        *(Markup("").join(_ticks(x, y, left, above=above)), grid(paths)),
        Markup("").join(pieces),
    )
    note = f"{shown:,} of {sum(counts):,} points are drawn. The CSV has all."
    return Drawing(html=html, about=note if shown < sum(counts) else "")


def _resolved(plot: Plot, trace: Trace) -> dict[str, Any]:
    """A trace whose names of columns are replaced by the columns' values."""
    rows = np.array(trace["rows"]) if "rows" in trace else np.arange(plot.length)
    for key, wanted in (("where", True), ("skip", False)):
        if key in trace:
            header, word = trace[key]
            rows = rows[(_column(plot, header)[rows] == word) == wanted]

    def values(data: Any) -> Any:
        if isinstance(data, Mapping):
            if "column" in data:
                return _column(plot, data["column"])[rows]
            if "constant" in data:
                return np.full(len(rows), data["constant"])
            return {key: values(value) for key, value in data.items()}
        return data

    return {key: values(value) for key, value in trace.items()}


def _column(plot: Plot, header: str) -> NDArray[Any]:
    column = plot.columns[header]
    if isinstance(column, Categories):
        return np.array(column.words, object)
    words = any(isinstance(value, str) for value in column)
    return np.array(column, object if words else np.float64)


def _axis(plot: Plot, traces: Sequence[Trace], name: str) -> Axis:
    layout, first = plot.layout.get(f"{name}axis", {}), plot.traces[0]
    lengths = first["type"] == "bar" and name == "x"
    values = [value for trace in traces for value in trace[name]]
    if lengths and plot.layout.get("barmode") == "stack":
        values = list(sum(np.nan_to_num(trace[name]) for trace in traces))
    column = first[name].get("column", "") if isinstance(first[name], Mapping) else ""
    zero = lengths or layout.get("rangemode") == "tozero"
    return axis_of(layout, column, values, zero=zero)


def _count(trace: Trace) -> int:
    """The number of a trace's points of which some may be left out; 0 if all must be drawn."""
    return len(trace["y"]) if trace.get("mode") == "markers" and "rows" not in trace else 0


def _marks(
    plot: Plot, traces: Sequence[Trace], number: int, x: Axis, y: Axis, *, limit: int
) -> Iterator[tuple[str, bool]]:
    """The elements of one trace, each with whether it is a path of the grid."""
    trace = traces[number]
    if trace["type"] == "bar":
        stack = plot.layout.get("barmode") == "stack"
        begins = np.zeros(len(trace["x"]))
        for before in traces[:number] if stack else ():
            begins = begins + np.nan_to_num(before["x"])
        lanes = {"lane": 0, "lanes": 1} if stack else {"lane": number, "lanes": len(traces)}
        yield from ((bar, False) for bar in bars(trace, x, y, begins=begins, **lanes))
        return
    across, up = x.places(trace["x"]), y.upwards(trace["y"])
    if "scattergap" in plot.layout:
        # Points of different traces with the same word are side by side.
        width = (1.0 - plot.layout["scattergap"]) / len(x.names)
        across = across + width * ((number + 0.5) / len(traces) - 0.5)
    if "lines" in trace["mode"] and (trace["line"]["width"] or "fill" in trace):
        yield line(trace, traces[number - 1] if number else None, x, y), True
    if "error_y" in trace:
        yield errors(trace, across, y), True
    if "markers" in trace["mode"]:
        drawn = np.flatnonzero(np.isfinite(across) & np.isfinite(up))
        if limit:
            drawn = drawn[_thinned(np.array(trace["y"], np.float64)[drawn], limit)]
        marker = {"color": trace.get("line", {}).get("color"), **trace["marker"]}
        if "colorscale" in marker:
            marker["color"] = marker["color"][drawn]
        yield from points(marker, across[drawn], up[drawn])


def _thinned(values: NDArray[np.float64], limit: int) -> NDArray[np.int64]:
    """The indices of at most ``limit`` values: evenly spaced ones, and always the lowest."""
    if len(values) <= limit:
        return np.arange(len(values))
    lowest = np.argsort(values)[: limit // 10]
    evenly = np.arange(0, len(values), len(values) / (limit - len(lowest)))
    return np.union1d(lowest, evenly.astype(np.int64))


def _ticks(x: Axis, y: Axis, left: int, *, above: bool) -> Iterator[Markup]:
    """Lines across the plot, the words at them, and the titles of the axes."""
    level = Markup('<line x1="0%" x2="100%" y1="{0:.2%}" y2="{0:.2%}"/>')
    yield level.format(1.0)
    for tick, word in x.ticks:
        if not x.names:
            yield Markup('<line x1="{0:.2%}" x2="{0:.2%}" y1="0%" y2="100%"/>').format(tick)
        yield text(tick, 1.0, word, "dy=18 text-anchor=middle")
    for tick, word in y.ticks:
        if above:
            begin = tick - 0.5 / len(y.names)
            yield level.format(begin)
            yield text(0.0, begin + y.band[0] / 2 / len(y.names), word, "dy=.4em")
            continue
        at = tick if y.names else 1.0 - tick
        if not y.names:
            yield level.format(at)
        yield text(0.0, at, word, "dx=-7 dy=.35em text-anchor=end")
    yield text(0.5, 1.0, x.title, "dy=38 text-anchor=middle class=title")
    # The title is horizontal and above its axis, so that it is easy to read.
    yield text(0.0, 0.0, y.title, f"dx={8 - left} dy=-14 class=title")


def _legend(plot: Plot) -> Markup:
    """The legend of colours and symbols; empty if there is only one trace."""
    if not plot.layout.get("showlegend", len(plot.traces) > 1):
        return Markup("")
    scales = [trace["marker"] for trace in plot.traces if "colorscale" in trace.get("marker", {})]
    named = [trace for trace in plot.traces if trace.get("marker") not in scales]
    keys = [_key(trace) for trace in named if trace.get("showlegend", True)]
    keys += map(_scale, scales)
    return Markup("<p class=keys>{}</p>").format(Markup("").join(keys))


def _key(trace: Trace) -> Markup:
    """A sample of a trace's symbol, with the trace's name."""
    marker = trace.get("marker", {})
    symbol = marker.get("symbol", "circle")
    css, _ = paint(marker.get("color") or trace["line"]["color"])
    if trace.get("mode") == "lines":
        sample = path("M0 6H14", trace["line"]["color"], width=2, more=dashes(trace))
    elif symbol in {"circle", "square"}:
        sample = Markup('<circle cx=7 cy=6 r=4.5 style="fill:{}"/>').format(css)
    else:
        sample = Markup('<use href="#{}" x=7 y=6 style="fill:{}"/>').format(symbol, css)
    key = Markup("<span><svg width=14 height=12>{}</svg> {}</span>")
    return key.format(sample, trace["name"])


def _scale(marker: Trace) -> Markup:
    """A scale of colours, with the meaning of its ends."""
    step = Markup('<rect x={} width=8 height=12 style="fill:{}"/>')
    steps = Markup("").join(step.format(8 * at, css) for at, css in enumerate(shades(marker)))
    key = Markup("<span><svg width=64 height=12>{}</svg> 1 to {:.3g} times the best</span>")
    return key.format(steps, marker["cmax"])


# ----- axes ----------------------------------------------------------------------------------

_MARGIN = 0.03
"""The share of an axis that is free beyond the outermost values."""

_STEPS = 6
"""The approximate largest number of steps between the ticks of an axis."""

_FEW, _MANY = 3, 8
"""The fewest and most ticks at 1, 2 and 5 of a logarithmic axis; otherwise other ticks are used."""


@attrs.frozen(kw_only=True, eq=False)
class Axis:
    """An axis of a plot.

    Attributes:
        low: The value at the beginning of the axis; if ``log`` is set, the logarithm of this value
            to base 10.
        high: The value at the end of the axis; if ``log`` is set, the logarithm of this value to
            base 10.
        names: The words of an axis of words, in order; empty for an axis of numbers.
        band: The beginning and the end of the bars that belong to one word, as shares of the word's
            part of the axis.
        ticks: The place and the text of each tick.
    """

    title: str
    low: float = 0.0
    high: float = 1.0
    log: bool = False
    names: Sequence[str] = ()
    band: tuple[float, float] = (0.1, 0.9)
    ticks: Sequence[tuple[float, str]] = ()

    def places(self, values: Sequence[Any] | NDArray[Any]) -> NDArray[np.float64]:
        """The places of values on the axis, as shares of its length.

        Args:
            values: Numbers or words, shape (n,).
        """
        if self.names:
            rank = {name: index for index, name in enumerate(self.names)}
            ranks = np.array([rank.get(str(value), np.nan) for value in values], np.float64)
            return (ranks + sum(self.band) / 2) / len(self.names)
        numbers = np.array(values, np.float64)
        if self.log:
            numbers = np.log10(np.where(numbers > 0.0, numbers, np.nan))
        shares: NDArray[np.float64] = (numbers - self.low) / (self.high - self.low)
        return np.where(np.isfinite(shares), shares, np.nan)

    def upwards(self, values: Sequence[Any] | NDArray[Any]) -> NDArray[np.float64]:
        """The places of values on a vertical axis, measured from the top.

        Args:
            values: Numbers or words, shape (n,).
        """
        places = self.places(values)
        return places if self.names else 1.0 - places


def axis_of(layout: Mapping[str, Any], column: str, values: Sequence[Any], *, zero: bool) -> Axis:
    """Make an axis from its description for plotly.js."""
    title = layout.get("title", {}).get("text", column)
    if layout.get("type") == "category":
        names = list(layout.get("categoryarray") or dict.fromkeys(map(str, values)))
        if "range" in layout:
            names = names[: round(max(layout["range"]) + 0.5)]
        ticks = [((index + 0.5) / len(names), name) for index, name in enumerate(names)]
        return Axis(title=title, names=names, ticks=ticks)
    log = layout.get("type") == "log"
    low, high = layout.get("range") or _ends(values, log=log, zero=zero)
    axis = Axis(title=title, low=low, high=high, log=log)
    marked = _powers(low, high) if log else _steps(low, high)
    written = [(axis.places([value])[0], _word(value, layout)) for value in marked]
    return attrs.evolve(axis, ticks=written)


def _ends(values: Sequence[Any], *, log: bool, zero: bool) -> tuple[float, float]:
    """The first and the last value of an axis."""
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
    """A few round values between two numbers."""
    least = (high - low) / _STEPS
    power = 10.0 ** math.floor(math.log10(least))
    step = next(power * digit for digit in (1, 2, 5, 10) if power * digit >= least * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{step * number:.12g}") for number in range(first, last + 1)]


def _powers(low: float, high: float) -> list[float]:
    """Ticks of a logarithmic axis: 1, 2 and 5, or powers of ten, or round values."""
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
        return words.in_seconds(value, ".3g") if value else "0"
    return f"{value:.0%}" if layout.get("tickformat", "").endswith("%") else f"{value:,.6g}"


# ----- marks ---------------------------------------------------------------------------------

_GRID = 2000
"""The width and height of the grid in units, finer than the pixels of any screen."""

_SHADES = 8
"""The number of steps in a scale of colours."""

_DASHES = {"dash": "7 5", "dot": "2 4"}
_LINE_ENDS = {"circle": "round", "square": "square"}

Trace = Mapping[str, Any]
Places = NDArray[np.float64]


def paint(colour: str) -> tuple[str, float]:
    """Convert a colour's name in the style sheet to CSS, with its opacity from 0 to 1."""
    name, _, opacity = colour.partition("/")
    return (f"var({name})" if name.startswith("--") else name), int(opacity or "ff", 16) / 255


def path(way: str, colour: str, *, width: float = 0.0, opacity: float = 1.0, more: str = "") -> str:
    """Write an SVG path that is stretched over the plot with its element ``grid``."""
    css, share = paint(colour)
    look = f'style="stroke:{css}" stroke-width="{width:g}"' if width else f'style="fill:{css}"'
    drawn = f'<path d="{way}" {look} opacity="{opacity * share:.2g}"{more}/>'
    return Markup(drawn)  # noqa: S704 - its parts are numbers and names of colours


def text(x: float, y: float, words: str, more: str) -> Markup:
    """An SVG text at a place."""
    opening = f'<text x="{x:.2%}" y="{y:.2%}" {more}>'
    return Markup("{}{}</text>").format(Markup(opening), words)  # noqa: S704 - its parts are numbers


def grid(paths: Sequence[str]) -> Markup:
    """The SVG element that stretches paths over the plot."""
    stretched = '<svg viewBox="0 0 {0} {0}" preserveAspectRatio="none">{1}</svg>'
    return Markup(stretched).format(_GRID, Markup("").join(paths))  # noqa: S704 - the text is a constant


def bars(
    trace: Trace, x: Axis, y: Axis, *, begins: Places, lane: int, lanes: int
) -> Iterator[Markup]:
    """Draw horizontal bars of one trace, and the words at the ends of the bars."""
    thick = (y.band[1] - y.band[0]) / lanes / len(y.names)
    middles = y.places(trace["y"]) + (lane - (lanes - 1) / 2) * thick
    lengths = np.nan_to_num(trace["x"])
    words = list(trace.get("text", ()))
    if "texttemplate" in trace:
        words = [f"{length:.0%}" for length in lengths]
    bar = Markup('<rect x="{:.2%}" y="{:.2%}" width="{:.2%}" height="{:.2%}" style="fill:{}"/>')
    css, _ = paint(trace["marker"]["color"])
    ends = zip(middles, x.places(begins), x.places(begins + lengths), strict=True)
    for index, (middle, start, end) in enumerate(ends):
        if np.isnan(middle):
            continue
        yield bar.format(start, middle - 0.46 * thick, end - start, 0.92 * thick, css)
        if words:
            yield text(end, middle, words[index], "dx=5 dy=.35em class=small")


def line(trace: Trace, before: Trace | None, x: Axis, y: Axis) -> str:
    """Draw the line of a trace, or the band between this line and that of the trace before."""
    steps = trace["line"].get("shape") == "hv"
    way = _way(x.places(trace["x"]), y.upwards(trace["y"]), steps=steps)
    if trace.get("fill") == "tonexty" and before is not None:
        lower = _way(x.places(before["x"]), y.upwards(before["y"]), steps=steps, back=True)
        return path(way + lower, trace["fillcolor"])
    return path(way, trace["line"]["color"], width=trace["line"]["width"], more=dashes(trace))


def dashes(trace: Trace) -> str:
    """The SVG attribute that makes the line of a trace dashed or dotted, or an empty string."""
    dash = trace["line"].get("dash")
    return f' stroke-dasharray="{_DASHES[dash]}"' if dash else ""


def errors(trace: Trace, across: Places, y: Axis) -> str:
    """Draw error bars: a vertical line for the interval of each point.

    ``across`` has the horizontal place of each point, shape (n,).
    """
    error = trace["error_y"]
    highs = y.upwards(trace["y"] + error["array"])
    lows = y.upwards(trace["y"] - error["arrayminus"])
    ends = zip(_units(across), _units(highs), _units(lows), strict=True)
    way = "".join(f"M{at} {high}V{low}" for at, high, low in ends)
    return path(way, trace["marker"]["color"], width=error["thickness"])


def points(marker: Trace, across: Places, up: Places) -> Iterator[tuple[str, bool]]:
    """Draw the points of a trace as SVG elements.

    Round and square points are drawn as the ends of very short lines, so that all such points of
    one colour are one SVG path.

    ``across`` has the horizontal places, shape (n,). ``up`` has the vertical places from the top,
    shape (n,).
    """
    end = _LINE_ENDS.get(marker.get("symbol", "circle"))
    opacity = marker.get("opacity", 1.0)
    if end is None:
        css, _ = paint(marker["color"])
        use = Markup('<use href="#{}" x="{:.2%}" y="{:.2%}" style="fill:{}" opacity="{}"/>')
        for point in zip(across, up, strict=True):
            yield use.format(marker["symbol"], *point, css, opacity), False
        return
    for colour, rows in _coloured(marker, len(across)):
        ends = zip(_units(across[rows]), _units(up[rows]), strict=True)
        # A line of length 0 with square ends is invisible in print.
        length = 0 if end == "round" else 1
        way = "".join(f"M{a} {b}h{length}" for a, b in ends)
        look = f' stroke-linecap="{end}"'
        yield path(way, colour, width=marker["size"], opacity=opacity, more=look), True


def shades(marker: Trace) -> list[str]:
    """The colours of a marker's colour scale, from the lowest to the highest value."""
    first, last = (f"var({name})" for _, name in marker["colorscale"])
    parts = [round(100 * step / (_SHADES - 1)) for step in range(_SHADES)]
    return [f"color-mix(in srgb,{last} {part}%,{first})" for part in parts]


def _coloured(marker: Trace, count: int) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Each colour of a marker, with the rows of the points that have it."""
    if "colorscale" not in marker:
        yield marker["color"], np.arange(count)
        return
    shares = (marker["color"] - marker["cmin"]) / (marker["cmax"] - marker["cmin"])
    steps = np.rint(np.clip(shares, 0.0, 1.0) * (_SHADES - 1))
    # The best points are drawn last, over the others.
    for step, colour in reversed(list(enumerate(shades(marker)))):
        rows = np.flatnonzero(steps == step)
        if len(rows):
            yield colour, rows


def _units(places: Places) -> list[int]:
    """Places in units of the grid."""
    return [round(unit) for unit in (_GRID * places).tolist()]


def _way(across: Places, up: Places, *, steps: bool, back: bool = False) -> str:
    """SVG path commands along points."""
    seen = np.isfinite(across) & np.isfinite(up)
    ends = list(zip(_units(across[seen]), _units(up[seen]), strict=True))
    step = "H{0}V{1}" if steps else "L{0} {1}"
    if back:
        ends, step = ends[::-1], "V{1}H{0}" if steps else step
    begin = "L{0} {1}" if back else "M{0} {1}"
    return "".join((step if at else begin).format(*end) for at, end in enumerate(ends))
