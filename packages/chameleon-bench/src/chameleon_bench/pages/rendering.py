"""Templates become pages here, and plots still SVG: no script is needed, and paper shows it too.

There is one environment, in which every text is escaped. A plot is drawn from the description that
plotly.js gets. The drawing has no width of its own: it is stretched to the width that there is,
while letters, points and strokes keep their size.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from chameleon_core.words import in_seconds
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from numpy.typing import NDArray

from chameleon_bench.pages import marks
from chameleon_bench.pages.axes import Axis, axis_of
from chameleon_bench.pages.measured import Categories
from chameleon_bench.pages.plots import Plot, packed, plotly_js

Cell = str | Markup
"""Plain text, or HTML such as a bar."""


@attrs.frozen(kw_only=True)
class Table:
    """A table; its first column is text, the others are numbers.

    Attributes:
        header: names of the columns.
        rows: as many cells each.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    @property
    def filled(self) -> Table:
        """The table without columns in which no row has anything."""
        places = [
            place
            for place in range(len(self.header))
            if not self.rows or any(row[place] not in {"-", ""} for row in self.rows)
        ]
        return Table(
            header=[self.header[place] for place in places],
            rows=[[row[place] for place in places] for row in self.rows],
        )


def rendered(template: str, **values: Any) -> Markup:
    """Fill in a template.

    Args:
        template: its file in ``templates``.
        values: what it names; a name that is missing is an error.
    """
    return Markup(_environment().get_template(template).render(values))  # noqa: S704 - autoescaped


@functools.cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters["drawing"] = drawing
    made.filters["seconds"] = in_seconds
    made.filters["json"] = functools.partial(json.dumps, default=dict)
    return made


MOST = 2000
"""Points of a plot that are drawn at once; ``plots.js`` has the same number."""

_TOP, _RIGHT, _BOTTOM, _LEFT = 28, 34, 46, 14
"""Pixels around the axes; words beside them need more."""

_LETTER = 7.0
"""Pixels that a letter beside an axis takes."""

_LONG = 18
"""Letters of a name beyond which it stands above its bars, and not beside them."""

_NAME = 16
"""Pixels of the line in which it stands."""


@attrs.frozen(kw_only=True, eq=False)
class Drawing:
    """A plot as HTML.

    Attributes:
        html: the legend and the SVG.
        about: how many of the points are drawn; empty if all of them are.
    """

    html: Markup
    about: str


def drawing(plot: Plot) -> Drawing:
    """Draw a plot.

    Args:
        plot: as plotly.js takes it.
    """
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
    for place in range(len(traces)):
        for piece, in_grid in _marks(plot, traces, place, x, y, limit=limits[place]):
            (paths if in_grid else pieces).append(piece)
    html = Markup(
        '{}<div class=axes style="height:{}px;padding:{}px {}px {}px {}px"><svg role=img>'
        "<title>{}: {} over {}</title>{}{}{}</svg></div>"
    ).format(
        *(_legend(plot), plot.height, _TOP, _RIGHT, _BOTTOM, left, plot.title, y.title, x.title),
        *(Markup("").join(_ticks(x, y, left, above=above)), marks.grid(paths)),
        Markup("").join(pieces),
    )
    told = f"{shown:,} of {sum(counts):,} points are drawn. The CSV has all."
    return Drawing(html=html, about=told if shown < sum(counts) else "")


def _resolved(plot: Plot, trace: marks.Trace) -> dict[str, Any]:
    """A trace with values in the place of what names them."""
    rows = np.array(trace["rows"]) if "rows" in trace else np.arange(plot.length)
    for key, wanted in (("where", True), ("skip", False)):
        if key in trace:
            header, word = trace[key]
            rows = rows[(_column(plot, header)[rows] == word) == wanted]

    def values(given: Any) -> Any:
        if isinstance(given, Mapping):
            if "column" in given:
                return _column(plot, given["column"])[rows]
            if "constant" in given:
                return np.full(len(rows), given["constant"])
            return {key: values(value) for key, value in given.items()}
        return given

    return {key: values(value) for key, value in trace.items()}


def _column(plot: Plot, header: str) -> NDArray[Any]:
    column = plot.columns[header]
    if isinstance(column, Categories):
        return np.array(column.words, object)
    words = any(isinstance(value, str) for value in column)
    return np.array(column, object if words else np.float64)


def _axis(plot: Plot, traces: Sequence[marks.Trace], name: str) -> Axis:
    layout, first = plot.layout.get(f"{name}axis", {}), plot.traces[0]
    lengths = first["type"] == "bar" and name == "x"
    values = [value for trace in traces for value in trace[name]]
    if lengths and plot.layout.get("barmode") == "stack":
        values = list(sum(np.nan_to_num(trace[name]) for trace in traces))
    column = first[name].get("column", "") if isinstance(first[name], Mapping) else ""
    zero = lengths or layout.get("rangemode") == "tozero"
    return axis_of(layout, column, values, zero=zero)


def _count(trace: marks.Trace) -> int:
    """How many points of a trace there are of which some may be left out."""
    return len(trace["y"]) if trace.get("mode") == "markers" and "rows" not in trace else 0


