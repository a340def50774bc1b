"""The part of a run's page about its network: against what, and where every microsecond goes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chameleon_cli.result_rows import network_remarks, rival_rows
from chameleon_core.network_result import KernelTime, NetworkResult, RivalTime
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
    total = sum(kernel.seconds for kernel in network.kernels)
    tuned = sum(kernel.seconds for kernel in network.kernels if kernel.tuned)
    latency = network.latency_seconds
    return {
        "failure": network.failure,
        "folder": network.folder,
        "error": network.max_relative_error,
        "delivered_seconds": network.delivered_seconds,
        "layout": network.layout,
        "precision": network.precision_summary,
        "front": _front(network) if network.front else None,
        "remarks": network_remarks(network),
        "buckets": _buckets(record) if network.buckets else None,
        "against": None if latency is None else _against(record, latency),
        "total": total,
        "tuned_share": tuned / total if total else 0.0,
        "kernels": _kernels(record, total) if network.kernels else None,
    }


def _front(network: NetworkResult) -> Table:
    """The types that there were to choose among: their error against their seconds."""
    whole = max(point.seconds for point in network.front)
    buckets = ["bucket"] if network.buckets else []
    rows = [
        (
            *([] if point.bucket is None else [point.bucket]),
            ", ".join(f"{kind} {count}" for kind, count in point.types.items()),
            in_seconds(point.seconds),
            bar({"operators": point.seconds}, whole),
            f"{point.error:.1e}",
            "delivered" if point.delivered else "",
        )
        for point in network.front
    ]
    return Table(header=(*buckets, "operators in", "seconds", "", "error", ""), rows=rows)


def _buckets(record: RunRecord) -> Table:
    """One inference in each bucket of shapes; the precision of each where types were chosen."""
    chosen = ["precision"] if record.network.precision_summary else []
    rows = []
    for bucket in record.network.buckets:
        rival = bucket.fastest_rival
        rows.append(
            (
                bucket.name,
                ", ".join(f"{name} {list(shape)}" for name, shape in bucket.shapes.items()),
                in_seconds(bucket.latency_seconds),
                "-" if rival is None else f"{rival[0]} {in_seconds(rival[1])}",
                "-" if bucket.ratio is None else f"{bucket.ratio:.2f}",
                f"{bucket.max_relative_error:.1e}",
                f"{bucket.seconds:.1f} s",
                *([bucket.precision] if chosen else []),
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
    error, precision = network.max_relative_error, network.precision
    first = RivalTime(asked="", precision=precision, seconds=ours, max_relative_error=error)
    rivals = rival_rows(network)
    whole = max(ours, *(rival.seconds for _, rival in rivals))
    cells = [
        (
            name,
            rival.precision,
            _likeness(rival, network),
            in_seconds(rival.seconds),
            f"{rival.seconds / ours:.2f}",
            "-" if rival.max_relative_error is None else f"{rival.max_relative_error:.1e}",
            bar({name: rival.seconds}, whole),
        )
        for name, rival in [(_OURS, first), *rivals]
    ]
    header = ("one inference", "precision", "compared in", "median", "times ours", "error", "")
    return Table(header=header, rows=cells)


def _likeness(rival: RivalTime, network: NetworkResult) -> str:
    """Whether like is held against like; empty for the network itself."""
    if not rival.asked:
        return ""
    return "same precision" if rival.asked in network.precisions else "another precision"


def _kernels(record: RunRecord, total: float) -> Table:
    """Where the time goes, kernel by kernel, beside what each takes alone."""
    kernels = record.network.kernels
    tasks = {one.task.name: one for one in record.tasks}
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
                in_seconds(seconds),
                f"{seconds / total:.1%}",
                bar({kernel.name: seconds}, kernels[0].seconds),
                _speed(task, calls, seconds),
                "-" if task is None else _times(task.best_seconds, calls),
                "-" if task is None else _times(task.first_seconds, calls),
            )
        )
    header = ("kernel", "", "calls", "in place", "share", "", "GFLOP/s", "alone", "first guess")
    return Table(header=header, rows=rows)


def _state(kernel: KernelTime, unmeasured: Mapping[str, str]) -> str:
    if kernel.name in unmeasured:
        return f"{unmeasured[kernel.name]}, not measured"
    return "tuned" if kernel.tuned else "not tuned"


def _speed(task: TaskRecord | None, calls: int, seconds: float) -> str:
    return "-" if task is None else f"{task.task.flop * calls / seconds / 1e9:.0f}"


def _times(seconds: float | None, calls: int) -> str:
    return "-" if seconds is None else in_seconds(seconds * calls)
