"""The plots of one operator's search: what was tried, what it led to, and which knobs matter."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from chameleon_bench.pages.importance import knob_shares
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
    """What the cost model promised of each batch, and the fastest time that was measured in it."""
    scores, fastest, batches = [], [], []
    for number, turn in enumerate(task.batches):
        times = task.measured.seconds[turn.begin : turn.end]
        if turn.score is not None and np.isfinite(times).any():
            scores.append(turn.score)
            fastest.append(float(times.min()))
            batches.append(number + 1)
    if len(scores) < 2:  # noqa: PLR2004 - a point is no relation
        return None
    return Plot(
        key="predicted",
        title="Predicted against measured",
        about="A point for each batch: the best score that the cost model gave to a new "
        "candidate (its own scale, higher is better) and the fastest time measured in the batch. "
        "The store keeps no prediction of single configurations.",
        columns={"batch": batches, "best score": scores, "fastest seconds": fastest},
        traces=[
            {
                "type": "scatter",
                "mode": "markers",
                "x": of("best score"),
                "y": of("fastest seconds"),
                "hover": ["batch", "best score", "fastest seconds"],
                "marker": {"color": "--c3", "size": 8},
            }
        ],
        layout={
            "xaxis": {"title": {"text": "best score of the batch"}},
            "yaxis": logarithmic("fastest time", fastest),
            "showlegend": False,
            "hovermode": "closest",
        },
        subject=task.task.name,
    )


__all__ = ["search_plots"]
