"""The report's figures as inline SVG, drawn by matplotlib."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

from chameleon_bench.pages.html import COLOURS

_STYLES = ("-", "--", ":")
_PARTS = {"search": "#0072b2", "model": "#56b4e9", "build": "#e69f00", "run": "#009e73"}


def curves_figure(
    task: str, curves: Sequence[Mapping[str, Any]], best_known: float | None
) -> str | None:
    """Best-so-far over measurements and over seconds, both as a share of the best known speed.

    Args:
        task: the task's name.
        curves: of the report, those of this task.
        best_known: the lowest cost known in seconds.

    Returns:
        The SVG, or None where there is nothing to draw.
    """
    drawn = [one for one in curves if "measurements" in one]
    if not drawn or not best_known:
        return None
    figure = Figure(figsize=(11, 3.6))
    for place, over in enumerate(("measurements", "seconds")):
        axes = figure.add_subplot(1, 2, place + 1)
        for number, one in enumerate(drawn):
            at, line = one[over]["at"], one[over]
            colour = COLOURS[number % len(COLOURS)]
            share = [_share(best_known, value) for value in line["median_seconds"]]
            # The slower quartile is the lower speed.
            below = [_share(best_known, value) for value in line["high_seconds"]]
            above = [_share(best_known, value) for value in line["low_seconds"]]
            style = _STYLES[number // len(COLOURS) % len(_STYLES)]
            axes.step(at, share, style, where="post", color=colour, label=one["pipeline"], lw=1.6)
            axes.fill_between(at, below, above, step="post", color=colour, alpha=0.13, lw=0)
        axes.set_xlabel("measurements" if over == "measurements" else "seconds on the run's clock")
        axes.set_ylabel("share of the best known speed")
        axes.set_ylim(0, 1.03)
        axes.set_xlim(left=0)
        axes.grid(visible=True, alpha=0.25)
        if not place:
            axes.legend(fontsize=8, loc="lower right")
    return _svg(figure, f"{task}-curves")


def seconds_figure(task: str, rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Median seconds in search, model, build and run, one bar per pipeline."""
    known = [row for row in rows if row.get("seconds") and row["seconds"]["run"] is not None]
    if not known:
        return None
    figure = Figure(figsize=(11, 0.9 + 0.34 * len(known)))
    axes = figure.add_subplot(1, 1, 1)
    names = [row["pipeline"] for row in known]
    left = [0.0] * len(known)
    for part, colour in _PARTS.items():
        widths = [row["seconds"][part]["median"] or 0.0 for row in known]
        axes.barh(names, widths, left=left, color=colour, label=part)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    axes.invert_yaxis()
    axes.set_xlabel("seconds (build and run summed over workers)")
    axes.legend(fontsize=8, ncols=4)
    return _svg(figure, f"{task}-seconds")


def _share(best: float, value: float | None) -> float:
    return best / value if value else 0.0


def _svg(figure: Any, salt: str) -> str:
    settings = {
        "svg.fonttype": "none",  # text stays text: smaller, and found by the browser's search
        "svg.hashsalt": salt,  # identifiers differ between figures of a page, not between runs
        "font.family": "sans-serif",
    }
    stream = io.StringIO()
    with rc_context(settings):
        figure.tight_layout()
        figure.savefig(stream, format="svg", metadata={"Date": None, "Creator": None})
    text = stream.getvalue()
    return text[text.index("<svg") :]
