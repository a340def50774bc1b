"""The plots of one operator's search: candidates, the best time, and the importance of knobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from chameleon_core.api import words
from numpy.typing import NDArray

from chameleon_bench._pages.plots import (
    DOWNWARDS,
    Column,
    Plot,
    at,
    bars,
    colour,
    logarithmic,
    of,
    points,
    titled,
)
from chameleon_bench._pages.run_record import Categories, Measured, TaskRecord


def search_plots(task: TaskRecord) -> list[Plot]:
    """The plots of an operator's search; none if no measurement has a time."""
    if not task.measured.ok.any():
        return []
    table: dict[str, Column] = {
        "measurement": np.arange(1, len(task.measured.seconds) + 1),
        "wall-clock seconds": np.round(task.measured.at, 3),
        "best so far": task.measured.best_so_far,
    }
    best = [_best(task, table, over=over) for over in ("measurement", "second")]
    plots = [*_point_plots(task), *best, _importance(task), _predicted(task)]
    return [plot for plot in plots if plot is not None]


def _best(task: TaskRecord, table: Mapping[str, Column], *, over: str) -> Plot:
    """A plot of the best time so far: measurements that improved it, and the last one."""
    best = task.measured.best_so_far
    better = np.flatnonzero(best < np.concatenate([[np.inf], best[:-1]]))
    rows = [*better.tolist(), len(best) - 1]
    seconds = over == "second"
    across = "wall-clock seconds" if seconds else "measurement"
    return Plot(
        key=f"best_by_{over}",
        title=f"Best so far, over {over}s",
        about="Wall-clock seconds of the run, with all operators and stages."
        if seconds
        else "The lowest time of all configurations measured so far.",
        columns=table,
        traces=[
            {
                **points(across, "best so far", list(table), size=6),
                "mode": "lines+markers",
                "name": "best so far",
                "rows": rows,
                "line": {"shape": "hv", "color": "--c1", "width": 2},
            }
        ],
        layout={
            "xaxis": titled(across, rangemode="tozero"),
            "yaxis": logarithmic("best time", best.tolist()),
        },
        subject=task.task.name,
    )


def _importance(task: TaskRecord) -> Plot | None:
    """A plot of the share of the variance that each knob explains."""
    shares = knob_shares(task.measured)
    if not shares:
        return None
    return Plot(
        key="knobs",
        title="Importance of knobs",
        about="The share of the variance of log time that a knob explains by itself, over all "
        "measurements: one-way analysis of variance, 1 - mean square within its values / total "
        "mean square (epsilon squared). Shares need not add up to 100 %, since knobs act "
        "together and a search does not visit their values evenly.",
        columns={"knob": list(shares), "share of variance": list(shares.values())},
        traces=[
            bars(
                "share of variance",
                "knob",
                "--c1",
                texttemplate="%{x:.0%}",
                textposition="outside",
                cliponaxis=False,
                hovertemplate="%{y}: %{x:.1%}<extra></extra>",
            )
        ],
        layout={
            "xaxis": titled(
                "share of the variance of log time",
                tickformat=".0%",
                range=[0.0, 1.15 * max(0.1, *shares.values())],
            ),
            "yaxis": DOWNWARDS,
        },
        subject=task.task.name,
        height=90 + 24 * len(shares),
    )


def _predicted(task: TaskRecord) -> Plot | None:
    """A plot of the cost model's score against the measured time."""
    measured = task.measured
    rows = np.flatnonzero(measured.ok & np.isfinite(measured.scores))
    if len(rows) < 2:  # noqa: PLR2004 - a single point shows no relation
        return None
    columns = {
        "measurement": rows + 1,
        "predicted score": measured.scores[rows],
        "seconds": measured.seconds[rows],
    }
    return Plot(
        key="predicted",
        title="Predicted against measured",
        about="Each point is a configuration that a trained cost model had scored when it was "
        "proposed. It shows the score and the measured time. Higher scores are better; their "
        "scale is the model's own and may change as the model learns. "
        + _agreement(measured, rows),
        columns=columns,
        traces=[
            points("predicted score", "seconds", list(columns), color="--c3", size=6, opacity=0.75)
        ],
        layout={
            "xaxis": titled("predicted score"),
            "yaxis": logarithmic("time", measured.seconds[rows].tolist()),
        },
        subject=task.task.name,
    )


