"""Pages of HTML that need nothing else: one style, tables, numbers in words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8a6d3b")
"""Okabe and Ito's palette, which colour-blind readers can tell apart, and a brown."""

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem;
       color: #1b1b1b; background: #fff; }
h1, h2, h3 { line-height: 1.2; } h2 { margin-top: 2.5rem; border-bottom: 1px solid #ccc; }
table { border-collapse: collapse; font-size: 13px; margin: .8rem 0; display: block;
        overflow-x: auto; }
th, td { padding: .25rem .7rem; text-align: right; white-space: nowrap;
         border-bottom: 1px solid #e4e4e4; font-variant-numeric: tabular-nums; }
th { background: #f4f4f4; } th:first-child, td:first-child { text-align: left; }
small, .note { color: #666; } pre { background: #f7f7f7; padding: .8rem; overflow-x: auto; }
svg { max-width: 100%; height: auto; }
"""


def document(title: str, parts: Iterable[str]) -> str:
    """A whole page.

    Args:
        title: as plain text.
        parts: its body, as HTML.
    """
    return (
        "<!DOCTYPE html>\n<html lang=en><head><meta charset=utf-8>"
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of plain text; the first column is text, the others are numbers."""
    return raw_table(header, ([escape(str(cell)) for cell in row] for row in rows))


def raw_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table whose cells are HTML already; the header is plain text."""
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "\n".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table>"
