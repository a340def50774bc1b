"""Plots with a point for each measurement of one operator: candidates tried, a map of the space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from chameleon_core.loop.end.operator_result import TUNED
from chameleon_core.words import in_seconds
from numpy.typing import NDArray

from chameleon_bench.pages.measured import Categories, Measured
from chameleon_bench.pages.plots import Column, Plot, at, colour, logarithmic, of
from chameleon_bench.pages.run_record import TaskRecord

_SLOW = 30.0
"""How many times as long as the best a candidate is drawn at most: with longer ones in sight the
contenders could not be told apart."""

_ABOVE = 1.25
"""Failures are drawn this many times above the slowest time that is in sight."""

_FAILED = "failed"
_MUTED = "--muted"


def point_plots(task: TaskRecord) -> list[Plot]:
    """Candidates over measurements, and in the plane; they share one table.

    Args:
        task: an operator with a measurement that has a time.
    """
    slow = float(task.measured.seconds.min()) * _SLOW
    groups = _groups(task.measured, slow)
    table = {**_table(task, slow), "group": groups}
    plots = [_candidates(task, table, groups, slow), _map(task, table)]
    return [plot for plot in plots if plot is not None]


def _table(task: TaskRecord, slow: float) -> dict[str, Column]:
    """A row for each measurement; several plots share it.

    Args:
        task: the operator.
        slow: seconds beyond which a measurement is drawn as a triangle at the edge.
    """
    measured = task.measured
    places, _ = projected(measured.configs)
    finite = np.where(measured.ok, measured.seconds, np.nan)
    return {
        "measurement": np.arange(1, len(finite) + 1),
        "seconds": finite,
        "spread": np.round(measured.spread, 4),
        "wall-clock seconds": np.round(measured.at, 3),
        "origin": measured.origins,
        "failure": measured.failures,
        **{f"knob {name}": knob for name, knob in measured.knobs.items()},
        "component 1": np.round(places[:, 0], 3),
        "component 2": np.round(places[:, 1], 3),
        # For the screen.
        "times the best": np.round(np.minimum(finite / slow, 1.0) * _SLOW, 2),
    }


_DRAWN = frozenset({"times the best", "group"})
_PLACES = frozenset({"component 1", "component 2"})


def _groups(measured: Measured, slow: float) -> Categories:
    """What each measurement is drawn as: its origin, or that it is slow, or that it failed."""
    labels = [*measured.origins.labels, f"over {in_seconds(slow, '.3g')}", _FAILED]
    codes = np.where(measured.seconds > slow, len(labels) - 2, measured.origins.codes)
    return Categories(labels=labels, codes=np.where(measured.ok, codes, len(labels) - 1))


def _hover(task: TaskRecord) -> list[str]:
    knobs = [f"knob {name}" for name in task.measured.knobs]
    return ["measurement", "seconds", "spread", "origin", "failure", *knobs]


def _candidates(
    task: TaskRecord, table: Mapping[str, Column], groups: Categories, slow: float
) -> Plot:
    """Every measurement, by what put it into its batch."""
    timed = task.measured.seconds[task.measured.ok]
    edge = min(slow, float(timed.max()))
    drawn_at = {len(groups.labels) - 2: at(edge), len(groups.labels) - 1: at(_ABOVE * edge)}
    counts = np.bincount(groups.codes, minlength=len(groups.labels))
    traces: list[dict[str, Any]] = []
    for place, (name, count) in enumerate(zip(groups.labels, counts.tolist(), strict=True)):
        if not count:
            continue
        last = len(groups.labels) - 1
        symbol = {last: "x", last - 1: "triangle-up"}.get(place, "circle")
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": f"{name} ({count})",
                "where": ["group", name],
                "x": of("measurement"),
                "y": drawn_at.get(place, of("seconds")),
                "hover": _hover(task),
                "marker": {
                    "color": _MUTED if place >= last - 1 else colour(place),
                    "symbol": symbol,
                    "size": 6,
                    "opacity": 0.75,
                },
            }
        )
    lines = _levels(task, len(task.measured.seconds))
    traces += lines
    return Plot(
        key="candidates",
        title="Candidates tried",
        about="Each point is one configuration that was measured; its colour says what proposed "
        f"it. Times are on a logarithmic scale; triangles are slower than {_SLOW:g} times the "
        "best, and crosses above them have failed. The plot shows knobs if you point at one.",
        columns=table,
        hidden=_DRAWN | _PLACES,
        traces=traces,
        layout={
            "xaxis": {"title": {"text": "measurement"}},
            "yaxis": logarithmic("time", [float(timed.min()), _ABOVE * edge, *_heights(lines)]),
            "hovermode": "closest",
            "showlegend": True,
        },
        subject=task.task.name,
        height=430,
    )


def _levels(task: TaskRecord, count: int) -> list[dict[str, Any]]:
    """Dashed lines at what the final comparison found for everything but the tuned kernel."""
    fastest: dict[str, float] = {}
    for variant in task.operator.variants:
        if variant.name != TUNED and variant.seconds is not None:
            fastest[variant.name] = min(variant.seconds, fastest.get(variant.name, np.inf))
    top = float(task.measured.seconds.min()) * _SLOW
    lines = []
    for place, (name, seconds) in enumerate(fastest.items()):
        beyond = ", above the plot" if seconds > top else ""
        lines.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": f"{name} {in_seconds(seconds)}{beyond}",
                "x": [1, max(count, 2)],
                # A line that is out of sight has its time in the legend.
                "y": [None if beyond else seconds] * 2,
                "line": {"dash": "dash" if place % 2 else "dot", "width": 1.5, "color": "--ink"},
                "hoverinfo": "name",
            }
        )
    return lines


def _heights(lines: Sequence[Mapping[str, Any]]) -> list[float]:
    """Where lines are that are in sight."""
    return [line["y"][0] for line in lines if line["y"][0] is not None]


def _map(task: TaskRecord, table: Mapping[str, Column]) -> Plot | None:
    """Where measurements are in the space; None if they do not differ in any knob."""
    measured = task.measured
    _, kept = projected(measured.configs)
    if not kept:
        return None
    best = [int(measured.seconds.argmin())]
    point = {
        "type": "scatter",
        "mode": "markers",
        "x": of("component 1"),
        "y": of("component 2"),
        "hover": _hover(task),
    }
    scale = {"title": {"text": "times<br>the best"}, "thickness": 12, "outlinewidth": 0}
    shade = {
        "color": of("times the best"),
        "colorscale": [[0.0, "--c1"], [1.0, "--c5"]],
        "cmin": 1.0,
        "cmax": _upper(measured.seconds),
        "colorbar": scale,
        "size": 6,
        "opacity": 0.85,
    }
    traces: list[dict[str, Any]] = [
        # Its colours are told beside it, so that it needs no legend.
        {**point, "showlegend": False, "skip": ["group", _FAILED], "marker": shade}
    ]
    if not measured.ok.all():
        cross = {"symbol": "x", "size": 5, "color": _MUTED, "opacity": 0.6}
        failed = {**point, "name": _FAILED, "where": ["group", _FAILED], "marker": cross}
        traces.insert(0, failed)
    star = {"symbol": "star", "size": 17, "color": "--c2", "line": {"width": 1, "color": "--paper"}}
    traces.append({**point, "name": "best", "rows": best, "marker": star})
    return Plot(
        key="map",
        title="A map of the space",
        about="Configurations that are alike are near each other. The axes are the first two "
        f"principal components of the knobs' indices. They keep {kept:.0%} of the variance of "
        "this operator's measured configurations. A run does not keep candidates that it "
        "explored and never measured.",
        columns=table,
        hidden=_DRAWN,
        traces=traces,
        layout={
            "xaxis": {"title": {"text": "component 1"}, "zeroline": False},
            "yaxis": {"title": {"text": "component 2"}, "zeroline": False},
            "hovermode": "closest",
            "showlegend": True,
        },
        subject=task.task.name,
        height=430,
    )


def _upper(seconds: NDArray[np.float64]) -> float:
    """Where the scale of colours ends: nine in ten have a colour of their own."""
    times = seconds[np.isfinite(seconds)] / seconds.min()
    return max(1.1, float(np.quantile(times, 0.9)))


def projected(configs: NDArray[np.int64]) -> tuple[NDArray[np.float64], float]:
    """The first two principal components of knob indices, each knob scaled to run from 0 to 1.

    Scaled by its range and not by its deviation, a value that was hardly ever measured does not
    take the map for itself.

    Args:
        configs: knob indices, shape (n, knobs).

    Returns:
        Coordinates of shape (n, 2), and the share of the variance that they keep, from 0 to 1.
    """
    values = configs.astype(np.float64)
    places = np.zeros((len(values), 2))
    if not values.size:
        return places, 0.0
    ranges = np.ptp(values, axis=0)
    varying = ranges > 0.0
    if not varying.any():
        return places, 0.0
    scaled = (values[:, varying] - values[:, varying].mean(axis=0)) / ranges[varying]
    # Rising eigenvalues of a small matrix, shape (knobs, knobs): rows need not be decomposed.
    strengths, directions = np.linalg.eigh(scaled.T @ scaled)
    axes = directions[:, ::-1][:, :2]
    # An eigenvector may point either way: its largest part is positive, so that maps agree.
    axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(axes.shape[1])])
    places[:, : axes.shape[1]] = scaled @ axes
    return places, float(strengths[::-1][:2].sum() / strengths.sum())
