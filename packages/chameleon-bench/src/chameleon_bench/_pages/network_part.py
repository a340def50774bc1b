"""The part of a run's page about the network: its rivals, and the time of each kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chameleon_cli.api import front_table, network_remarks
from chameleon_core.api import NetworkResult, words

from chameleon_bench._pages.rendering import Table, bar
from chameleon_bench._pages.run_record import RunRecord

_OURS = "the compiled network"


def network_part(record: RunRecord) -> dict[str, Any]:
    """Collect the values that the template ``network.html`` shows about a run's network."""
    network = record.network
    total = sum(kernel.seconds for kernel in network.kernels)
    tuned = sum(kernel.seconds for kernel in network.kernels if kernel.tuned)
    latency = network.latency_seconds
    return {
        "failure": network.failure,
        "folder": network.folder,
        "status": network.status,
        "error": network.max_relative_error,
        "score": network.score,
        "score_in_float32": network.score_in_float32,
        "latency": latency,
        "delivered_seconds": network.delivered_seconds,
        "layout": network.layout,
        "precision": network.precision_summary,
        "front": _front(network) if network.front else None,
        "remarks": network_remarks(network),
        "buckets": _buckets(network) if network.buckets else None,
        "against": None if latency is None else _against(network, latency),
        "total": total,
        "tuned_share": tuned / total if total else 0.0,
        "kernels": _kernels(record, total) if network.kernels else None,
    }


def _front(network: NetworkResult) -> Table:
    """The precisions that could be chosen, with the error and the time of each."""
    whole = max(point.seconds for point in network.front)
    bars = [bar({"operators": point.seconds}, whole) for point in network.front]
    header, rows = front_table(network, words.in_seconds)
    return Table(header=header, rows=rows).with_bars("seconds", bars)


def _buckets(network: NetworkResult) -> Table:
    """One inference in each bucket of shapes, with its precision if precisions were chosen."""
    chosen = [("precision", lambda bucket: bucket.precision)] if network.precision_summary else []
    return Table.of(
        network.buckets,
        ("bucket", lambda bucket: bucket.name),
        ("shapes", _shapes),
        ("median", lambda bucket: words.in_seconds(bucket.latency_seconds)),
        ("best rival", _rival),
        ("ratio", lambda bucket: bucket.ratio_text or "-"),
        ("error", lambda bucket: _error(bucket.max_relative_error)),
        ("compiled in", lambda bucket: f"{bucket.seconds:.1f} s" if bucket.seconds else "-"),
        *chosen,
    )


def _shapes(bucket: NetworkResult.Bucket) -> str:
    return ", ".join(f"{name} {list(shape)}" for name, shape in bucket.shapes.items())


def _rival(bucket: NetworkResult.Bucket) -> str:
    rival = bucket.fastest_rival
    return "-" if rival is None else f"{rival[0]} {words.in_seconds(rival[1])}"


def _against(network: NetworkResult, ours: float) -> Table:
    """One inference by the compiled network and by each rival, as timed in turns."""
    if network.rivals_reduced:
        return _with_precisions(network, ours)
    untuned = network.untuned_seconds
    others = {**network.rivals, **({} if untuned is None else {"TVM untuned": untuned})}
    # A very slow untuned network would make all other bars too short to compare.
    whole = max(ours, *network.rivals.values()) if network.rivals else max([ours, *others.values()])
    times = sorted({_OURS: ours, **others}.items(), key=lambda pair: pair[1])
    table = Table.of(
        times,
        ("one inference", lambda pair: pair[0]),
        ("median", lambda pair: words.in_seconds(pair[1])),
        ("times ours", lambda pair: f"{pair[1] / ours:.2f}"),
    )
    return table.with_bars(
        "times ours",
        (bar({name: seconds}, whole, first=0 if name == _OURS else 1) for name, seconds in times),
    )


def _with_precisions(network: NetworkResult, ours: float) -> Table:
    """The table of rivals if they ran in several precisions; each row names its precision."""
    error, precision = network.max_relative_error, network.precision
    first = NetworkResult.Rival(
        asked="", precision=precision, seconds=ours, max_relative_error=error
    )
    rows = [(_OURS, first), *network.rival_rows]
    whole = max(rival.seconds for _, rival in rows)
    table = Table.of(
        rows,
        ("one inference", lambda row: row[0]),
        ("precision", lambda row: row[1].precision),
        ("compared in", lambda row: _likeness(row[1], network)),
        ("median", lambda row: words.in_seconds(row[1].seconds)),
        ("times ours", lambda row: f"{row[1].seconds / ours:.2f}"),
        ("error", lambda row: _error(row[1].max_relative_error)),
    )
    return table.with_bars("error", (bar({name: rival.seconds}, whole) for name, rival in rows))


def _error(error: float | None) -> str:
    return "-" if error is None else f"{error:.1e}"


def _likeness(rival: NetworkResult.Rival, network: NetworkResult) -> str:
    """Whether a rival has the network's precision; empty for the network itself."""
    if not rival.asked:
        return ""
    return "same precision" if rival.asked in network.precisions else "another precision"


def _kernels(record: RunRecord, total: float) -> Table:
    """The time of each kernel in the network, and the time of all its calls when timed alone."""
    kernels = record.network.kernels
    tasks = {task.task.name: task for task in record.tasks}
    unmeasured = {task.name: task.kernel for task in record.network.unmeasured}

    rows = []
    for kernel in kernels:
        task = tasks.get(kernel.name) if kernel.tuned else None
        calls, seconds = kernel.calls, kernel.seconds
        rows.append(
            (
                kernel.name,
                _state(kernel, unmeasured),
                str(calls),
                words.in_seconds(seconds),
                f"{seconds / total:.1%}",
                "-" if task is None else f"{task.task.flop * calls / seconds / 1e9:.0f}",
                "-" if task is None else _times(task.best_seconds, calls),
                "-" if task is None else _times(task.first_seconds, calls),
            )
        )
    header = ("kernel", "", "calls", "in place", "share", "GFLOP/s", "alone", "first guess")
    bars = [bar({kernel.name: kernel.seconds}, kernels[0].seconds) for kernel in kernels]
    return Table(header=header, rows=rows).with_bars("share", bars)


def _state(kernel: NetworkResult.Kernel, unmeasured: Mapping[str, str]) -> str:
    if kernel.name in unmeasured:
        return f"{unmeasured[kernel.name]}, not measured"
    return "tuned" if kernel.tuned else "not tuned"


def _times(seconds: float | None, calls: int) -> str:
    return "-" if seconds is None else words.in_seconds(seconds * calls)
