"""Tables for people: rich on a terminal, aligned plain text anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from typing import TextIO

import click
from chameleon_core.dtypes import FLOAT32
from chameleon_core.loop.end.operator_result import OperatorResult
from chameleon_core.loop.end.shortfalls import remarks
from chameleon_core.network_result import KernelTime, NetworkResult, RivalTime, rival_rows
from chameleon_core.words import in_seconds

from chameleon_cli.colours import in_colours

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
    """One row per operator, as in ``OPERATOR_HEADER``."""
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
    """What ``vendor`` and ``ratio`` mean, and the largest error; what there is of it."""
    vendors = sorted(
        {one.name for operator in operators for one in operator.variants if one.vendor}
    )
    lines = []
    if vendors:
        lines += [
            f"vendor: {', '.join(vendors)}, the fastest of its variants",
            "ratio: vendor / tuned, above 1 the tuned kernel is faster",
        ]
    errors = {one.max_relative_error: one.name for one in operators if one.max_relative_error}
    if errors:
        worst = max(errors)
        lines.append(f"largest relative error of a tuned operator: {worst:.1e} ({errors[worst]})")
    return "\n".join(lines)


def network_lines(network: NetworkResult) -> list[str]:
    """What became of the network, in words; nothing where there is none."""
    if network.failure is not None or network.folder is None:
        return []
    error = f"largest relative error {network.max_relative_error:.1e}"
    if network.delivered_seconds is not None:
        error = f"verified after {network.delivered_seconds:.1f} s, {error}"
    before = [f"layout: {network.layout.summary}"] if network.layout else []
    if network.precision_summary:
        before.append(f"precision: {network.precision_summary}")
    before += remarks(network)
    if network.latency_seconds is None:
        return [*before, f"network: {error}, in {network.folder}"]
    others = {"untuned": network.untuned_seconds}
    if not network.rivals_reduced:
        others.update(network.rivals)
    times = ", ".join(f"{name} {duration(seconds)}" for name, seconds in others.items())
    what = "network, one inference in each bucket" if network.buckets else "network"
    if network.precision != FLOAT32:
        what += f", in {network.precision}"
    return [
        *before,
        f"{what}: {duration(network.latency_seconds)} ({times})",
        f"{error}, in {network.folder}",
    ]


KERNEL_HEADER = ("kernel", "calls", "time", "share")
_SHOWN = 0.01
"""Kernels that take a smaller share of the network are shown as one."""


def kernel_rows(network: NetworkResult) -> list[tuple[str, ...]]:
    """Where the time of a network goes, one row per kernel, as in ``KERNEL_HEADER``."""
    total = sum(kernel.seconds for kernel in network.kernels)
    unmeasured = {task.name for task in network.unmeasured}
    large = [kernel for kernel in network.kernels if kernel.seconds >= _SHOWN * total]
    small = [kernel for kernel in network.kernels if kernel.seconds < _SHOWN * total]
    rows = [(f"{one.name}{_remark(one, unmeasured)}", one.calls, one.seconds) for one in large]
    if small:
        calls, seconds = sum(one.calls for one in small), sum(one.seconds for one in small)
        rows.append((f"{len(small)} others", calls, seconds))
    return [
        (name, str(calls), duration(seconds), f"{seconds / total:.1%}")
        for name, calls, seconds in rows
    ]


RIVAL_HEADER = ("one inference", "precision", "median", "times ours", "error")


def rival_table(network: NetworkResult) -> list[tuple[str, ...]]:
    """The network and its rivals with the precision of each, as in ``RIVAL_HEADER``.

    Those in the network's precision come first, then those in float32, then the reduced ones.
    Where nothing was compared but in float32, there is none: the network's line says it all.
    """
    ours = network.latency_seconds
    if not network.rivals_reduced or ours is None:
        return []
    error, precision = network.max_relative_error, network.precision
    first = RivalTime(asked="", precision=precision, seconds=ours, max_relative_error=error)
    return [
        (
            name,
            rival.precision,
            duration(rival.seconds),
            f"{rival.seconds / ours:.2f}",
            "-" if rival.max_relative_error is None else f"{rival.max_relative_error:.1e}",
        )
        for name, rival in [("the compiled network", first), *rival_rows(network)]
    ]


FRONT_HEADER = ("operators in", "seconds", "error", "")


def front_rows(network: NetworkResult) -> list[tuple[str, ...]]:
    """The types that there were to choose among, one row a point, as in ``FRONT_HEADER``.

    Where there are buckets of shapes, the first column says which.
    """
    return [
        (
            *([] if point.bucket is None else [point.bucket]),
            ", ".join(f"{kind} {count}" for kind, count in point.types.items()),
            duration(point.seconds),
            f"{point.error:.1e}",
            "delivered" if point.delivered else "",
        )
        for point in network.front
    ]


BUCKET_HEADER = ("bucket", "network", "untuned", "best rival", "ratio", "error")


def bucket_rows(network: NetworkResult) -> list[tuple[str, ...]]:
    """One inference in each bucket of shapes, as in ``BUCKET_HEADER``.

    Where types were chosen, the last column has the precision of each.
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
                "-" if bucket.ratio is None else f"{bucket.ratio:.3f}",
                f"{bucket.max_relative_error:.1e}",
                *([bucket.precision] if network.precision_summary else []),
            )
        )
    return rows


def _remark(kernel: KernelTime, unmeasured: Collection[str]) -> str:
    if kernel.name in unmeasured:
        return " (not measured)"
    return "" if kernel.tuned else " (not tuned)"


def print_network(network: NetworkResult) -> None:
    """Print where the time of a network goes, and what became of it."""
    if network.kernels:
        sys.stdout.write("\n")
        print_table(KERNEL_HEADER, kernel_rows(network))
    if network.buckets:
        sys.stdout.write("\n")
        chosen = ("precision",) if network.precision_summary else ()
        print_table((*BUCKET_HEADER, *chosen), bucket_rows(network))
    if network.front:
        sys.stdout.write("\n")
        which = ("bucket",) if network.buckets else ()
        print_table((*which, *FRONT_HEADER), front_rows(network))
    if rivals := rival_table(network):
        sys.stdout.write("\n")
        print_table(RIVAL_HEADER, rivals)
    for line in network_lines(network):
        sys.stdout.write(line + "\n")


def duration(seconds: float | None) -> str:
    """A kernel's time in three digits, which is all that timings are good for."""
    return in_seconds(seconds, "#.3g")


def failures(failed: Mapping[str, int]) -> str:
    """Failures by kind, as ``build_error 3, crash 1``."""
    return ", ".join(f"{kind} {count}" for kind, count in sorted(failed.items())) or "0"


def print_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, file: TextIO | None = None
) -> None:
    """Print a table; the first column is text, the others are numbers."""
    file = file or sys.stdout
    if file.isatty():
        from rich.console import Console  # noqa: PLC0415 - 60 ms that --json need not wait for
        from rich.markup import escape  # noqa: PLC0415
        from rich.table import Table  # noqa: PLC0415

        # Where the terminal is narrow, names are folded; numbers stay whole.
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
        table.add_column(header[0], overflow="fold", min_width=12)
        for name in header[1:]:
            table.add_column(name, justify="right", no_wrap=True)
        for row in rows:
            table.add_row(*map(escape, row))
        Console(file=file).print(table)
        return
    lines = [tuple(header), *(tuple(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    for number, line in enumerate(lines):
        first, *others = (
            cell.ljust(width) if not column else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        text = "  ".join([first, *others]).rstrip()
        styled = click.style(text, bold=True) if number == 0 and in_colours(file) else text
        file.write(styled + "\n")
