"""Options that several commands have, and what they mean for the command line to be given again."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from chameleon_core.plugins.given import given_paths

Option = Callable[[Callable[..., Any]], Callable[..., Any]]


def set_option(example: str) -> Option:
    """``--set``, as ``overrides``: assignments that are stronger than a file.

    Args:
        example: such as ``budget.measurements=64``.
    """
    return click.option(
        "--set",
        "overrides",
        metavar="KEY=VALUE",
        multiple=True,
        help=f"Overrule the file, as in {example}. May be given again.",
    )


def output_option(what: str) -> Option:
    """``-o`` or ``--output``, a folder that replaces the one a file names.

    Args:
        what: the folder is, such as ``The run folder``.
    """
    return click.option(
        "-o",
        "--output",
        type=click.Path(path_type=Path, file_okay=False),
        help=f"{what}, instead of the file's.",
    )


trust_option = click.option(
    "--trust-source",
    is_flag=True,
    help="Run the code that the folder names or carries; only if it is yours or you read it.",
)
"""``--trust-source``: of what a folder says, code is run as well."""


def given_again(
    command: str, file: Path, overrides: tuple[str, ...], output: Path | None
) -> tuple[str, tuple[str, ...]]:
    """The command line that continues what one with these options began.

    Args:
        command: its name, several words where it is one of a group.
        file: what it reads.
        overrides: of ``--set``.
        output: of ``--output``.

    Returns:
        The command line, and the overrides with the output's folder among them.
    """
    plugins = [word for path in given_paths() for word in ("--plugin", path)]
    words = ["chameleon", *plugins, *command.split(), str(file)]
    words += [word for text in overrides for word in ("--set", text)]
    if output is not None:
        words += ["-o", str(output)]
        overrides = (*overrides, f"output={json.dumps(str(output.absolute()))}")
    return shlex.join(words), overrides
