"""Fills in templates of pages; every string in a template is escaped."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import attrs
from chameleon_core.api import words
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from chameleon_bench._pages.drawing import drawing
from chameleon_bench._pages.plots import Plot, colour, packed, plotly_js

Cell = str | Markup
"""A cell of a table: plain text, or HTML such as a bar."""

T = TypeVar("T")


@attrs.frozen(kw_only=True)
class Table:
    """A table of a page. Its first column is text, and the other columns are numbers.

    Attributes:
        header: The names of the columns.
        rows: The rows, each with one cell per column.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    @classmethod
    def of(cls, items: Iterable[T], *columns: tuple[str, Callable[[T], Cell]]) -> Self:
        """Make a table with one row per item.

        Args:
            items: The items, such as the operators of a run.
            columns: The name of each column, and a function that returns an item's cell.
        """
        rows = [tuple(cell(item) for _, cell in columns) for item in items]
        return cls(header=tuple(name for name, _ in columns), rows=rows)

    @property
    def filled(self) -> Table:
        """The table without columns whose cells are all empty."""
        places = [
            index
            for index in range(len(self.header))
            if not self.rows or any(row[index] not in {"-", ""} for row in self.rows)
        ]
        return Table(
            header=[self.header[index] for index in places],
            rows=[[row[index] for index in places] for row in self.rows],
        )

    def with_bars(self, after: str, bars: Iterable[Markup]) -> Table:
        """A copy of the table with an additional column of bars.

        Args:
            after: The name of the column before the bars.
            bars: One bar per row.
        """
        at = self.header.index(after) + 1
        rows = [(*row[:at], bar, *row[at:]) for row, bar in zip(self.rows, bars, strict=True)]
        return Table(header=(*self.header[:at], "", *self.header[at:]), rows=rows)


def bar(parts: Mapping[str, float], whole: float, *, first: int = 0) -> Markup:
    """A horizontal bar of coloured parts, as HTML for a table's cell without a script."""
    shares = [part / whole if whole else 0.0 for part in parts.values()]
    beyond = sum(shares) > 1.0 + 1e-9
    if beyond:
        shares = [share / sum(shares) for share in shares]
    spans = [
        {"name": name, "colour": colour(first + number), "percent": round(100 * share, 1)}
        for number, (name, share) in enumerate(zip(parts, shares, strict=True))
    ]
    return rendered("bar.html", parts=spans, beyond=beyond)


def rendered(template: str, **values: Any) -> Markup:
    """Fill in a template of a page, and return the HTML."""
    return Markup(_environment().get_template(template).render(values))  # noqa: S704 - the template escapes values


def rendered_page(template: str, title: str, plots: Sequence[Plot], **values: Any) -> str:
    """A page with its plots, their data, and the script that draws them."""
    scripts = {"packed": packed(plots, title), "plotly": plotly_js()}
    return rendered(template, title=title, plots=plots, **scripts, **values)


def plain_page(
    title: str, sentences: Sequence[str], plots: Sequence[Plot], tables: Mapping[str, Table]
) -> str:
    """A page of paragraphs, plots and tables, in the style of the other pages.

    Args:
        title: The title of the page, with which the names of saved files begin.
        sentences: The paragraphs at the top.
        plots: The plots, in order.
        tables: The tables by caption.
    """
    return rendered_page("plain.html", title, plots, sentences=sentences, tables=tables)


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).with_name("templates")),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["drawing"] = drawing
    environment.filters["seconds"] = words.in_seconds
    environment.filters["json"] = functools.partial(json.dumps, default=dict)
    return environment
