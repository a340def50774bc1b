"""A result as rows and lines, for the terminal and for the page of a run."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from chameleon_core.api import NetworkResult, OperatorResult, RunView, words
from chameleon_core.plugin_api import FLOAT32


def network_json(summary: RunView.Network | None) -> dict[str, Any] | None:
    """The network part of a command's JSON output; None if the model is no network.

    Args:
        summary: the ``network`` of a ``chameleon_core._run_view.RunView``.
    """
    if summary is None:
        return None
    return {
        "seconds": summary.seconds,
        "seconds_from": None if summary.seconds is None else str(summary.source),
        "operators_measured": summary.measured,
        "operators": summary.operators,
        "result": summary.result.to_json() if summary.result.delivered else None,
        "failure": summary.result.failure,
    }


def network_sentence(summary: RunView.Network) -> str:
    """A sentence with a network's time, or with the reason why it has none.

    Args:
        summary: the ``network`` of a ``chameleon_core._run_view.RunView``.
    """
    result = summary.result
    if result.failure is not None:
        return f"network: not delivered; {result.failure}"
    doubt = "" if result.unverified is None else f"; {result.status}, since {result.unverified}"
    if summary.compared:
        what = f"network, one inference{result.each}" if result.buckets else "network"
        took = f"{duration(summary.seconds)}, from the comparison at the end{_beside(summary)}"
        return f"{what}: {took}{doubt}"
    compiled = "delivered, but not timed" if result.delivered else "not compiled yet"
    if summary.seconds is None:
        return f"network: {compiled}; none of its {summary.operators} operators has a time{doubt}"
    every = summary.measured == summary.operators
    which = "its" if every else f"{summary.measured} of its"
    return (
        f"network: {compiled}; {which} {summary.operators} operators take "
        f"{duration(summary.seconds)} together, each alone as the search measured it{doubt}"
    )


def _beside(summary: RunView.Network) -> str:
    """The times of rivals and of the untuned network, in parentheses; or an empty string."""
    result = summary.result
    by_default = {
        f"{name} in {rival.precision}": rival.seconds
        for name, rival in result.rivals_by_default.items()
    }
    others = {**result.like_rivals, **by_default, "untuned": result.untuned_seconds}
    texts = [f"{name} {duration(seconds)}" for name, seconds in others.items() if seconds]
    return f" ({', '.join(texts)})" if texts else ""


def duration(seconds: float | None) -> str:
    """A kernel's time as text with three digits, because more digits would not be reliable.

    Args:
        seconds: the time in seconds, or None if it is unknown.
    """
    return words.in_seconds(seconds, "#.3g")


def failures(failed: Mapping[str, int]) -> str:
    """Failures by kind as text, such as ``build_error 3, crash 1``."""
    return ", ".join(f"{kind} {count}" for kind, count in sorted(failed.items())) or "0"


OPERATOR_HEADER = (
    "operator",
    "untuned",
    "tuned",
    "vendor",
    "ratio",
    "GFLOP/s",
    "measured",
    "seconds",
)


def operator_rows(operators: Sequence[OperatorResult]) -> list[tuple[str, ...]]:
    """A row for each operator, with the columns of ``OPERATOR_HEADER``."""
    return [
        (
            operator.name,
            duration(operator.untuned_seconds),
            duration(operator.tuned_seconds),
            duration(operator.vendor_seconds),
            "-" if operator.ratio is None else f"{operator.ratio:.3f}",
            "-" if operator.gflops is None else f"{operator.gflops:.1f}",
            str(operator.measurements),
            f"{operator.spending.total:.1f}",
        )
        for operator in operators
    ]


def operator_legend(operators: Sequence[OperatorResult]) -> str:
    """Lines below a table of operators: what ``vendor`` and ``ratio`` mean, and the largest error.

    Lines that do not apply are left out.

    Args:
        operators: the results of the operators in the table.
    """
    vendors = sorted(
        {variant.name for operator in operators for variant in operator.variants if variant.vendor}
    )
    lines = []
    if any(operator.untuned_seconds for operator in operators):
        lines.append("untuned: TVM's default, serial loops")
    if any(operator.gflops for operator in operators):
        lines.append("GFLOP/s: counts the direct algorithm's operations; Winograd needs fewer")
    if vendors:
        lines += [
            f"vendor: {', '.join(vendors)}, in its fastest layout",
            "ratio: vendor / tuned; above 1, the tuned kernel is faster",
        ]
    errors = {row.max_relative_error: row.name for row in operators if row.max_relative_error}
    if errors:
        worst = max(errors)
        lines.append(f"largest relative error of a tuned operator: {worst:.1e} ({errors[worst]})")
    return "\n".join(lines)


def network_lines(network: NetworkResult) -> list[str]:
    """Lines of text about a network's result, for the terminal and for a run's page.

    The list is empty if no network was delivered.

    Args:
        network: the result of the network.
    """
    if network.failure is not None or network.folder is None:
        return []
    error = f"largest relative error {network.max_relative_error:.1e}"
    if network.score is not None:
        error += f", metric {network.score:.6g} (in float32 {network.score_in_float32:.6g})"
    if network.delivered_seconds is not None:
        error = f"{network.status} after {network.delivered_seconds:.1f} s, {error}"
    before = [f"layout: {network.layout.summary}"] if network.layout else []
    if network.precision_summary:
        before.append(f"precision: {network.precision_summary}")
    before += network_remarks(network)
    if network.latency_seconds is None:
        return [*before, f"network: {error}, in {network.folder}"]
    others = {"untuned": network.untuned_seconds}
    if not network.rivals_reduced:
        others.update(network.rivals)
    times = ", ".join(f"{name} {duration(seconds)}" for name, seconds in others.items())
    what = f"network, one inference{network.each}" if network.buckets else "network"
    if network.precision != FLOAT32:
        what += f", in {network.precision}"
    return [
        *before,
        f"{what}: {duration(network.latency_seconds)} ({times})",
        f"{error}, in {network.folder}",
    ]


KERNEL_HEADER = ("kernel", "calls", "time", "share")
_SHOWN = 0.01
"""Kernels with a smaller share of the network's time are shown in one row together."""


