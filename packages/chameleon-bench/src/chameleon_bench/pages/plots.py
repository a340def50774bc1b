"""Plots as data: what a page draws with plotly.js, and what is saved of them as CSV.

A figure is a dictionary as plotly.js takes it. In it ``{"column": name}`` stands for a column of
the plot's table, ``{"constant": value}`` for as many times a value. A colour such as ``--c1`` is a
property of the page's style sheet. So the numbers are on the page once, whatever is drawn of them.
"""

from __future__ import annotations

import base64
import csv
import gzip
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from chameleon_bench.pages.measured import Categories

Column = Categories | NDArray[Any] | Sequence[Any]
"""Numbers or words, one per row; numbers that are not finite are gaps."""

COLOURS = 8
"""Colours of the style sheet, ``--c1`` and so on."""


@attrs.frozen(kw_only=True, eq=False)
class Plot:
    """One plot; of one operator of a run, of one task of a suite, or of all.

    Attributes:
        key: what it shows, as a part of a file name.
        title: above it.
        about: how it is read, in a sentence or two.
        columns: its table by header, columns equally long.
        traces: as plotly.js takes them. ``where``, a column and one of its words, selects the rows
            of a trace, as does ``rows``. ``hover`` names columns that are shown at a point.
        layout: as plotly.js takes it.
        hidden: columns that are drawn and not saved.
        subject: the operator or the task that it is of; empty for a plot of all of them.
        height: in pixels.
    """

    key: str
    title: str
    about: str
    columns: Mapping[str, Column]
    traces: Sequence[Mapping[str, Any]]
    layout: Mapping[str, Any]
    hidden: frozenset[str] = frozenset()
    subject: str = ""
    height: int = 340

    @property
    def saved(self) -> list[str]:
        """Headers of the columns that are saved."""
        return [name for name in self.columns if name not in self.hidden]

    @property
    def length(self) -> int:
        """Rows of the table."""
        column = next(iter(self.columns.values()))
        return len(column.codes if isinstance(column, Categories) else column)


_CROWDED = 0.7
"""Decades of a logarithmic axis from which on plotly writes a number at each digit."""


def of(column: str) -> dict[str, str]:
    """A column in the place of an array of a trace."""
    return {"column": column}


def titled(title: str, **more: Any) -> dict[str, Any]:
    """An axis with words beside it."""
    return {"title": {"text": title}, **more}


DOWNWARDS = {"type": "category", "autorange": "reversed"}
"""An axis of words, the first at the top."""


def points(x: str, y: str, hover: Sequence[str], **marker: Any) -> dict[str, Any]:
    """A trace of points.

    Args:
        x: a column.
        y: a column.
        hover: columns that are shown at a point.
        marker: colour, size and so on, as plotly.js has them.
    """
    trace = {"type": "scatter", "mode": "markers", "x": of(x), "y": of(y), "hover": hover}
    return {**trace, "marker": marker} if marker else trace


def bars(x: str, y: str, shade: str, **more: Any) -> dict[str, Any]:
    """A trace of bars that lie.

    Args:
        x: a column of lengths.
        y: a column of words.
        shade: their colour.
        more: whatever else plotly.js takes.
    """
    trace = {"type": "bar", "orientation": "h", "x": of(x), "y": of(y)}
    return {**trace, "marker": {"color": shade}, **more}


def at(value: float) -> dict[str, float]:
    """One value for all points in the place of an array of a trace."""
    return {"constant": value}


def colour(number: int) -> str:
    """The colour at a place of a sequence; they repeat."""
    return f"--c{number % COLOURS + 1}"


def seconds_axis(title: str, **more: Any) -> dict[str, Any]:
    """An axis of seconds, with units that suit them."""
    return titled(title, tickformat="~s", ticksuffix="s", **more)


def logarithmic(title: str, seconds: Iterable[float]) -> dict[str, Any]:
    """A logarithmic axis of seconds around some values, were they all the same.

    Args:
        title: beside it.
        seconds: what is to be seen; those that are not positive and finite have no place on it.
    """
    logs = [math.log10(value) for value in seconds if 0.0 < value < math.inf]
    if not logs:
        return seconds_axis(title, type="log")
    low, high = min(logs), max(logs)
    margin = max(0.05 * (high - low), 0.01)
    # A tick at each digit would leave no room for its words: 1, 2 and 5 then.
    ticks = {"dtick": "D2"} if high - low > _CROWDED else {}
    return seconds_axis(title, type="log", range=[low - margin, high + margin], **ticks)


