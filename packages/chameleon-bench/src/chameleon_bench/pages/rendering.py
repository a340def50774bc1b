"""Templates become pages here: one environment, in which every text is escaped."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
from chameleon_core.words import in_seconds
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from chameleon_bench.pages.drawing import drawing

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
