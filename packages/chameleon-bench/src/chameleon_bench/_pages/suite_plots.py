"""The plots of a suite: the quality of searches over time, and where their seconds go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from chameleon_bench._pages.plots import Plot, colour, of, points, stacked_seconds, titled
from chameleon_bench._statistics.summary import CHECKPOINTS

Row = Mapping[str, Any]

PARTS = ("search", "model", "build", "run")
"""The activities that take seconds. Seconds of several workers are added up."""

_BAND = "/26"
"""The opacity of a band, as a suffix of two hexadecimal digits."""

_HIGHEST = 1.03
"""The upper end of axes that show shares of the best known speed."""


def suite_plots(report: Row) -> list[Plot]:
    """The plots of all tasks of a suite, in the order of the page."""
    colours = {name: colour(index) for index, name in enumerate(report["pipelines"])}
    plots: list[Plot] = []
    for task in report["tasks"]:
        rows = [row for row in report["results"] if row["task"] == task]
        best = rows[0]["best_known_seconds"]
        curves = [row for row in report["curves"] if row["task"] == task and "measurements" in row]
        if best and curves:
            plots += [_curves(task, curves, best, colours, over=over) for over in _ACROSS]
        others = [_quality(task, rows, colours), _spending(task, rows)]
        plots += [plot for plot in others if plot is not None]
    return plots


_ACROSS = {"measurements": "measurements", "seconds": "seconds on the run's clock"}


def _curves(
    task: str, curves: Sequence[Row], best: float, colours: Mapping[str, str], *, over: str
) -> Plot:
    """A plot of the share of the best known speed over time: median and quartiles over seeds."""
    columns: dict[str, list[Any]] = {name: [] for name in ("pipeline", over, *_SHARES)}
    traces: list[dict[str, Any]] = []
    for curve in curves:
        name, steps = curve["pipeline"], curve[over]
        begin = len(columns["pipeline"])
        columns["pipeline"] += [name] * len(steps["at"])
        columns[over] += steps["at"]
        for share, key in _SHARES.items():
            columns[share] += [best / value if value else 0.0 for value in steps[key]]
        rows = list(range(begin, len(columns["pipeline"])))
        traces += _line(name, rows, over, colours[name])
    return Plot(
        key=f"quality_by_{over}",
        title=f"Quality over {over}",
        about="The best speed found so far, as a share of the best known one. Lines are medians "
        "over seeds; bands reach from the lower to the upper quartile of the seeds.",
        columns=columns,
        traces=traces,
        layout={
            "xaxis": titled(_ACROSS[over], rangemode="tozero"),
            "yaxis": titled("share of the best known speed", range=[0.0, _HIGHEST]),
            "showlegend": True,
        },
        subject=task,
        height=380,
    )


# The slower quartile of times is the lower one of speeds.
_SHARES = {"median": "median_seconds", "lower": "high_seconds", "upper": "low_seconds"}


def _line(name: str, rows: list[int], over: str, shade: str) -> list[dict[str, Any]]:
    """The traces of a band and the line in it."""
    steps = {"type": "scatter", "mode": "lines", "rows": rows, "x": of(over), "hoverinfo": "skip"}
    edge = {**steps, "showlegend": False, "line": {"width": 0, "shape": "hv", "color": shade}}
    return [
        {**edge, "y": of("lower")},
        {**edge, "y": of("upper"), "fill": "tonexty", "fillcolor": shade + _BAND},
        {
            **steps,
            "name": name,
            "y": of("median"),
            "line": {"shape": "hv", "color": shade, "width": 2},
            "hoverinfo": "x+y+name",
            "hovertemplate": f"%{{x}}: %{{y:.1%}}<extra>{name}</extra>",
        },
    ]


def budgets(rows: Sequence[Row]) -> list[int]:
    """The numbers of measurements at which the report compares pipelines."""
    return [
        count
        for count in CHECKPOINTS
        if any(row["quality_at"][str(count)] is not None for row in rows)
    ]


def _quality(task: str, rows: Sequence[Row], colours: Mapping[str, str]) -> Plot | None:
    """A plot of the quality after several numbers of measurements, with intervals."""
    entries = [
        (row["pipeline"], at, value)
        for row in rows
        for at, value in (
            *((str(count), row["quality_at"][str(count)]) for count in budgets(rows)),
            ("end", row["final_quality"]),
        )
        if value is not None and value["median"] is not None
    ]
    if not entries:
        return None
    values = [value for *_, value in entries]
    hidden = frozenset({"above", "below"})
    columns = {
        "pipeline": [name for name, _, _ in entries],
        "measurements": [at for _, at, _ in entries],
        "quality": [value["median"] for value in values],
        "low": [value["low"] for value in values],
        "high": [value["high"] for value in values],
        "above": [_distance(value["high"], value["median"]) for value in values],
        "below": [_distance(value["median"], value["low"]) for value in values],
    }
    names = list(dict.fromkeys(columns["pipeline"]))
    hover = [column for column in columns if column not in hidden]
    ends = {"array": of("above"), "arrayminus": of("below")}
    error = {"type": "data", **ends, "thickness": 2, "width": 5}
    return Plot(
        key="quality_at_budgets",
        title="Quality at the budgets that were run",
        about="The quality after the given number of measurements, and at the end of the search: "
        "the median over seeds, with its 95 % bootstrap interval.",
        columns=columns,
        hidden=hidden,
        traces=[
            {
                # Points, since an axis of bars would have to begin at 0.
                **points("measurements", "quality", hover, color=colours[name], size=10),
                "name": name,
                "where": ["pipeline", name],
                "error_y": error,
                "offsetgroup": name,
            }
            for name in names
        ],
        layout={
            "scattermode": "group",
            "scattergap": 0.7,
            "xaxis": titled(
                "measurements",
                type="category",
                categoryorder="array",
                categoryarray=[*map(str, budgets(rows)), "end"],
            ),
            "yaxis": titled("share of the best known speed", range=_near(values)),
            "showlegend": True,
        },
        subject=task,
        height=360,
    )


def _near(values: Sequence[Row]) -> list[float]:
    """The range of an axis on which good pipelines can be told apart."""
    ends = [end for value in values for end in (value["median"], value["low"])]
    lowest = min(end for end in ends if end is not None)
    return [max(0.0, lowest - 0.3 * (1.0 - lowest) - 0.02), _HIGHEST]


def _distance(high: float | None, low: float | None) -> float:
    return 0.0 if high is None or low is None else max(0.0, high - low)


def _spending(task: str, rows: Sequence[Row]) -> Plot | None:
    """A plot of the median seconds of each activity, with one bar per pipeline."""
    columns: dict[str, list[Any]] = {"pipeline": [row["pipeline"] for row in rows]}
    for part in PARTS:
        columns[f"{part} seconds"] = [_middle(row["seconds"][part]) for row in rows]
    if not np.array([columns[f"{part} seconds"] for part in PARTS]).any():
        return None
    return Plot(
        key="seconds",
        title="Seconds by activity",
        about="Medians over seeds. Seconds of building and running are summed over workers.",
        columns=columns,
        **stacked_seconds(tuple(PARTS), "pipeline"),
        subject=task,
        height=120 + 32 * len(rows),
    )


def _middle(value: Row | None) -> float:
    """The median as the length of a bar; 0 if it is unknown."""
    return 0.0 if value is None else value["median"] or 0.0