def _marks(
    plot: Plot, traces: Sequence[marks.Trace], place: int, x: Axis, y: Axis, *, limit: int
) -> Iterator[tuple[str, bool]]:
    """What one trace puts into a plot, and whether it is a path of the grid."""
    trace = traces[place]
    if trace["type"] == "bar":
        stack = plot.layout.get("barmode") == "stack"
        begins = np.zeros(len(trace["x"]))
        for before in traces[:place] if stack else ():
            begins = begins + np.nan_to_num(before["x"])
        lanes = {"lane": 0, "lanes": 1} if stack else {"lane": place, "lanes": len(traces)}
        yield from ((bar, False) for bar in marks.bars(trace, x, y, begins=begins, **lanes))
        return
    across, up = x.places(trace["x"]), y.upwards(trace["y"])
    if "scattergap" in plot.layout:
        # Points of one word stand side by side.
        width = (1.0 - plot.layout["scattergap"]) / len(x.names)
        across = across + width * ((place + 0.5) / len(traces) - 0.5)
    if "lines" in trace["mode"] and (trace["line"]["width"] or "fill" in trace):
        yield marks.line(trace, traces[place - 1] if place else None, x, y), True
    if "error_y" in trace:
        yield marks.errors(trace, across, y), True
    if "markers" in trace["mode"]:
        kept = np.flatnonzero(np.isfinite(across) & np.isfinite(up))
        if limit:
            kept = kept[_thinned(np.array(trace["y"], np.float64)[kept], limit)]
        marker = {"color": trace.get("line", {}).get("color"), **trace["marker"]}
        if "colorscale" in marker:
            marker["color"] = marker["color"][kept]
        yield from marks.points(marker, across[kept], up[kept])


def _thinned(values: NDArray[np.float64], limit: int) -> NDArray[np.int64]:
    """Places of as many: evenly in their order, and the lowest ones in any case, the fastest."""
    if len(values) <= limit:
        return np.arange(len(values))
    lowest = np.argsort(values)[: limit // 10]
    evenly = np.arange(0, len(values), len(values) / (limit - len(lowest)))
    return np.union1d(lowest, evenly.astype(np.int64))


def _ticks(x: Axis, y: Axis, left: int, *, above: bool) -> Iterator[Markup]:
    """Lines across the plot, what is written at them, and the axes' titles."""
    level = Markup('<line x1="0%" x2="100%" y1="{0:.2%}" y2="{0:.2%}"/>')
    yield level.format(1.0)
    for place, word in x.ticks:
        if not x.names:
            yield Markup('<line x1="{0:.2%}" x2="{0:.2%}" y1="0%" y2="100%"/>').format(place)
        yield marks.text(place, 1.0, word, "dy=18 text-anchor=middle")
    for place, word in y.ticks:
        if above:
            begin = place - 0.5 / len(y.names)
            yield level.format(begin)
            yield marks.text(0.0, begin + y.band[0] / 2 / len(y.names), word, "dy=.4em")
            continue
        at = place if y.names else 1.0 - place
        if not y.names:
            yield level.format(at)
        yield marks.text(0.0, at, word, "dx=-7 dy=.35em text-anchor=end")
    yield marks.text(0.5, 1.0, x.title, "dy=38 text-anchor=middle class=title")
    # Above its axis, where it can be read without a turn of the head.
    yield marks.text(0.0, 0.0, y.title, f"dx={8 - left} dy=-14 class=title")


def _legend(plot: Plot) -> Markup:
    """The meaning of colours and symbols; nothing if there is one of them alone."""
    if not plot.layout.get("showlegend", len(plot.traces) > 1):
        return Markup("")
    scales = [trace["marker"] for trace in plot.traces if "colorscale" in trace.get("marker", {})]
    named = [trace for trace in plot.traces if trace.get("marker") not in scales]
    keys = [_key(trace) for trace in named if trace.get("showlegend", True)]
    keys += map(_scale, scales)
    return Markup("<p class=keys>{}</p>").format(Markup("").join(keys))


def _key(trace: marks.Trace) -> Markup:
    """A sample of a trace with its name."""
    marker = trace.get("marker", {})
    symbol = marker.get("symbol", "circle")
    css, _ = marks.paint(marker.get("color") or trace["line"]["color"])
    if trace.get("mode") == "lines":
        sample = marks.path("M0 6H14", trace["line"]["color"], width=2, more=marks.dashes(trace))
    elif symbol in {"circle", "square"}:
        sample = Markup('<circle cx=7 cy=6 r=4.5 style="fill:{}"/>').format(css)
    else:
        sample = Markup('<use href="#{}" x=7 y=6 style="fill:{}"/>').format(symbol, css)
    key = Markup("<span><svg width=14 height=12>{}</svg> {}</span>")
    return key.format(sample, trace["name"])


def _scale(marker: marks.Trace) -> Markup:
    """A scale of colours with what its ends mean."""
    step = Markup('<rect x={} width=8 height=12 style="fill:{}"/>')
    steps = Markup("").join(step.format(8 * at, css) for at, css in enumerate(marks.shades(marker)))
    key = Markup("<span><svg width=64 height=12>{}</svg> 1 to {:.3g} times the best</span>")
    return key.format(steps, marker["cmax"])


def plain_page(
    title: str, sentences: Sequence[str], plots: Sequence[Plot], tables: Mapping[str, Table]
) -> str:
    """The page, in the style of all others.

    Args:
        title: of the page; files that are saved of its plots begin with it.
        sentences: a paragraph each, above everything.
        plots: in their order.
        tables: by caption.
    """
    return rendered(
        "plain.html",
        title=title,
        sentences=sentences,
        plots=plots,
        tables=tables,
        packed=packed(plots, title),
        plotly=plotly_js(),
    )
