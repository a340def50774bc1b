"""Bars in the cells of tables: beside their numbers, and there without a script."""

from __future__ import annotations

from collections.abc import Mapping

from markupsafe import Markup

from chameleon_bench.pages.plots import colour
from chameleon_bench.pages.rendering import rendered


def bar(parts: Mapping[str, float], whole: float, *, place: int = 0) -> Markup:
    """A bar of coloured parts, for a cell of a table.

    Args:
        parts: lengths by name. A bar that is longer than its cell ends with an arrow.
        whole: the length that fills the cell, positive.
        place: of the first part's colour; the others have the next ones.
    """
    shares = [part / whole if whole else 0.0 for part in parts.values()]
    beyond = sum(shares) > 1.0 + 1e-9
    if beyond:
        shares = [share / sum(shares) for share in shares]
    made = [
        {"name": name, "colour": colour(place + number), "percent": round(100 * share, 1)}
        for number, (name, share) in enumerate(zip(parts, shares, strict=True))
    ]
    return rendered("bar.html", parts=made, beyond=beyond)
