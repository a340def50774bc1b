"""Plugins that a command is given by their paths: ``chameleon --plugin PATH``."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from chameleon_core.errors import ConfigError
from chameleon_core.plugins.given import (
    ENVIRONMENT,
    GivenPlugin,
    all_of,
    announced,
    enter_path,
    given_paths,
    replaces,
)


def give(paths: Iterable[str]) -> tuple[GivenPlugin, ...]:
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
    known = dict.fromkeys([*given_paths(), *absolute])
    found = all_of(known)
    for one in found:
        _check_import(one)
        enter_path(one.root)
    os.environ[ENVIRONMENT] = os.pathsep.join(known)
    return found


def replaced(plugins: Iterable[GivenPlugin]) -> list[tuple[GivenPlugin, str]]:
    """Which of some plugins take the place of an installed one, and of which distribution."""
    return [
        (one, distribution)
        for distribution, module in announced()
        for one in plugins
        if replaces(one, distribution, module)
    ]


def _check_import(one: GivenPlugin) -> None:
    """Refuse a name that means another module already: Python's own, or an installed one.

    Its folder comes first from now on, so that everything else would import it in that one's place.
    """
    top = one.module.partition(".")[0]
    if top in sys.stdlib_module_names:
        raise ConfigError(
            f"{one.path} cannot be imported: Python's own library has a module '{top}'",
            hint="give the module another name",
        )
    spec = importlib.util.find_spec(top)
    if spec is None:
        return
    own = {one.root / top, one.root / f"{top}.py"}
    places = [Path(place) for place in spec.submodule_search_locations or ()]
    places += [] if spec.origin is None else [Path(spec.origin)]
    if own & {place.resolve() for place in places}:
        return
    if top not in sys.modules and any(
        replaces(one, distribution, module) for distribution, module in announced()
    ):
        return
    raise ConfigError(
        f"{one.path} cannot be imported: there is another module '{top}', in {places[0].parent}",
        hint="give the module another name",
    )
