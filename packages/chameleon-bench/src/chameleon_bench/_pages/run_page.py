"""The HTML page about a run, from ``templates/run.html``, and its plots as CSV files."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
from chameleon_cli.api import failures
from chameleon_core.api import RunFile, words
from chameleon_core.plugin_api import Measurement
from chameleon_system.api import write_atomic

from chameleon_bench._pages import search_tables
from chameleon_bench._pages.network_part import network_part
from chameleon_bench._pages.plots import write_sheets
from chameleon_bench._pages.rendering import Table, rendered_page
from chameleon_bench._pages.run_plots import plots_of
from chameleon_bench._pages.run_record import RunRecord, TaskRecord, run_record


def page_of(record: RunRecord) -> str:
    """The HTML page about a run."""
    settled = None if record.network.layout else record.settled
    plots = plots_of(record)
    searches = [
        _search(task, record.folder) for task in sorted(record.tasks, key=_seconds, reverse=True)
    ]
    return rendered_page(
        "run.html",
        record.folder.name,
        plots,
        record=record,
        measured=sum(task.operator.measurements for task in record.tasks),
        headline=headline(record),
        facts=facts_of(record),
        slower=record.network.slower(
            {task.operator.name: task.best_seconds for task in record.tasks}
        ),
        settled=None if settled is None else settled.get("summary", settled),
        network=network_part(record),
        operators=_operators(record),
        rounds=len(record.rounds) if len(record.tasks) > 1 else 0,
        searches=searches,
        listed=sum(bool(search["listings"]) for search in searches),
        origins=_origins(record),
        spending=_spending(record),
        failures=_failures(record),
        versions=Table(
            header=("distribution", "version"),
            rows=[(name, text or "not installed") for name, text in sorted(_versions(record))],
        ),
        origin=Table(header=("what", "value"), rows=_environment(record)),
        figures={(plot.key, plot.subject): plot for plot in plots},
    )


def _seconds(task: TaskRecord) -> float:
    """The time of all an operator's occurrences in one inference, by which operators are sorted."""
    return (task.best_seconds or 0.0) * task.task.weight


def _operators(record: RunRecord) -> Table:
    def number(value: float | None, form: str) -> str:
        return "-" if value is None else format(value, form)

    def speed(row: TaskRecord) -> str:
        return "-" if row.best_seconds is None else f"{row.task.flop / row.best_seconds / 1e9:.1f}"

    return Table.of(
        record.tasks,
        ("operator", lambda task: task.operator.name),
        ("occurs", lambda task: str(task.task.weight)),
        ("first", lambda task: words.in_seconds(task.first_seconds)),
        ("tuned", lambda task: words.in_seconds(task.best_seconds)),
        ("untuned", lambda task: words.in_seconds(task.operator.untuned_seconds)),
        ("vendor", lambda task: words.in_seconds(task.operator.vendor_seconds)),
        ("ratio", lambda task: number(task.operator.ratio, ".3f")),
        ("GFLOP/s", speed),
        ("error", lambda task: number(task.operator.max_relative_error, ".1e")),
        ("measured", lambda task: str(task.operator.measurements)),
        ("failed", lambda task: str(sum(task.operator.failed.values()))),
    )


def _search(task: TaskRecord, folder: Path) -> dict[str, Any]:
    """The values for the part of the page about one operator's search; a table may be None."""
    words = (f"{name} {json.dumps(value)}" for name, value in task.task.arguments.items())
    return {
        "record": task,
        "described": f"{task.task.operator}: {', '.join(words)}",
        "best": search_tables.ten_best(task.measured),
        "agreed": search_tables.agreed(task.measured),
        "comparison": search_tables.comparison(task),
        "reasons": search_tables.reasons(task.measured),
        "failing": search_tables.failing_values(task.measured),
        "winner": search_tables.winner(task),
        "listings": search_tables.listings_of(folder, task.task),
    }


def _origins(record: RunRecord) -> Table | None:
    """The origins of configurations; None if the run's Chameleon version did not record them."""
    if not any(task.operator.origins for task in record.tasks):
        return None
    rows = [
        (
            task.task.name,
            *(str(task.operator.origins.get(origin, 0)) for origin in Measurement.Origin),
        )
        for task in record.tasks
    ]
    return Table(header=("operator", *Measurement.Origin), rows=rows)