def _agreement(measured: Measured, rows: NDArray[np.int64]) -> str:
    """A sentence about how well the scores rank the times; empty if either is constant."""
    scores, seconds = measured.scores[rows], measured.seconds[rows]
    if len(np.unique(scores)) < 2 or len(np.unique(seconds)) < 2:  # noqa: PLR2004 - equal values have no ranks
        return ""
    ranked = np.corrcoef(_ranks(scores), _ranks(-seconds))[0, 1]
    return f"Spearman's rank correlation is {ranked:.2f}; 1 would be the same order."


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks of values; equal values share their mean rank."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: NDArray[np.float64] = (np.cumsum(counts) - (counts - 1) / 2.0)[places]
    return ranks


LEAST = 8
"""The fewest measurements for which shares are computed."""


def knob_shares(measured: Measured) -> dict[str, float]:
    """How much of the variance of the logarithm of time each knob alone explains.

    Shares need not add up to 1, because knobs act together, and because a search does not visit
    their values evenly.
    """
    ok = measured.ok
    logs = np.log(measured.seconds[ok])
    if len(logs) < LEAST or np.ptp(logs) == 0.0:
        return {}
    total = float(logs.var(ddof=1))
    shares = {
        name: _share(logs, knob.codes[ok] + 1, total) for name, knob in measured.knobs.items()
    }
    return dict(sorted(shares.items(), key=lambda pair: -pair[1]))


def _share(logs: NDArray[np.float64], groups: NDArray[np.int64], total: float) -> float:
    """Epsilon squared of one grouping.

    ``logs`` are the logarithms of the times, shape (n,). ``groups`` is the number of each time's
    group, from 0, shape (n,).
    """
    counts = np.bincount(groups)
    free = len(logs) - int(np.count_nonzero(counts))
    if free <= 0:
        return 0.0
    means = np.bincount(groups, logs) / np.maximum(counts, 1)
    within = float(((logs - means[groups]) ** 2).sum()) / free
    return min(1.0, max(0.0, 1.0 - within / total))


# ----- a point for each measurement ----------------------------------------------------------

_SLOW = 30.0
"""Candidates slower than the best by more than this factor are drawn at the edge of the plot.

With such times in the plot, the fast candidates could not be told apart.
"""

_ABOVE = 1.25
"""Failures are drawn above the slowest drawn time by this factor."""

_FAILED = "failed"
_MUTED = "--muted"


def _point_plots(task: TaskRecord) -> list[Plot | None]:
    """The plots with one point per measurement, which share a table: candidates, and a map."""
    slow = float(task.measured.seconds.min()) * _SLOW
    groups = _groups(task.measured, slow)
    table = {**_table(task, slow), "group": groups}
    return [_candidates(task, table, groups, slow), _map(task, table)]


