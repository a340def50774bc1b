"""The part of a run's page about its network: against what, and where every microsecond goes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chameleon_core.loop.end.network_result import NetworkResult, RivalRow, fastest_like, rival_rows
from chameleon_core.loop.end.shortfalls import footprint_lines, left_out_lines, unmeasured_lines
from chameleon_core.words import in_seconds

from chameleon_bench.pages.figures import bar
from chameleon_bench.pages.rendering import Table
from chameleon_bench.pages.run_record import RunRecord, TaskRecord

_OURS = "the compiled network"


def network_part(record: RunRecord) -> dict[str, Any]:
    """What ``templates/network.html`` shows; that is nothing where the model is no network.

    Args:
        record: the run.
    """
    network = record.network
    total = sum(kernel["seconds"] for kernel in network.kernels)
    tuned = sum(kernel["seconds"] for kernel in network.kernels if kernel["tuned"])
    latency = network.latency_seconds
    return {
        "failure": network.failure,
        "folder": network.folder,
        "error": network.max_relative_error,
        "delivered_seconds": network.delivered_seconds,
        "layout": network.layout,
        "precision": network.precision_summary,
        "front": _front(network) if network.front else None,
        "remarks": [
            *unmeasured_lines(network),
            *footprint_lines(network),
            *left_out_lines(network),
        ],
        "buckets": _buckets(record) if network.buckets else None,
        "against": None if latency is None else _against(record, latency),
        "total": total,
        "tuned_share": tuned / total if total else 0.0,
        "kernels": _kernels(record, total) if network.kernels else None,
    }


def _front(network: NetworkResult) -> Table:
    """The types that there were to choose among: their error against their seconds."""
    whole = max(one["seconds"] for one in network.front)
    buckets = ["bucket"] if network.buckets else []
    rows = [
        (
            *(str(one[name]) for name in buckets),
            ", ".join(f"{kind} {count}" for kind, count in one["types"].items()),
            in_seconds(one["seconds"]),
            bar({"operators": one["seconds"]}, whole),
            f"{one['error']:.1e}",
            "delivered" if one["delivered"] else "",
        )
        for one in network.front
    ]
    return Table(header=(*buckets, "operators in", "seconds", "", "error", ""), rows=rows)


def _buckets(record: RunRecord) -> Table:
    """One inference in each bucket of shapes; the precision of each where types were chosen."""
    chosen = ["precision"] if record.network.precision_summary else []
    rows = []
    for one in record.network.buckets:
        rival = fastest_like(one)
        rows.append(
            (
                str(one["name"]),
                ", ".join(f"{name} {shape}" for name, shape in one["shapes"].items()),
                in_seconds(one["latency_seconds"]),
                "-" if rival is None else f"{rival[0]} {in_seconds(rival[1])}",
                "-" if one["ratio"] is None else f"{one['ratio']:.2f}",
                f"{one['max_relative_error']:.1e}",
                f"{one['seconds']:.1f} s",
                *(str(one[name]) for name in chosen),
            )
        )
    header = ("bucket", "shapes", "median", "best rival", "ratio", "error", "compiled in")
    return Table(header=(*header, *chosen), rows=rows)


def _against(record: RunRecord, ours: float) -> Table:
    """One inference by everything that was timed, in turns, each in a process of its own."""
    network = record.network
    if network.rivals_reduced:
        return _with_precisions(network, ours)
    untuned = network.untuned_seconds
    others = {**network.rivals, **({} if untuned is None else {"TVM untuned": untuned})}
    # One that takes many times as long would make all other bars too short to compare.
    whole = max(ours, *network.rivals.values()) if network.rivals else max([ours, *others.values()])
    rows = [
        (
            name,
            in_seconds(seconds),
            f"{seconds / ours:.2f}",
            bar({name: seconds}, whole, place=0 if name == _OURS else 1),
        )
        for name, seconds in sorted({_OURS: ours, **others}.items(), key=lambda pair: pair[1])
    ]
    return Table(header=("one inference", "median", "times ours", ""), rows=rows)


def _with_precisions(network: NetworkResult, ours: float) -> Table:
    """The same where rivals ran in several precisions: like with like first, each row says so."""
    rows = rival_rows(network)
    whole = max(ours, *(row.seconds for row in rows))
    error = network.max_relative_error
    first = RivalRow(
        name=_OURS, precision=network.precision, seconds=ours, max_relative_error=error
    )
    cells = [
        (
            row.name,
            row.precision,
            ("same precision" if row.like else "another precision") if row.name != _OURS else "",
            in_seconds(row.seconds),
            f"{row.seconds / ours:.2f}",
            "-" if row.max_relative_error is None else f"{row.max_relative_error:.1e}",
            bar({row.name: row.seconds}, whole),
        )
        for row in [first, *rows]
    ]
    header = ("one inference", "precision", "compared in", "median", "times ours", "error", "")
    return Table(header=header, rows=cells)


def _kernels(record: RunRecord, total: float) -> Table:
    """Where the time goes, kernel by kernel, beside what each takes alone."""
    kernels = record.network.kernels
    tasks = {one.task.name: one for one in record.tasks}
    unmeasured = {one["name"]: one["kernel"] for one in record.network.unmeasured}
    rows = []
    for kernel in kernels:
        task = tasks.get(kernel["name"]) if kernel["tuned"] else None
        calls, seconds = kernel["calls"], kernel["seconds"]
        rows.append(
            (
                kernel["name"],
                _state(kernel, unmeasured),
                str(calls),
                in_seconds(seconds),
                f"{seconds / total:.1%}",
                bar({kernel["name"]: seconds}, kernels[0]["seconds"]),
                _speed(task, calls, seconds),
                "-" if task is None else _times(task.best_seconds, calls),
                "-" if task is None else _times(task.first_seconds, calls),
            )
        )
    header = ("kernel", "", "calls", "in place", "share", "", "GFLOP/s", "alone", "first guess")
    return Table(header=header, rows=rows)


def _state(kernel: Mapping[str, Any], unmeasured: Mapping[str, str]) -> str:
    if kernel["name"] in unmeasured:
        return f"{unmeasured[kernel['name']]}, not measured"
    return "tuned" if kernel["tuned"] else "not tuned"


def _speed(task: TaskRecord | None, calls: int, seconds: float) -> str:
    return "-" if task is None else f"{task.task.flop * calls / seconds / 1e9:.0f}"


def _times(seconds: float | None, calls: int) -> str:
    return "-" if seconds is None else in_seconds(seconds * calls)