def _spending(record: RunRecord) -> Table:
    parts = ("total", "search", "model", "measure", "build", "run")
    rows = [
        (task.task.name, *(f"{getattr(task.operator.spending, part):.2f}" for part in parts))
        for task in record.tasks
    ]
    header = ("operator", "total", "search", "model", "measuring", "build", "run")
    return Table(header=header, rows=rows)


def _failures(record: RunRecord) -> Table | None:
    failing = [task.operator for task in record.tasks if task.operator.failed]
    if not failing:
        return None
    return Table.of(
        failing,
        ("operator", lambda operator: operator.name),
        ("kinds", lambda operator: failures(operator.failed)),
        ("an example", lambda operator: operator.failure or ""),
    )


# ----- environment ---------------------------------------------------------------------------


def _versions(record: RunRecord) -> list[tuple[str, str | None]]:
    """The versions of distributions on this machine, on workers and on devices."""
    elsewhere = record.runner.get("versions")
    return list({**(elsewhere if isinstance(elsewhere, dict) else {}), **record.versions}.items())


def _environment(record: RunRecord) -> list[tuple[str, str]]:
    described = {name: value for name, value in record.runner.items() if name != "versions"}
    return _flat({"target": _read(record.target), **described})


def _flat(values: Mapping[str, Any], before: str = "") -> list[tuple[str, str]]:
    """Nested values as rows; nested names are joined by a space."""
    rows: list[tuple[str, str]] = []
    for name, value in values.items():
        full = f"{before}{name}".replace("_", " ")
        if isinstance(value, Mapping):
            rows += _flat(value, f"{full} ")
        elif isinstance(value, list):
            rows.append((full, ", ".join(map(str, value))))
        else:
            rows.append((full, "-" if value is None else str(value)))
    return rows


def _read(target: str) -> Any:
    """A target as a mapping if it is JSON, otherwise unchanged."""
    try:
        value = json.loads(target)
    except json.JSONDecodeError:
        return target
    return value if isinstance(value, dict) else target


@attrs.frozen(kw_only=True)
class Fact:
    """A number at the top of a page, such as the run's wall-clock time.

    Attributes:
        note: A sentence below the number; may be empty.
    """

    name: str
    value: str
    note: str = ""


def headline(record: RunRecord) -> list[str]:
    """Sentences about what the run gained: for the network, or else for its operators."""
    network = record.network
    if network.failure is not None:
        return ["No network was delivered."]
    if network.latency_seconds is not None:
        return _of_network(record, network.latency_seconds)
    timed = [task for task in record.tasks if task.best_seconds is not None]
    if not timed:
        return ["Nothing has a time yet." if not record.finished else "Nothing succeeded."]
    if len(record.tasks) == 1:
        return [_of_operator(timed[0])]
    return [*_of_kernels(record), *_of_operators(record, timed)]


def facts_of(record: RunRecord) -> list[Fact]:
    """The main figures of a run."""
    facts = []
    network = record.network
    if network.latency_seconds is not None:
        name = f"one inference{network.each}"
        facts.append(Fact(name=name, value=words.in_seconds(network.latency_seconds)))
    elif len(record.tasks) == 1 and (best := record.tasks[0].best_seconds) is not None:
        flop = record.tasks[0].task.flop
        speed = f"{flop / best / 1e9:.4g} GFLOP/s" if flop else ""
        facts.append(Fact(name="fastest", value=words.in_seconds(best), note=speed))
    measured = sum(len(task.measured.seconds) for task in record.tasks)
    failed = sum(int((~task.measured.ok).sum()) for task in record.tasks)
    share = f"{failed} failed" if failed else "none failed"
    facts.append(Fact(name="measurements", value=f"{measured:,}", note=share))
    if len(record.tasks) > 1:
        facts.append(Fact(name="operators", value=str(len(record.tasks))))
    if record.seconds:
        facts.append(Fact(name="the run took", value=_duration(record.seconds)))
    return facts