def kernel_rows(network: NetworkResult) -> list[tuple[str, ...]]:
    """The rows of a table of a network's kernels, with the columns of ``KERNEL_HEADER``.

    Args:
        network: the result of the network.
    """
    total = sum(kernel.seconds for kernel in network.kernels)
    unmeasured = {task.name for task in network.unmeasured}
    large = [kernel for kernel in network.kernels if kernel.seconds >= _SHOWN * total]
    small = [kernel for kernel in network.kernels if kernel.seconds < _SHOWN * total]
    rows = [(f"{row.name}{_remark(row, unmeasured)}", row.calls, row.seconds) for row in large]
    if small:
        calls, seconds = sum(row.calls for row in small), sum(row.seconds for row in small)
        rows.append((f"{len(small)} others", calls, seconds))
    return [
        (name, str(calls), duration(seconds), f"{seconds / total:.1%}")
        for name, calls, seconds in rows
    ]


RIVAL_HEADER = ("one inference", "precision", "median", "times ours", "error")


def rival_table(network: NetworkResult) -> list[tuple[str, ...]]:
    """The network and its rivals with their precisions, with the columns of ``RIVAL_HEADER``.

    Rivals in the network's precision come first, then those in float32, then those in reduced
    precision. The table is empty if no rival computes in reduced precision, because another line
    then shows all times.
    """
    ours = network.latency_seconds
    if not network.rivals_reduced or ours is None:
        return []
    error, precision = network.max_relative_error, network.precision
    first = NetworkResult.Rival(
        asked="", precision=precision, seconds=ours, max_relative_error=error
    )
    return [
        (
            name,
            rival.precision,
            duration(rival.seconds),
            f"{rival.seconds / ours:.2f}",
            "-" if rival.max_relative_error is None else f"{rival.max_relative_error:.1e}",
        )
        for name, rival in [("the compiled network", first), *network.rival_rows]
    ]


