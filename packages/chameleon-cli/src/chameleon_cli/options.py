"""Options that several commands have, and what they mean for the command line to be given again."""

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
from chameleon_core.errors import ConfigError
from chameleon_core.plugins import given


def give(paths: Iterable[str]) -> tuple[given.GivenPlugin, ...]:
    """Add plugins to those of this process and of all that it starts from now on.

    Args:
        paths: each a module with hooks, a package with a module ``hooks``, or the folder of a
            distribution that names its hooks in ``pyproject.toml``.

    Returns:
        All that are given by now.

    Raises:
        ConfigError: a path is none of these, or its module would be mixed up with another one.
    """
    absolute = [str(Path(path).expanduser().resolve()) for path in paths]
    known = dict.fromkeys([*given.given_paths(), *absolute])
    plugins = given.all_of(known)
    for plugin in plugins:
        _check_import(plugin)
        given.enter_path(plugin.root)
    os.environ[given.ENVIRONMENT] = os.pathsep.join(known)
    return plugins


def replaced(plugins: Iterable[given.GivenPlugin]) -> list[tuple[given.GivenPlugin, str]]:
    """Which of some plugins take the place of an installed one, and of which distribution."""
    return [
        (plugin, distribution)
        for distribution, module in given.announced()
        for plugin in plugins
        if given.replaces(plugin, distribution, module)
    ]


def _check_import(plugin: given.GivenPlugin) -> None:
    """Refuse a name that means another module already: Python's own, or an installed one.

    Its folder comes first from now on, and everything else would import it instead of the other.
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
        given.replaces(plugin, distribution, module) for distribution, module in given.announced()
    ):
        return
    raise ConfigError(
        f"{plugin.path} cannot be imported: there is another module '{top}', in {places[0].parent}",
        hint="give the module another name",
    )


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
        command: its name, several words if it is one of a group.
        file: what it reads.
        overrides: of ``--set``.
        output: of ``--output``.

    Returns:
        The command line, and the overrides with the output's folder among them.
    """
    plugins = [word for path in given.given_paths() for word in ("--plugin", path)]
    words = ["chameleon", *plugins, *command.split(), str(file)]
    words += [word for text in overrides for word in ("--set", text)]
    if output is not None:
        words += ["-o", str(output)]
        overrides = (*overrides, f"output={json.dumps(str(output.absolute()))}")
    return shlex.join(words), overrides
