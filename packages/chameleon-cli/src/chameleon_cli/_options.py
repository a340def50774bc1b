"""Command-line options that several commands share, and text of commands that continue a run."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from chameleon_core.api import local_plugins
from chameleon_core.plugin_api import parse_duration


def seconds(_: click.Context, option: click.Parameter, text: str | None) -> float | None:
    """Read an option that holds a duration such as ``20m``, as click's callback of the option.

    Raises:
        click.BadParameter: the text is no duration.
    """
    try:
        return None if text is None else parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param=option) from error


Option = Callable[[Callable[..., Any]], Callable[..., Any]]


def set_option(example: str) -> Option:
    """The command-line option ``--set``, whose assignments override a file.

    Commands get the assignments as the argument ``overrides``.

    Args:
        example: an example of an assignment, such as ``budget.measurements=64``.
    """
    return click.option(
        "--set",
        "overrides",
        metavar="KEY=VALUE",
        multiple=True,
        help=f"Override a key of the file, as in {example}. May be repeated.",
    )


def output_option(what: str) -> Option:
    """The option ``-o`` or ``--output``: the folder that a command writes.

    The option overrides the output folder that the command's input file, such as a pipeline, names.

    Args:
        what: a noun for the folder, such as ``The run folder``.
    """
    return click.option(
        "-o",
        "--output",
        type=click.Path(path_type=Path, file_okay=False),
        help=f"{what}, in place of the one that the file names.",
    )


trust_option = click.option(
    "--trust-source",
    is_flag=True,
    help="Run code that the folder names or contains. Use it only for code that you wrote or read.",
)
"""The option ``--trust-source``: code that a folder contains or names may be run."""


def given_again(
    command: str, file: Path, overrides: tuple[str, ...], output: Path | None
) -> tuple[str, tuple[str, ...]]:
    """The command line that continues a run or suite that was started with these options.

    Args:
        command: the name of the command; several words for a command of a group.
        file: the file that the command reads.
        overrides: the values of ``--set``.
        output: the value of ``--output``, or None.

    Returns:
        The command line, and the overrides with an assignment for the output's folder.
    """
    plugins = [word for path in local_plugins.paths() for word in ("--plugin", path)]
    words = ["chameleon", *plugins, *command.split(), str(file)]
    words += [word for text in overrides for word in ("--set", text)]
    if output is not None:
        words += ["-o", str(output)]
        overrides = (*overrides, f"output={json.dumps(str(output.absolute()))}")
    return shlex.join(words), overrides