_PACKED = ("key", "subject", "saved", "traces", "layout")
"""Attributes of a plot that the script on a page reads."""


def packed(plots: Sequence[Plot], name: str) -> Markup:
    """All plots with their tables as text that a page's script unpacks: JSON, gzip, base64.

    Args:
        plots: of a page; tables that several of them share are written once.
        name: what files that are saved of them begin with.
    """
    tables = {id(plot.columns): plot.columns for plot in plots}
    places = {key: index for index, key in enumerate(tables)}
    described = [
        {"table": places[id(plot.columns)], **{name: getattr(plot, name) for name in _PACKED}}
        for plot in plots
    ]
    data = [
        {header: _plain(column) for header, column in table.items()} for table in tables.values()
    ]
    text = json.dumps(
        {"name": name, "tables": data, "plots": described}, separators=(",", ":"), allow_nan=False
    )
    # The time of day would make each page another one.
    small = gzip.compress(text.encode(), compresslevel=6, mtime=0)
    return Markup(base64.b64encode(small).decode())  # noqa: S704 - letters, digits, + and /


def plotly_js() -> Markup:
    """The bundle of plotly.js that comes with this package: JavaScript, gzip, base64."""
    packed_script = Path(__file__).with_name("vendored") / "plotly" / "plotly-basic.min.js.gz"
    return Markup(base64.b64encode(packed_script.read_bytes()).decode())  # noqa: S704 - as above


def write_sheets(plots: Sequence[Plot], folder: Path, *, subject: str) -> list[Path]:
    """Write ``KEY.csv`` for each key of the plots.

    Args:
        plots: those with one key share a file.
        folder: made if it is missing.
        subject: header of the column of subjects, if plots have any.

    Returns:
        The files, in order of the keys.

    Raises:
        OSError: they cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for key in dict.fromkeys(plot.key for plot in plots):
        mine = [plot for plot in plots if plot.key == key]
        headers = list(dict.fromkeys(header for plot in mine for header in plot.saved))
        of_some = any(plot.subject for plot in mine)
        file = folder / f"{key}.csv"
        with file.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow([*([subject] if of_some else []), *headers])
            for plot in mine:
                cells = [_cells(plot, header) for header in headers]
                owner = [[plot.subject] * plot.length] if of_some else []
                writer.writerows(zip(*owner, *cells, strict=True))
        files.append(file)
    return files


def _cells(plot: Plot, header: str) -> Sequence[Any]:
    column = plot.columns.get(header)
    if column is None or header in plot.hidden:
        return [""] * plot.length
    if isinstance(column, Categories):
        return column.words
    values = column.tolist() if isinstance(column, np.ndarray) else column
    return ["" if _gap(value) else value for value in values]


def _plain(column: Column) -> Any:
    """A column as JSON values; six digits are more than a screen can show."""
    if isinstance(column, Categories):
        return {"labels": list(column.labels), "codes": column.codes.tolist()}
    values = column.tolist() if isinstance(column, np.ndarray) else column
    return [
        (None if _gap(value) else float(f"{value:.6g}")) if isinstance(value, float) else value
        for value in values
    ]


def _gap(value: Any) -> bool:
    return value is None or (isinstance(value, float) and not math.isfinite(value))


def stacked_seconds(parts: Sequence[str], along: str) -> dict[str, Any]:
    """Traces and layout of bars that are stacked of seconds spent, as ``Plot`` takes them.

    Args:
        parts: what was spent on; the plot has a column ``"PART seconds"`` for each.
        along: the column with a word for each bar.
    """
    return {
        "traces": [
            bars(
                f"{part} seconds",
                along,
                colour(index),
                name=part,
                hovertemplate=f"%{{y}}<br>{part}: %{{x:.3~s}}s<extra></extra>",
            )
            for index, part in enumerate(parts)
        ],
        "layout": {"barmode": "stack", "xaxis": titled("seconds"), "yaxis": DOWNWARDS},
    }
