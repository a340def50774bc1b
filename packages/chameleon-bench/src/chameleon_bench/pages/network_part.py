"""The part of a run's report about its network: against what, and where every microsecond goes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from chameleon_core.loop.verdicts import left_out_lines, unmeasured_lines
from chameleon_core.words import in_seconds

from chameleon_bench.pages.drawing import bar
from chameleon_bench.pages.html import raw_table
from chameleon_bench.pages.run_record import RunRecord, TaskRecord

_OURS = "the compiled network"


def network_part(record: RunRecord) -> Iterator[str]:
    """Sections about the network; nothing where the model is none.

    Args:
        record: the run.
    """
    network = record.network
    if network.failure is not None:
        yield f"<h2>Network</h2><p><b>{escape(network.failure)}</b></p>"
    if network.folder is None:
        return
    yield "<h2>Network</h2>"
    words = [f"In <code>{escape(network.folder)}</code>."]
    if network.max_relative_error is not None:
        words.append(f"Largest relative error {network.max_relative_error:.1e}.")
    if network.delivered_seconds is not None:
        words.append(f"Verified {network.delivered_seconds:.1f} s after the start.")
    if network.layout:
        words.append(f"Layout: {escape(str(network.layout['summary']))}.")
    yield f"<p>{' '.join(words)}</p>"
    for line in (*unmeasured_lines(network), *left_out_lines(network)):
        yield f"<p>{escape(line)}</p>"
    if network.buckets:
        yield _buckets(record)
    if network.latency_seconds is not None:
        yield _against(record, network.latency_seconds)
    if network.kernels:
        yield from _kernels(record)


def _buckets(record: RunRecord) -> str:
    """One inference in each bucket of shapes; all that follows is of one in each together."""
    rows = []
    for one in record.network.buckets:
        rival = min(one["rivals"].items(), key=lambda pair: pair[1], default=None)
        latency = one["latency_seconds"]
        rows.append(
            (
                escape(str(one["name"])),
                escape(", ".join(f"{name} {shape}" for name, shape in one["shapes"].items())),
                "-" if latency is None else in_seconds(latency),
                "-" if rival is None else f"{escape(rival[0])} {in_seconds(rival[1])}",
                "-" if one["ratio"] is None else f"{one['ratio']:.2f}",
                f"{one['max_relative_error']:.1e}",
                f"{one['seconds']:.1f} s",
            )
        )
    header = ("bucket", "shapes", "median", "best rival", "ratio", "error", "compiled in")
    note = "<p class=note>Below, times are sums: of one inference in each bucket.</p>"
    return raw_table(header, rows) + note


def _against(record: RunRecord, ours: float) -> str:
    """One inference by everything that was timed, in turns, each in a process of its own."""
    network = record.network
    untuned = network.untuned_seconds
    others = {**network.rivals, **({} if untuned is None else {"TVM untuned": untuned})}
    # One that takes many times as long would make all other bars too short to compare.
    whole = max(ours, *network.rivals.values()) if network.rivals else max([ours, *others.values()])
    rows = [
        (
            escape(name),
            in_seconds(seconds),
            f"{seconds / ours:.2f}",
            bar({name: min(seconds, whole)}, whole) + (" …" if seconds > whole else ""),
        )
        for name, seconds in sorted({_OURS: ours, **others}.items(), key=lambda pair: pair[1])
    ]
    return raw_table(("one inference", "median", "times ours", ""), rows)


def _kernels(record: RunRecord) -> Iterator[str]:
    """Where the time goes, kernel by kernel, beside what each takes alone."""
    kernels = record.network.kernels
    total = sum(kernel["seconds"] for kernel in kernels)
    tuned = sum(kernel["seconds"] for kernel in kernels if kernel["tuned"])
    tasks = {one.task.name: one for one in record.tasks}
    unmeasured = {one["name"]: one["kernel"] for one in record.network.unmeasured}
    yield "<h3>Where the time goes</h3>"
    yield (
        f"<p class=note>{in_seconds(total)} in all, {tuned / total:.1%} of it in tuned kernels. "
        "Each kernel was timed in place, in the network's own order. Alone: all its occurrences "
        "at the time it had when it was tuned, and at that of the first configuration measured.</p>"
    )
    rows = []
    for kernel in kernels:
        task = tasks.get(kernel["name"]) if kernel["tuned"] else None
        calls, seconds = kernel["calls"], kernel["seconds"]
        rows.append(
            (
                escape(kernel["name"]),
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
    yield raw_table(header, rows)


def _state(kernel: Mapping[str, Any], unmeasured: Mapping[str, str]) -> str:
    if kernel["name"] in unmeasured:
        return f"{unmeasured[kernel['name']]}, not measured"
    return "tuned" if kernel["tuned"] else "not tuned"


def _speed(task: TaskRecord | None, calls: int, seconds: float) -> str:
    return "-" if task is None else f"{task.task.flop * calls / seconds / 1e9:.0f}"


def _times(seconds: float | None, calls: int) -> str:
    return "-" if seconds is None else in_seconds(seconds * calls)
