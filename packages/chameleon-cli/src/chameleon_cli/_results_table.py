"""Tables for users: by the library rich on a terminal, as aligned plain text elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TextIO

import click
from chameleon_core.api import NetworkResult

from chameleon_cli import _result_rows as result_rows
from chameleon_cli._colours import in_colours


def print_network(network: NetworkResult) -> None:
    """Print the times of a network's kernels, its buckets, choices and rivals, and its result.

    Args:
        network: the result of the network.
    """
    chosen = ("precision",) if network.precision_summary else ()
    for header, rows in (
        (result_rows.KERNEL_HEADER, result_rows.kernel_rows(network)),
        ((*result_rows.BUCKET_HEADER, *chosen), result_rows.bucket_rows(network)),
        result_rows.front_table(network),
        (result_rows.RIVAL_HEADER, result_rows.rival_table(network)),
    ):
        if rows:
            sys.stdout.write("\n")
            print_table(header, rows)
    for line in result_rows.network_lines(network):
        sys.stdout.write(line + "\n")


def print_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, file: TextIO | None = None
) -> None:
    """Print a table. The first column is left-aligned, the others are right-aligned.

    Args:
        header: the names of the columns.
        rows: the rows, each with one string per column.
        file: the stream to print to; stdout if None.
    """
    file = file or sys.stdout
    if file.isatty():
        from rich.console import Console  # noqa: PLC0415 - 60 ms that --json need not wait for
        from rich.markup import escape  # noqa: PLC0415
        from rich.table import Table  # noqa: PLC0415

        # In a narrow terminal, names are wrapped and numbers are not.
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
