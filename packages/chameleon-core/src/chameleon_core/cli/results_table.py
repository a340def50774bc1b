"""Tables for people: rich on a terminal, aligned plain text anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TextIO

from chameleon_core.loop.result import OperatorResult

OPERATOR_HEADER = (
    "operator",
    "untuned",
    "tuned",
    "vendor",
    "ratio",
    "GFLOP/s",
    "measurements",
    "failed",
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
            failures(operator.failed),
            f"{operator.spending.total:.1f}",
        )
        for operator in operators
    ]


def duration(seconds: float | None) -> str:
    """A kernel's time with a unit that suits it."""
    if seconds is None:
        return "-"
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.4g} {unit}"
    return f"{seconds / 1e-9:.4g} ns"


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
        from rich.table import Table  # noqa: PLC0415

        table = Table(*header[:1])
        for name in header[1:]:
            table.add_column(name, justify="right")
        for row in rows:
            table.add_row(*row)
        Console(file=file).print(table)
        return
    lines = [tuple(header), *(tuple(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    for line in lines:
        first, *others = (
            cell.ljust(width) if not column else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        file.write("  ".join([first, *others]).rstrip() + "\n")
