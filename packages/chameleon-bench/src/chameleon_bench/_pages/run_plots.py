"""The plots about a whole run.

They show the time of each operator before and after tuning, the task of each batch, and how long
the steps of the run took.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np
from chameleon_core.api import NetworkResult, words

from chameleon_bench._pages.plots import (
    DOWNWARDS,
    Column,
    Plot,
    bars,
    colour,
    logarithmic,
    of,
    points,
    seconds_axis,
    stacked_seconds,
    titled,
)
from chameleon_bench._pages.run_record import RunRecord, TaskRecord, network_seconds, since
from chameleon_bench._pages.search_plots import search_plots

_ROWS = 20
"""The number of operators whose bars are drawn; the table has all operators."""

_FAR = 4.0
"""Untuned bars longer than the others by more than this factor are cut off.

Next to such a bar, the other bars would be too short to compare.
"""


def plots_of(record: RunRecord) -> list[Plot]:
    """All plots of a run's page, in the order of the page."""
    whole = [_before_and_after(record), *_progress(record), _spending(record)]
    searches = [plot for task in record.tasks for plot in search_plots(task)]
    return [*(plot for plot in whole if plot is not None), *searches]


# ----- before and after ----------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class _Bar:
    """The time of one contender for all occurrences of one operator in an inference.

    Attributes:
        contender: The contender's name, such as ``untuned`` or ``tuned``.
        seconds: The time of all occurrences in one inference.
        delivered: The kernels that compute the operator in the delivered network. Empty if that is
            the tuned kernel alone, or if it is unknown.
    """

    operator: str
    contender: str
    seconds: float
    delivered: str = ""


_TUNED, _IN_PLACE, _FIRST = "tuned", "delivered, in place", "first guess"


_IN_ANOTHER_TYPE = (
    " An operator that is delivered in another dtype has one row, too. Its times alone are in "
    "the network's own dtype, and its time in place is that of the delivered kernels."
)


_BASELINES = " Untuned and vendor are the baselines of the final comparison."


def _before_and_after(record: RunRecord) -> Plot | None:
    """Bars for each operator: untuned, the vendor's library, the first guess, and tuned."""
    contending = _bars(record)
    if not contending:
        return None
    table, cut = _cut(contending)
    contenders = list(dict.fromkeys(bar.contender for bar in contending))
    shown = min(_ROWS, len(dict.fromkeys(bar.operator for bar in contending)))
    traces = [
        bars(
            "drawn",
            "operator",
            colour(index),
            name=contender,
            where=["contender", contender],
            text=of("label"),
            textposition="outside",
            cliponaxis=False,
            hover=["operator", "contender", "seconds", "delivered as"],
        )
        for index, contender in enumerate(contenders)
    ]
    note = (
        f" Bars that end with an arrow are longer than {words.in_seconds(cut, '.3g')}."
        if cut
        else ""
    )
    return Plot(
        key="before_and_after",
        title="Each operator before and after",
        about="The time of all occurrences of an operator in one inference. The first guess is "
        "the first configuration that was measured."
        + (_BASELINES if {"untuned", "vendor"} & set(contenders) else "")
        + (_IN_ANOTHER_TYPE if any(bar.delivered for bar in contending) else "")
        + note,
        columns=table,
        hidden=frozenset({"drawn", "label"}),
        traces=traces,
        layout={
            "barmode": "group",
            "bargap": 0.25,
            "xaxis": seconds_axis("time", range=[0.0, 1.18 * max(table["drawn"])]),
            "yaxis": {
                "type": "category",
                "categoryorder": "array",
                "categoryarray": list(dict.fromkeys(bar.operator for bar in contending)),
                "range": [shown - 0.5, -0.5],
            },
        },
        height=110 + shown * (18 + 15 * len(contenders)),
    )


def _bars(record: RunRecord) -> list[_Bar]:
    """The bars of all operators, the operator with the longest time first."""
    in_place = {kernel.name: kernel for kernel in record.network.kernels}
    tasks = {task.task.name: task for task in record.tasks if not task.task.alternative_of}
    replaced = {task.task.name: task.task.alternative_of for task in record.tasks}
    kernels: dict[str, list[NetworkResult.Kernel]] = {name: [] for name in tasks}
    for name, kernel in in_place.items():
        # Kernels that compute an operator in another dtype belong to the operator's row.
        kernels.setdefault(replaced.get(name) or name, []).append(kernel)
    of_operator: dict[str, dict[str, float | None]] = {}
    delivered: dict[str, str] = {}
    for name, kinds in kernels.items():
        task = tasks.get(name)
        times: dict[str, float | None] = {}
        if task is not None:
            calls = float(sum(kind.calls for kind in kinds) or task.task.weight)
            times = {key: _times(value, calls) for key, value in _alone(task).items()}
        if kinds:
            times[_IN_PLACE] = math.fsum(kind.seconds for kind in kinds)
        of_operator[name] = times
        if [kind.name for kind in kinds] not in ([], [name]):
            delivered[name] = ", ".join(f"{kind.name} ({kind.calls})" for kind in kinds)
    order = sorted(of_operator, key=lambda name: -_ours(of_operator[name]))
    contenders = ("untuned", "vendor", _FIRST, _TUNED, _IN_PLACE)
    return [
        _Bar(operator=name, contender=contender, seconds=seconds, delivered=delivered.get(name, ""))
        for name in order
        for contender in contenders
        if (seconds := of_operator[name].get(contender)) is not None
    ]