def front_table(
    network: NetworkResult, shown: Callable[[float], str] = duration
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """A table of choices of dtypes: the names of its columns, and its rows.

    If the network has buckets of shapes, the name of the bucket is an additional first column.

    Args:
        network: the result of the network.
        shown: a function that formats seconds. A page has room for more digits than the terminal.
    """
    which = ("bucket",) if network.buckets else ()
    return (*which, "operators in", "seconds", "error", ""), [
        (
            *([] if point.bucket is None else [point.bucket]),
            ", ".join(f"{kind} {count}" for kind, count in point.types.items()),
            shown(point.seconds) if point.seconds else "-",  # 0 if nothing was measured
            f"{point.error:.1e}",
            "delivered" if point.delivered else "",
        )
        for point in network.front
    ]


BUCKET_HEADER = ("bucket", "network", "untuned", "best rival", "ratio", "error")


def bucket_rows(network: NetworkResult) -> list[tuple[str, ...]]:
    """The rows of a table of a network's buckets of shapes, one row for each bucket.

    The columns are those of ``BUCKET_HEADER``, for one inference.

    If dtypes were chosen, an additional last column has the bucket's precision.

    Args:
        network: the result of the network.
    """
    rows: list[tuple[str, ...]] = []
    for bucket in network.buckets:
        rival = bucket.fastest_rival
        rows.append(
            (
                bucket.name,
                duration(bucket.latency_seconds),
                duration(bucket.untuned_seconds),
                "-" if rival is None else f"{rival[0]} {duration(rival[1])}",
                bucket.ratio_text or "-",
                "-" if bucket.max_relative_error is None else f"{bucket.max_relative_error:.1e}",
                *([bucket.precision] if network.precision_summary else []),
            )
        )
    return rows


def _remark(kernel: NetworkResult.Kernel, unmeasured: Collection[str]) -> str:
    if kernel.name in unmeasured:
        return " (not measured)"
    return "" if kernel.tuned else " (not tuned)"


def network_remarks(network: NetworkResult) -> list[str]:
    """Lines about a network's verification, kernels, memory and missing rivals."""
    own = network.own_precision
    reference = "TVM without tuning" if network.reference == "untuned" else network.reference
    if reference and network.reference_day:
        reference += f", whose answers are of {network.reference_day}"
    verified = [reference and f"compared with {reference}", network.disagreement]
    verified.append(network.conditioning)
    if network.unverified is not None:
        verified.insert(0, f"{network.status}, since {network.unverified}")
    if own is not None and own.reference:
        verified.append(f"in {own.dtype} {own.max_relative_error:.1e} off {own.reference}")
    guesses: dict[tuple[str, str], list[str]] = {}
    for task in network.unmeasured:
        guesses.setdefault((task.kernel, task.because), []).append(task.name)
    return [
        *filter(None, ["; ".join(filter(None, verified))]),
        *(
            f"not measured, delivered with the {kernel} ({because}): {_some(names)}"
            for (kernel, because), names in guesses.items()
        ),
        *filter(None, [network.vectors, network.levels]),
        *_footprint_lines(network),
        *(f"{name} left out: {why}" for name, why in network.left_out.items()),
    ]


_MOST_NAMES = 12
"""The largest number of operators that a line names."""


def _some(names: Sequence[str]) -> str:
    """The first names of a list, and the number of others."""
    others = len(names) - _MOST_NAMES
    return ", ".join(names) if others <= 1 else f"{', '.join(names[:-others])} and {others} others"


def _footprint_lines(network: NetworkResult) -> list[str]:
    """A line about a network's first answer, memory and disk space; none if they are unknown."""
    own = network.footprint.get("network", NetworkResult.Footprint())
    if own.first_answer_seconds is None:
        return []
    others = ", ".join(
        f"{name} {_megabytes(footprint.memory_bytes)}"
        for name, footprint in network.footprint.items()
        if footprint is not own
    )
    beside = f" (processes with {others})" if others else ""
    seconds, memory = own.first_answer_seconds, _megabytes(own.memory_bytes)
    first = f"first answer {seconds:.2f} s after its process starts, in {memory} of memory{beside}"
    return [f"{first}; {_megabytes(own.disk_bytes)} on disk"]


def _megabytes(size: int | None) -> str:
    return "-" if size is None else f"{size / 1e6:.0f} MB"
