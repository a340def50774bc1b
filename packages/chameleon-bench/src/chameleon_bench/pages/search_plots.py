"""The plots of one operator's search: what was tried, what it led to, and which knobs matter."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from chameleon_bench.pages.measured import Measured
from chameleon_bench.pages.plots import Column, Plot, logarithmic, of
from chameleon_bench.pages.run_record import TaskRecord
from chameleon_bench.pages.search_points import point_plots


def search_plots(task: TaskRecord) -> list[Plot]:
    """The plots of an operator; none where nothing has a time.

    Args:
        task: an operator of a run.
    """
    if not task.measured.ok.any():
        return []
    table: dict[str, Column] = {
        "measurement": np.arange(1, len(task.measured.seconds) + 1),
        "wall-clock seconds": np.round(task.measured.at, 3),
        "best so far": task.measured.best_so_far,
    }
    best = [_best(task, table, over=over) for over in ("measurement", "second")]
    others = [_importance(task), _predicted(task)]
    return [*point_plots(task), *best, *(plot for plot in others if plot is not None)]


def _best(task: TaskRecord, table: Mapping[str, Column], *, over: str) -> Plot:
    """The best so far; only the measurements that improved it are drawn, and the last."""
    best = task.measured.best_so_far
    better = np.flatnonzero(best < np.concatenate([[np.inf], best[:-1]]))
    rows = [*better.tolist(), len(best) - 1]
    seconds = over == "second"
    across = "wall-clock seconds" if seconds else "measurement"
    return Plot(
        key=f"best_by_{over}",
        title=f"Best so far, over {over}s",
        about="Wall-clock of the run, all operators and stages included."
        if seconds
        else "The least time of any configuration measured until then.",
        columns=table,
        traces=[
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": "best so far",
                "rows": rows,
                "x": of(across),
                "y": of("best so far"),
                "line": {"shape": "hv", "color": "--c1", "width": 2},
                "marker": {"size": 6},
                "hover": ["measurement", "wall-clock seconds", "best so far"],
            }
        ],
        layout={
            "xaxis": {"title": {"text": across}, "rangemode": "tozero"},
            "yaxis": logarithmic("best time", best.tolist()),
            "showlegend": False,
        },
        subject=task.task.name,
    )


def _importance(task: TaskRecord) -> Plot | None:
    """The share of the variance that each knob explains."""
    shares = knob_shares(task.measured)
    if not shares:
        return None
    return Plot(
        key="knobs",
        title="Which knobs matter",
        about="The share of the variance of log time that a knob explains by itself, among what "
        "was measured: one-way analysis of variance, 1 - mean square within its values / mean "
        "square in all (epsilon squared). Shares need not add up to 100 %, since knobs act "
        "together and a search does not visit their values evenly.",
        columns={"knob": list(shares), "share of variance": list(shares.values())},
        traces=[
            {
                "type": "bar",
                "orientation": "h",
                "x": of("share of variance"),
                "y": of("knob"),
                "marker": {"color": "--c1"},
                "texttemplate": "%{x:.0%}",
                "textposition": "outside",
                "cliponaxis": False,
                "hovertemplate": "%{y}: %{x:.1%}<extra></extra>",
            }
        ],
        layout={
            "xaxis": {
                "title": {"text": "share of the variance of log time"},
                "tickformat": ".0%",
                "range": [0.0, 1.15 * max(0.1, *shares.values())],
            },
            "yaxis": {"autorange": "reversed", "type": "category"},
            "showlegend": False,
        },
        subject=task.task.name,
        height=90 + 24 * len(shares),
    )


def _predicted(task: TaskRecord) -> Plot | None:
    """What the cost model promised of each configuration, and what was measured."""
    measured = task.measured
    rows = np.flatnonzero(measured.ok & np.isfinite(measured.scores))
    if len(rows) < 2:  # noqa: PLR2004 - a point is no relation
        return None
    return Plot(
        key="predicted",
        title="Predicted against measured",
        about="A point for each configuration that a trained cost model had scored when it was "
        "proposed: the score (the model's own scale, higher is better, which may move as the "
        "model learns) and the time that was measured. " + _agreement(measured, rows),
        columns={
            "measurement": rows + 1,
            "predicted score": measured.scores[rows],
            "seconds": measured.seconds[rows],
        },
        traces=[
            {
                "type": "scatter",
                "mode": "markers",
                "x": of("predicted score"),
                "y": of("seconds"),
                "hover": ["measurement", "predicted score", "seconds"],
                "marker": {"color": "--c3", "size": 6, "opacity": 0.75},
            }
        ],
        layout={
            "xaxis": {"title": {"text": "predicted score"}},
            "yaxis": logarithmic("time", measured.seconds[rows].tolist()),
            "showlegend": False,
            "hovermode": "closest",
        },
        subject=task.task.name,
    )


def _agreement(measured: Measured, rows: NDArray[np.int64]) -> str:
    """How well the scores rank the times, in words; nothing where one of them is constant."""
    scores, seconds = measured.scores[rows], measured.seconds[rows]
    if len(np.unique(scores)) < 2 or len(np.unique(seconds)) < 2:  # noqa: PLR2004 - no ranks
        return ""
    ranked = np.corrcoef(_ranks(scores), _ranks(-seconds))[0, 1]
    return f"Spearman's rank correlation is {ranked:.2f}; 1 would be the same order."


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks of values, equal ones sharing the mean of theirs; SciPy takes half a second to load."""
    _, places, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: NDArray[np.float64] = (np.cumsum(counts) - (counts - 1) / 2.0)[places]
    return ranks


LEAST = 8
"""Measurements below which shares would say nothing."""


def knob_shares(measured: Measured) -> dict[str, float]:
    """The share of the variance of log time that each knob explains alone, the largest first.

    A one-way analysis of variance for each knob, among the measurements that have a time: the
    first-order effect of Sobol' (1993), in the unbiased form of Kelley's epsilon squared (1935),
    ``1 - within-group mean square / total mean square``. A knob with many values explains much
    by chance alone, which the mean squares allow for. A knob that does not apply counts as one
    more value of it. Shares need not add up to 1: knobs act together, and a search does not visit
    their values evenly.

    Args:
        measured: of one operator.

    Returns:
        Shares from 0 to 1 by knob; empty where too little has a time, or all is equally fast.
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

    Args:
        logs: shape (n,).
        groups: the group of each, from 0, shape (n,).
        total: variance of ``logs``.
    """
    counts = np.bincount(groups)
    free = len(logs) - int(np.count_nonzero(counts))
    if free <= 0:
        return 0.0
    means = np.bincount(groups, logs) / np.maximum(counts, 1)
    within = float(((logs - means[groups]) ** 2).sum()) / free
    return min(1.0, max(0.0, 1.0 - within / total))
