"""Command-line options that several commands share, and text of commands that continue a run."""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
from chameleon_core.api import (
    PLUGINS_VARIABLE,
    GivenPlugin,
    all_of,
    announced,
    enter_path,
    given_paths,
    replaces,
)
from chameleon_core.plugin_api import ConfigError, parse_duration


def seconds(_: click.Context, option: click.Parameter, text: str | None) -> float | None:
    """Read an option that holds a duration such as ``20m``, as click's callback of the option.

    Raises:
        click.BadParameter: the text is no duration.
    """
    try:
        return None if text is None else parse_duration(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param=option) from error


def give(paths: Iterable[str]) -> tuple[GivenPlugin, ...]:
    """Add plugins that the user gives with ``--plugin``, also for processes started later.

    Args:
        paths: the paths of the plugins. Each is a module with hooks, a package with a module
            ``hooks``, or the folder of a distribution that names its hooks in ``pyproject.toml``.

    Returns:
        All plugins that were added so far.

    Raises:
        ConfigError: a path is no plugin, or another module has the name of the plugin's module.
    """
    absolute = [str(Path(path).expanduser().resolve()) for path in paths]
    known = dict.fromkeys([*given_paths(), *absolute])
    plugins = all_of(known)
    for plugin in plugins:
        _check_import(plugin)
        enter_path(plugin.root)
    os.environ[PLUGINS_VARIABLE] = os.pathsep.join(known)
    return plugins


def replaced(plugins: Iterable[GivenPlugin]) -> list[tuple[GivenPlugin, str]]:
    """The plugins given with ``--plugin`` that replace an installed one, with its distribution.

    Args:
        plugins: plugins that were given with ``--plugin``.
    """
    return [
        (plugin, distribution)
        for distribution, module in announced()
        for plugin in plugins
        if replaces(plugin, distribution, module)
    ]


def _check_import(plugin: GivenPlugin) -> None:
    """Raise an error if a plugin has the name of another module.

    The plugin's folder is first in the import path. So imports of the other module, from Python's
    library or an installed package, would get the plugin instead.
    """
    top = plugin.module.partition(".")[0]
    if top in sys.stdlib_module_names:
        raise ConfigError(
            f"{plugin.path} cannot be imported: Python's own library has a module '{top}'",
            hint="give the module another name",
        )
    spec = importlib.util.find_spec(top)
    if spec is None:
        return
    own = {plugin.root / top, plugin.root / f"{top}.py"}
    places = [Path(folder) for folder in spec.submodule_search_locations or ()]
    places += [] if spec.origin is None else [Path(spec.origin)]
    if own & {folder.resolve() for folder in places}:
        return
    if top not in sys.modules and any(
        replaces(plugin, distribution, module) for distribution, module in announced()
    ):
        return
    raise ConfigError(
        f"{plugin.path} cannot be imported: there is another module '{top}', in {places[0].parent}",
        hint="give the module another name",
    )


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
    plugins = [word for path in given_paths() for word in ("--plugin", path)]
    words = ["chameleon", *plugins, *command.split(), str(file)]
    words += [word for text in overrides for word in ("--set", text)]
    if output is not None:
        words += ["-o", str(output)]
        overrides = (*overrides, f"output={json.dumps(str(output.absolute()))}")
    return shlex.join(words), overrides
