"""The page about a run: what ``templates/run.html`` shows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
from chameleon_core.loop.end.shortfalls import slower
from chameleon_core.loop.round.batch import Origin
from chameleon_core.words import in_seconds
from markupsafe import Markup

from chameleon_bench.pages.figures import Level, bar, colours_of, steps_figure, strip_figure
from chameleon_bench.pages.network_part import network_part
from chameleon_bench.pages.rendering import Table, rendered
from chameleon_bench.pages.run_record import RunRecord, TaskRecord, network_seconds

_FEW = 4
"""Operators whose curves are open when the page is."""


@attrs.frozen(kw_only=True)
class _Search:
    """What is shown of one operator's search.

    Attributes:
        record: the operator.
        described: what it computes, in the words of a pipeline.
        curve: speed of each measurement and of the best so far.
        comparison: the final one; None where there was nothing to compare.
    """

    record: TaskRecord
    described: str
    curve: Markup
    comparison: Table | None


def page_of(record: RunRecord) -> str:
    """The page.

    Args:
        record: the run.
    """
    settled = None if record.network.layout else record.settled
    return rendered(
        "run.html",
        title=record.folder.name,
        record=record,
        measured=sum(one.operator.measurements for one in record.tasks),
        slower=slower(record.network, [one.operator for one in record.tasks]),
        settled=None if settled is None else settled.get("summary", settled),
        network=network_part(record),
        operators=_operators(record),
        rounds=_rounds(record),
        searches=[_search(one) for one in record.tasks],
        opened=len(record.tasks) <= _FEW,
        origins=_origins(record),
        spending=_spending(record),
        failures=_failures(record),
        origin=Table(
            header=("what", "value"),
            rows=[
                ("target", record.target),
                *((name, json.dumps(value)) for name, value in record.runner.items()),
            ],
        ),
    )


def _operators(record: RunRecord) -> Table:
    rows = []
    for one in record.tasks:
        operator, best = one.operator, one.best_seconds
        error = operator.max_relative_error
        rows.append(
            (
                operator.name,
                str(one.task.weight),
                in_seconds(one.first_seconds),
                in_seconds(best),
                in_seconds(operator.untuned_seconds),
                in_seconds(operator.vendor_seconds),
                "-" if operator.ratio is None else f"{operator.ratio:.3f}",
                "-" if best is None else f"{one.task.flop / best / 1e9:.1f}",
                "-" if error is None else f"{error:.1e}",
                str(operator.measurements),
                str(sum(operator.failed.values())),
            )
        )
    header = (
        *("operator", "occurs", "first", "tuned", "untuned", "vendor", "ratio", "GFLOP/s"),
        *("error", "measured", "failed"),
    )
    return Table(header=header, rows=rows)


def _rounds(record: RunRecord) -> dict[str, Any] | None:
    """The scheduler's turns, and the network's time after each; None where it had no choice."""
    if len(record.tasks) < 2 or not record.rounds:  # noqa: PLR2004 - one has no scheduler
        return None
    names = [turn.task for turn in record.rounds]
    sums = 1e3 * np.array(network_seconds(record))
    curve = None
    if np.isfinite(sums).any():
        curve = steps_figure([], sums.tolist(), across="batches", upwards="ms")
    return {
        "count": len(names),
        "strip": strip_figure(names),
        "colours": colours_of(names),
        "sums": curve,
    }


def _search(one: TaskRecord) -> _Search:
    words = (f"{name} {json.dumps(value)}" for name, value in one.task.arguments.items())
    return _Search(
        record=one,
        described=f"{one.task.operator}: {', '.join(words)}",
        curve=_curve(one),
        comparison=_comparison(one),
    )


def _curve(one: TaskRecord) -> Markup:
    operation = one.task.flop / 1e9
    upwards = "GFLOP/s"
    if not operation:
        operation, upwards = 1.0, "runs a second"
    fastest: dict[str, float] = {}
    for variant in one.operator.variants:
        if variant.name != "tuned" and variant.seconds is not None:
            speed = operation / variant.seconds
            fastest[variant.name] = max(speed, fastest.get(variant.name, 0.0))
    return steps_figure(
        _speeds(operation, one.costs),
        _speeds(operation, one.best_so_far),
        across="measurements",
        upwards=upwards,
        levels=[Level(name=name, value=value) for name, value in fastest.items()],
    )


def _speeds(operation: float, costs: Any) -> Sequence[float]:
    """Speeds; a failure has an infinite cost, and no place in the figure."""
    speeds: list[float] = np.where(np.isfinite(costs), operation / costs, np.nan).tolist()
    return speeds


def _comparison(one: TaskRecord) -> Table | None:
    timed = [
        (variant.seconds, f"{variant.name} {variant.variant}".strip(), variant.name)
        for variant in one.operator.variants
        if variant.seconds is not None
    ]
    if len(timed) < 2:  # noqa: PLR2004 - nothing to compare
        return None
    timed.sort(key=lambda variant: variant[0])
    ours, whole = one.operator.tuned_seconds, timed[-1][0]
    rows = [
        (
            label,
            in_seconds(value),
            f"{value / ours:.2f}" if ours else "-",
            bar({name: value}, whole),
        )
        for value, label, name in timed
    ]
    return Table(header=("compared, in turns", "median", "times tuned", ""), rows=rows)


def _origins(record: RunRecord) -> Table | None:
    """What put configurations into batches; None of a run whose version did not record it."""
    if not any(one.operator.origins for one in record.tasks):
        return None
    rows = [
        (one.task.name, *(str(one.operator.origins.get(origin, 0)) for origin in Origin))
        for one in record.tasks
    ]
    return Table(header=("operator", *Origin), rows=rows)


def _spending(record: RunRecord) -> Table:
    whole = max((one.operator.spending.total for one in record.tasks), default=0.0)
    rows = []
    for one in record.tasks:
        spent = one.operator.spending
        parts = {"search": spent.search, "model": spent.model, "measuring": spent.measure}
        rows.append(
            (
                one.task.name,
                bar(parts, whole),
                *(f"{seconds:.2f}" for seconds in (spent.total, *parts.values())),
                f"{spent.build:.2f}",
                f"{spent.run:.2f}",
            )
        )
    header = ("operator", "", "total", "search", "model", "measuring", "build", "run")
    return Table(header=header, rows=rows)


def _failures(record: RunRecord) -> Table | None:
    rows = [
        (
            one.task.name,
            ", ".join(f"{kind} {count}" for kind, count in sorted(one.operator.failed.items())),
            one.operator.failure or "",
        )
        for one in record.tasks
        if one.operator.failed
    ]
    return Table(header=("operator", "kinds", "an example"), rows=rows) if rows else None
