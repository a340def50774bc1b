"""Plots as data, which a page draws with plotly.js or which are saved as CSV.

A figure is a dictionary as plotly.js takes it, with two additions. ``{"column": name}`` means a
column of the plot's table, and ``{"constant": value}`` the same value for every row. So a page has
each number only once. A colour such as ``--c1`` is a property of the page's style sheet.
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

from chameleon_bench._pages.run_record import Categories

Column = Categories | NDArray[Any] | Sequence[Any]
"""Numbers or words, one per row; numbers that are not finite are missing values."""

COLOURS = 8
"""The number of colours in the style sheet: ``--c1`` and so on."""


@attrs.frozen(kw_only=True, eq=False)
class Plot:
    """One plot, about an operator of a run, a task of a suite, or all of them.

    Attributes:
        key: A short name for the kind of plot, which is part of a file name.
        title: The title above the plot.
        about: A sentence or two that explain the plot.
        columns: The table of the plot: columns of equal length, by header.
        traces: Traces as plotly.js takes them, with three additional keys. ``rows`` is a list of
            the table's rows that the trace shows. ``where`` is a column and a word; the trace shows
            the rows with this word in the column. ``hover`` lists columns to show at a point.
        layout: The layout as plotly.js takes it.
        hidden: Columns that are drawn but not saved as CSV.
        subject: The operator or the task of the plot; empty for all of them.
        height: The height in pixels.
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
        """The headers of the columns that are saved as CSV."""
        return [name for name in self.columns if name not in self.hidden]

    @property
    def length(self) -> int:
        """The number of rows in the table."""
        column = next(iter(self.columns.values()))
        return len(column.codes if isinstance(column, Categories) else column)


_CROWDED = 0.7
"""The length of a logarithmic axis, in decades, above which only 1, 2 and 5 get ticks."""


def of(column: str) -> dict[str, str]:
    """Refer to a column of the plot's table, in place of an array in a trace of plotly.js."""
    return {"column": column}


def titled(title: str, **more: Any) -> dict[str, Any]:
    """The description of an axis with a title."""
    return {"title": {"text": title}, **more}


DOWNWARDS = {"type": "category", "autorange": "reversed"}
"""The description of an axis of words, the first at the top."""


def points(x: str, y: str, hover: Sequence[str], **marker: Any) -> dict[str, Any]:
    """The description of a trace of points, as plotly.js takes it.

    Args:
        x: The column of horizontal values.
        y: The column of vertical values.
        hover: The columns to show at a point.
        marker: The colour, size and other properties, as plotly.js has them.
    """
    trace = {"type": "scatter", "mode": "markers", "x": of(x), "y": of(y), "hover": hover}
    return {**trace, "marker": marker} if marker else trace


def bars(x: str, y: str, shade: str, **more: Any) -> dict[str, Any]:
    """The description of a trace of horizontal bars, as plotly.js takes it."""
    trace = {"type": "bar", "orientation": "h", "x": of(x), "y": of(y)}
    return {**trace, "marker": {"color": shade}, **more}


def at(value: float) -> dict[str, float]:
    """Refer to one value that all points of a plot's trace share, such as their height."""
    return {"constant": value}


def colour(number: int) -> str:
    """The colour with a number; colours repeat after the last one."""
    return f"--c{number % COLOURS + 1}"


def seconds_axis(title: str, **more: Any) -> dict[str, Any]:
    """The description of an axis of seconds, whose ticks have suitable units."""
    return titled(title, tickformat="~s", ticksuffix="s", **more)


def logarithmic(title: str, seconds: Iterable[float]) -> dict[str, Any]:
    """The description of a logarithmic axis of seconds that shows some values.

    Args:
        title: The title beside the axis.
        seconds: The values to show. Values that are not positive and finite are ignored.
    """
    logs = [math.log10(value) for value in seconds if 0.0 < value < math.inf]
    if not logs:
        return seconds_axis(title, type="log")
    low, high = min(logs), max(logs)
    margin = max(0.05 * (high - low), 0.01)
    # Labels at each digit would overlap, so only 1, 2 and 5 have ticks then.
    ticks = {"dtick": "D2"} if high - low > _CROWDED else {}
    return seconds_axis(title, type="log", range=[low - margin, high + margin], **ticks)


_PACKED = ("key", "subject", "saved", "traces", "layout")
"""The attributes of a plot that a page's script reads."""


def packed(plots: Sequence[Plot], name: str) -> Markup:
    """Plots and their tables as a string that a page's script unpacks: JSON, gzip, base64."""
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
    # With a time in the archive, two pages of the same run would differ.
    small = gzip.compress(text.encode(), compresslevel=6, mtime=0)
    return Markup(base64.b64encode(small).decode())  # noqa: S704 - base64 has no special characters


def plotly_js() -> Markup:
    """The copy of plotly.js in this package: JavaScript, compressed with gzip, as base64."""
    packed_script = Path(__file__).with_name("vendored") / "plotly" / "plotly-basic.min.js.gz"
    return Markup(base64.b64encode(packed_script.read_bytes()).decode())  # noqa: S704 - base64 has no special characters


def write_sheets(plots: Sequence[Plot], folder: Path, *, subject: str) -> list[Path]:
    """Write the tables of plots to files named ``KEY.csv``, one file per key."""
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
    """A column as JSON values with six digits, which are enough for a screen."""
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
    """The traces and the layout of a ``Plot`` with stacked bars of seconds.

    ``parts`` are the parts of each bar. The plot's table has a column ``"PART seconds"`` for each
    part.
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