def _of_network(record: RunRecord, latency: float) -> list[str]:
    network = record.network
    sentence = f"One inference{network.each} takes {words.in_seconds(latency)}"
    rival = network.fastest_rival
    if rival is not None:
        name, seconds = rival
        fastest = f"the fastest alternative here{network.among}"
        sentence += f"; {name}, {fastest}, takes {words.in_seconds(seconds)}"
        sentence += f", {_ratio(seconds / latency)} times as long"
        if network.ratio_interval:
            sentence += f" ({' to '.join(map(_ratio, network.ratio_interval))})"
    sentences = [f"{sentence}.", *filter(None, [network.doubt])]
    if network.untuned_seconds:
        times = network.untuned_seconds / latency
        sentences.append(
            f"Compiled by TVM without tuning it takes {words.in_seconds(network.untuned_seconds)}, "
            f"{_ratio(times)} times as long."
        )
    return [*sentences, *record.time_use, *network.default_sentences]


def _of_kernels(record: RunRecord) -> list[str]:
    """A sentence with the sum of kernel times, for a network that was not timed as a whole."""
    total = math.fsum(kernel.seconds for kernel in record.network.kernels)
    return (
        [f"The delivered network's kernels take {words.in_seconds(total)} in all."] if total else []
    )


def _of_operator(task: TaskRecord) -> str:
    best = task.best_seconds
    sentence = f"The fastest kernel found for {task.task.name} takes {words.in_seconds(best)}"
    others = {
        "the vendor's": task.operator.vendor_seconds,
        "the untuned one": task.operator.untuned_seconds,
        "the first guess": task.first_seconds,
    }
    compared = [
        f"{name} {words.in_seconds(seconds)} ({_ratio(seconds / best)} times as long)"
        for name, seconds in others.items()
        if seconds and best
    ]
    return f"{sentence}; {', '.join(compared)}." if compared else f"{sentence}."


def _of_operators(record: RunRecord, timed: list[TaskRecord]) -> list[str]:
    sentences = [f"{len(timed)} of {len(record.tasks)} operators have a time."]
    if guessed := _times_as_fast(timed, lambda task: task.first_seconds):
        sentences.append(
            f"{_ratio(guessed)} times as fast as the first guesses in the geometric mean."
        )
    ratios = [task.operator.ratio for task in timed if task.operator.ratio]
    if mean := _mean(ratios):
        ahead = sum(ratio >= 1.0 for ratio in ratios)
        sentences.append(
            f"{_ratio(mean)} times as fast as the vendor's in the geometric mean, and "
            f"at least as fast in {ahead} of {len(ratios)} operators."
        )
    if untuned := _times_as_fast(timed, lambda task: task.operator.untuned_seconds):
        sentences.append(f"{_ratio(untuned)} times as fast as untuned ones in the geometric mean.")
    return [sentences[0], *(f"Tuned kernels are {rest}" for rest in sentences[1:])]


def _times_as_fast(
    timed: list[TaskRecord], other: Callable[[TaskRecord], float | None]
) -> float | None:
    """The geometric mean of other times over tuned times; None if no operator has both."""
    pairs = [(other(task), task.best_seconds) for task in timed]
    return _mean([slow / best for slow, best in pairs if slow and best])


def _ratio(value: float) -> str:
    return f"{value:.2f}" if value < 100 else f"{value:.0f}"  # noqa: PLR2004 - about three digits


def _mean(values: list[float]) -> float | None:
    return math.exp(math.fsum(map(math.log, values)) / len(values)) if values else None


def _duration(seconds: float) -> str:
    if seconds < 120:  # noqa: PLR2004 - two minutes are easier to read as seconds
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def write_report(folder: Path, output: Path | None = None) -> Path:
    """Write the HTML page about a run."""
    return write_atomic(output or folder / RunFile.REPORT, page_of(run_record(folder)))


def write_plots(folder: Path, output: Path) -> list[Path]:
    """Write the tables of a run's plots as CSV files, one file per kind of plot."""
    return write_sheets(plots_of(run_record(folder)), output, subject="operator")