def _table(task: TaskRecord, slow: float) -> dict[str, Column]:
    """The table with one row per measurement, for several plots.

    ``slow`` is the number of seconds above which a measurement is drawn as a triangle at the edge.
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
        # The colours of the screen use this column.
        "times the best": np.round(np.minimum(finite / slow, 1.0) * _SLOW, 2),
    }


_DRAWN = frozenset({"times the best", "group"})
_PLACES = frozenset({"component 1", "component 2"})


def _groups(measured: Measured, slow: float) -> Categories:
    """The group of each measurement: its origin, or "slow", or "failed"."""
    labels = [*measured.origins.labels, f"over {words.in_seconds(slow, '.3g')}", _FAILED]
    codes = np.where(measured.seconds > slow, len(labels) - 2, measured.origins.codes)
    return Categories(labels=labels, codes=np.where(measured.ok, codes, len(labels) - 1))


def _hover(task: TaskRecord) -> list[str]:
    knobs = [f"knob {name}" for name in task.measured.knobs]
    return ["measurement", "seconds", "spread", "origin", "failure", *knobs]


def _candidates(
    task: TaskRecord, table: Mapping[str, Column], groups: Categories, slow: float
) -> Plot:
    """A plot of all measurements, coloured by origin."""
    timed = task.measured.seconds[task.measured.ok]
    edge = min(slow, float(timed.max()))
    last = len(groups.labels) - 1
    drawn_at = {last - 1: at(edge), last: at(_ABOVE * edge)}
    symbols = {last - 1: "triangle-up", last: "x"}
    counts = np.bincount(groups.codes, minlength=len(groups.labels))
    traces: list[dict[str, Any]] = []
    for index, (name, count) in enumerate(zip(groups.labels, counts.tolist(), strict=True)):
        if not count:
            continue
        look = {
            "color": _MUTED if index >= last - 1 else colour(index),
            "symbol": symbols.get(index, "circle"),
            "size": 6,
            "opacity": 0.75,
        }
        traces.append(
            {
                **points("measurement", "seconds", _hover(task), **look),
                "name": f"{name} ({count})",
                "where": ["group", name],
                "y": drawn_at.get(index, of("seconds")),
            }
        )
    lines = _levels(task, len(task.measured.seconds))
    traces += lines
    in_sight = [line["y"][0] for line in lines if line["y"][0] is not None]
    return Plot(
        key="candidates",
        title="Candidates tried",
        about="Each point is a measured configuration. Its colour shows which stage proposed it. "
        f"Triangles took more than {_SLOW:g} times as long as the best, and crosses above them "
        "failed. The scale is logarithmic. Point at a point to see its knobs.",
        columns=table,
        hidden=_DRAWN | _PLACES,
        traces=traces,
        layout={
            "xaxis": titled("measurement"),
            "yaxis": logarithmic("time", [float(timed.min()), _ABOVE * edge, *in_sight]),
            "showlegend": True,
        },
        subject=task.task.name,
        height=430,
    )


def _levels(task: TaskRecord, count: int) -> list[dict[str, Any]]:
    """Dashed lines at the times of the final comparison, except for tuned kernels."""
    fastest: dict[str, float] = {}
    for variant in task.operator.variants:
        if not variant.tuned and variant.seconds is not None:
            fastest[variant.name] = min(variant.seconds, fastest.get(variant.name, np.inf))
    top = float(task.measured.seconds.min()) * _SLOW
    lines = []
    for index, (name, seconds) in enumerate(fastest.items()):
        beyond = ", above the plot" if seconds > top else ""
        lines.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": f"{name} {words.in_seconds(seconds)}{beyond}",
                "x": [1, max(count, 2)],
                # A line that is out of sight has its time in the legend.
                "y": [None if beyond else seconds] * 2,
                "line": {"dash": "dash" if index % 2 else "dot", "width": 1.5, "color": "--ink"},
                "hoverinfo": "name",
            }
        )
    return lines


def _map(task: TaskRecord, table: Mapping[str, Column]) -> Plot | None:
    """A map of the measured configurations; None if they do not differ in any knob."""
    measured = task.measured
    _, rows = projected(measured.configs)
    if not rows:
        return None
    best = [int(measured.seconds.argmin())]
    point = points("component 1", "component 2", _hover(task))
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
        # A scale of colours beside the plot replaces the legend.
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
        about="Similar configurations are near each other. The axes are the first two principal "
        f"components of the knobs' indices. They keep {rows:.0%} of the variance of this "
        "operator's measured configurations. A run does not keep candidates that it never "
        "measured.",
        columns=table,
        hidden=_DRAWN,
        traces=traces,
        layout={
            "xaxis": titled("component 1", zeroline=False),
            "yaxis": titled("component 2", zeroline=False),
            "showlegend": True,
        },
        subject=task.task.name,
        height=430,
    )


def _upper(seconds: NDArray[np.float64]) -> float:
    """The upper end of the colour scale: the 90 % quantile of the times over the best time."""
    times = seconds[np.isfinite(seconds)] / seconds.min()
    return max(1.1, float(np.quantile(times, 0.9)))


def projected(configs: NDArray[np.int64]) -> tuple[NDArray[np.float64], float]:
    """Project configurations to two dimensions, by principal components of knob indices.

    Otherwise a rarely measured value of a knob would dominate the map.

    Args:
        configs: Knob indices, shape (n, knobs).

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
