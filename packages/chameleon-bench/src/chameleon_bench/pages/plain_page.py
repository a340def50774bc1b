"""A page of sentences, plots and tables, for packages that have no template of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from chameleon_bench.pages.plots import Plot, packed, plotly_js
from chameleon_bench.pages.rendering import Table, rendered


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


__all__ = ["plain_page"]
