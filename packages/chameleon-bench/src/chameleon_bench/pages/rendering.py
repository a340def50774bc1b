"""Templates become pages here; there is one environment, in which every text is escaped."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

import attrs
from chameleon_core.words import in_seconds
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from chameleon_bench.pages.drawing import drawing
from chameleon_bench.pages.plots import Plot, colour, packed, plotly_js

Cell = str | Markup
"""Plain text, or HTML such as a bar."""

T = TypeVar("T")


@attrs.frozen(kw_only=True)
class Table:
    """A table; its first column is text, the others are numbers.

    Attributes:
        header: names of the columns.
        rows: as many cells each.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    @classmethod
    def of(cls, items: Iterable[T], *columns: tuple[str, Callable[[T], Cell]]) -> Self:
        """A table with a row for each item.

        Args:
            items: such as the operators of a run.
            columns: the name of each, and how an item becomes its cell.
        """
        rows = [tuple(cell(item) for _, cell in columns) for item in items]
        return cls(header=tuple(name for name, _ in columns), rows=rows)

    @property
    def filled(self) -> Table:
        """The table without columns in which no row has anything."""
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
        """The table with a column of bars behind one of its own.

        Args:
            after: name of that column.
            bars: one for each row.
        """
        at = self.header.index(after) + 1
        rows = [(*row[:at], bar, *row[at:]) for row, bar in zip(self.rows, bars, strict=True)]
        return Table(header=(*self.header[:at], "", *self.header[at:]), rows=rows)


def bar(parts: Mapping[str, float], whole: float, *, first: int = 0) -> Markup:
    """A bar of coloured parts for a cell of a table, which needs no script.

    Args:
        parts: lengths by name. A bar that is longer than its cell ends with an arrow.
        whole: the length that fills the cell, positive.
        first: of the first part's colour; the others have the next ones.
    """
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
    """Fill in a template.

    Args:
        template: its file in ``templates``.
        values: by the names that it has; a name that is missing is an error.
    """
    return Markup(_environment().get_template(template).render(values))  # noqa: S704 - autoescaped


def rendered_page(template: str, title: str, plots: Sequence[Plot], **values: Any) -> str:
    """A page with the data of its plots and the script that draws them.

    Args:
        template: as ``rendered`` has it.
        title: of the page; files that are saved of its plots begin with it.
        plots: in their order.
        values: whatever else the template names.
    """
    scripts = {"packed": packed(plots, title), "plotly": plotly_js()}
    return rendered(template, title=title, plots=plots, **scripts, **values)


def plain_page(
    title: str, sentences: Sequence[str], plots: Sequence[Plot], tables: Mapping[str, Table]
) -> str:
    """A page in the style of all others.

    Args:
        title: as ``rendered_page`` has it.
        sentences: a paragraph each, above everything.
        plots: in their order.
        tables: by caption.
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
    environment.filters["seconds"] = in_seconds
    environment.filters["json"] = functools.partial(json.dumps, default=dict)
    return environment
