"""The report of a run as one HTML page that needs nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape

import numpy as np
from chameleon_core.loop.verdicts import slower
from chameleon_core.words import in_seconds

from chameleon_bench.pages.drawing import Level, bar, legend, steps_figure, strip_figure
from chameleon_bench.pages.html import document, raw_table, table
from chameleon_bench.pages.network_part import network_part
from chameleon_bench.pages.run_record import RunRecord, TaskRecord, network_seconds

_FEW = 4
"""Operators whose curves are open when the page is."""


def page_of(record: RunRecord) -> str:
    """The page.

    Args:
        record: the run.
    """
    parts = [
        *_head(record),
        *network_part(record),
        *_operators(record),
        *_rounds(record),
        *_curves(record),
        *_spending(record),
        *_failures(record),
        *_origin(record),
    ]
    return document(record.folder.name, parts)


def _head(record: RunRecord) -> Iterator[str]:
    measured = sum(one.operator.measurements for one in record.tasks)
    state = "finished" if record.finished else "not finished; this is what is known so far"
    yield f"<h1>{escape(record.folder.name)}</h1>"
    behind = slower(record.network, [one.operator for one in record.tasks])
    if behind is not None:
        yield f"<p><b>{escape(behind)}</b></p>"
    yield (
        f"<p>{len(record.tasks)} operators, {measured} measurements, {record.seconds:.1f} s: "
        f"{state}.</p>"
    )
    if record.settled is not None and not record.network.layout:
        yield f"<p>Chosen first: {escape(str(record.settled.get('summary', record.settled)))}.</p>"


def _operators(record: RunRecord) -> Iterator[str]:
    yield "<h2>Operators</h2>"
    yield (
        "<p class=note>First: the first configuration that had a time. Untuned and vendor: the "
        "baselines of the final comparison, the fastest of their variants. Ratio: vendor / "
        "tuned, above 1 the tuned kernel is faster.</p>"
    )
    rows = []
    for one in record.tasks:
        operator, best = one.operator, one.best_seconds
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
                _error(operator.max_relative_error),
                str(operator.measurements),
                str(sum(operator.failed.values())),
            )
        )
    yield table(
        (
            *("operator", "occurs", "first", "tuned", "untuned", "vendor", "ratio", "GFLOP/s"),
            *("error", "measured", "failed"),
        ),
        rows,
    )


def _rounds(record: RunRecord) -> Iterator[str]:
    if len(record.tasks) < 2 or not record.rounds:  # noqa: PLR2004 - one has no scheduler
        return
    names = [turn.task for turn in record.rounds]
    yield "<h2>Rounds of the scheduler</h2>"
    yield f"<p class=note>{len(names)} batches, the operator that got each in its colour.</p>"
    yield strip_figure(names)
    yield f"<p><small>{legend(names)}</small></p>"
    sums = 1e3 * np.array(network_seconds(record))
    if np.isfinite(sums).any():
        yield (
            "<p class=note>The sum of all operators' best times, as often as each occurs, after "
            "each batch, from the one on after which all have a time.</p>"
        )
        yield steps_figure([], sums.tolist(), across="batches", upwards="ms")


def _curves(record: RunRecord) -> Iterator[str]:
    yield "<h2>Searches</h2>"
    opened = " open" if len(record.tasks) <= _FEW else ""
    for one in record.tasks:
        yield f"<details{opened}><summary><b>{escape(one.task.name)}</b> "
        yield f"{in_seconds(one.first_seconds)} → {in_seconds(one.best_seconds)}</summary>"
        yield f"<p class=note>{escape(_described(one))}</p>"
        yield _curve(one)
        yield from _bars(one)
        if one.operator.best is not None:
            knobs = json.dumps(dict(one.operator.best))
            yield f"<p>Fastest: <code>{escape(knobs)}</code></p>"
        if one.ended:
            yield f"<p class=note>Ended: {escape(one.ended)}.</p>"
        yield "</details>"


def _curve(one: TaskRecord) -> str:
    """Speed of each measurement and of the best so far."""
    operation = one.task.flop / 1e9
    upwards = "GFLOP/s"
    if not operation:
        operation, upwards = 1.0, "runs a second"
    fastest: dict[str, float] = {}
    for variant in one.operator.variants:
        if variant.name != "tuned" and variant.seconds is not None:
            speed = operation / variant.seconds
            fastest[variant.name] = max(speed, fastest.get(variant.name, 0.0))
    # A failure has an infinite cost, and no place in the figure.
    speeds = np.where(np.isfinite(one.costs), operation / one.costs, np.nan)
    best = one.best_so_far
    return steps_figure(
        speeds.tolist(),
        np.where(np.isfinite(best), operation / best, np.nan).tolist(),
        across="measurements",
        upwards=upwards,
        levels=[Level(name=name, value=value) for name, value in fastest.items()],
    )


def _bars(one: TaskRecord) -> Iterator[str]:
    """The final comparison."""
    variants = [variant for variant in one.operator.variants if variant.seconds is not None]
    if len(variants) < 2:  # noqa: PLR2004 - nothing to compare
        return
    ours = one.operator.tuned_seconds
    whole = max(variant.seconds or 0.0 for variant in variants)
    rows = [
        (
            escape(f"{variant.name} {variant.variant}".strip()),
            in_seconds(variant.seconds),
            "-" if not ours or variant.seconds is None else f"{variant.seconds / ours:.2f}",
            bar({variant.name: variant.seconds or 0.0}, whole),
        )
        for variant in sorted(variants, key=lambda variant: variant.seconds or 0.0)
    ]
    yield raw_table(("compared, in turns", "median", "times tuned", ""), rows)


def _spending(record: RunRecord) -> Iterator[str]:
    yield "<h2>Where the tuning's time went</h2>"
    yield (
        "<p class=note>Seconds. Search, model and waiting for measurements add up to the "
        "operator's wall-clock and are the bar; building and running are summed over workers.</p>"
    )
    whole = max((one.operator.spending.total for one in record.tasks), default=0.0)
    rows = []
    for one in record.tasks:
        spent = one.operator.spending
        parts = {"search": spent.search, "model": spent.model, "measuring": spent.measure}
        rows.append(
            (
                escape(one.task.name),
                bar(parts, whole),
                *(f"{seconds:.2f}" for seconds in (spent.total, *parts.values())),
                f"{spent.build:.2f}",
                f"{spent.run:.2f}",
            )
        )
    header = ("operator", "", "total", "search", "model", "measuring", "build", "run")
    yield raw_table(header, rows)


def _failures(record: RunRecord) -> Iterator[str]:
    rows = [
        (
            one.task.name,
            ", ".join(f"{kind} {count}" for kind, count in sorted(one.operator.failed.items())),
            one.operator.failure or "",
        )
        for one in record.tasks
        if one.operator.failed
    ]
    if rows:
        yield "<h2>Failed measurements</h2>"
        yield table(("operator", "kinds", "an example"), rows)


def _origin(record: RunRecord) -> Iterator[str]:
    yield "<h2>Where this comes from</h2>"
    rows = [("target", record.target)]
    rows += [(name, json.dumps(value)) for name, value in record.runner.items()]
    yield table(("what", "value"), rows)
    yield f"<pre>{escape(record.pipeline)}</pre>"


def _described(one: TaskRecord) -> str:
    """What an operator computes, in the words of a pipeline."""
    words = (f"{name} {json.dumps(value)}" for name, value in one.task.arguments.items())
    return f"{one.task.operator}: {', '.join(words)}"


def _error(error: float | None) -> str:
    return "-" if error is None else f"{error:.1e}"