def _alone(task: TaskRecord) -> dict[str, float | None]:
    return {
        "untuned": task.operator.untuned_seconds,
        "vendor": task.operator.vendor_seconds,
        _FIRST: task.first_seconds,
        _TUNED: task.best_seconds,
    }


def _ours(times: Mapping[str, float | None]) -> float:
    return times.get(_IN_PLACE) or times.get(_TUNED) or 0.0


def _times(seconds: float | None, calls: float) -> float | None:
    return None if seconds is None else seconds * calls


def _cut(bars: list[_Bar]) -> tuple[dict[str, Any], float | None]:
    """The table of the bars, and the time at which long bars are cut off, or None."""
    rest = [bar.seconds for bar in bars if bar.contender != "untuned"]
    longest = max(bar.seconds for bar in bars)
    limit = _FAR / 2 * max(rest, default=longest)
    cut = limit if longest > _FAR * max(rest, default=longest) else None
    end = longest if cut is None else cut
    table: dict[str, Any] = {
        "operator": [bar.operator for bar in bars],
        "contender": [bar.contender for bar in bars],
        "seconds": [bar.seconds for bar in bars],
        "delivered as": [bar.delivered for bar in bars],
        "drawn": [min(bar.seconds, end) for bar in bars],
        "label": [
            words.in_seconds(bar.seconds, ".3g") + (" →" if bar.seconds > end else "")
            for bar in bars
        ],
    }
    return table, cut


# ----- the scheduler -------------------------------------------------------------------------


def _progress(record: RunRecord) -> list[Plot]:
    """The sum of all operators' best times during the run, and the operator of each batch."""
    if len(record.tasks) < 2 or not record.rounds:  # noqa: PLR2004 - one task needs no scheduler
        return []
    times = np.array([turn.at for turn in record.rounds])
    sums = network_seconds(record)
    table: dict[str, Column] = {
        "batch": np.arange(1, len(record.rounds) + 1),
        "wall-clock seconds": np.round(since(times, record.starts), 3),
        "operator": [turn.task for turn in record.rounds],
        "sum of best seconds": np.array(sums),
    }
    plots = [
        Plot(
            key=f"network_by_{over}",
            title=f"All operators together, over {across}",
            about="The sum of all operators' best times; each counts as often as it occurs. The "
            "line begins at the batch after which all operators have a time.",
            columns=table,
            traces=[
                {
                    **points(column, "sum of best seconds", list(table)),
                    "mode": "lines",
                    "line": {"shape": "hv", "color": "--c1", "width": 2},
                }
            ],
            layout={
                "xaxis": titled(column, rangemode="tozero"),
                "yaxis": logarithmic("sum of best times", sums),
            },
        )
        for over, across, column in (
            ("batch", "batches", "batch"),
            ("second", "seconds", "wall-clock seconds"),
        )
        if np.isfinite(sums).any()
    ]
    names = list(dict.fromkeys(turn.task for turn in record.rounds))
    turns = Plot(
        key="scheduler",
        title="Who got each batch",
        about=f"{len(record.rounds)} batches in the order in which they were measured.",
        columns=table,
        traces=[points("batch", "operator", list(table), symbol="square", size=7, color="--c1")],
        layout={"xaxis": titled("batch"), "yaxis": DOWNWARDS},
        height=100 + 28 * len(names),
    )
    return [*plots, turns]


# ----- where tuning's time went --------------------------------------------------------------


def _spending(record: RunRecord) -> Plot | None:
    """The seconds of search, model and measuring for each operator."""
    spent = [(task.task.name, task.operator.spending) for task in record.tasks]
    if not any(seconds.total for _, seconds in spent):
        return None
    spent.sort(key=lambda pair: -pair[1].total)
    parts = {"search": "search", "model": "model", "measuring": "measure"}
    table: dict[str, Column] = {
        "operator": [name for name, _ in spent],
        **{
            f"{part} seconds": [getattr(seconds, key) for _, seconds in spent]
            for part, key in parts.items()
        },
        "build seconds": [seconds.build for _, seconds in spent],
        "run seconds": [seconds.run for _, seconds in spent],
    }
    return Plot(
        key="spending",
        title="Search, model, measuring",
        about="Wall-clock seconds. Search is explorer, sampler and synthesizer. Model is learning "
        "from measurements. Measuring is waiting for builds and runs.",
        columns=table,
        **stacked_seconds(tuple(parts), "operator"),
        height=110 + 32 * len(spent),
    )
