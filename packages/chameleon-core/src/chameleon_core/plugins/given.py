"""Plugins that are used where they lie, without being installed: ``chameleon --plugin PATH``.

Their paths are in an environment variable, so that every process that this one starts finds them
as well: candidates are built in worker processes, and their operators are plugins, too.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs

from chameleon_core.errors import ConfigError
from chameleon_core.plugins.hookspecs import PROJECT

ENVIRONMENT = "CHAMELEON_PLUGINS"
"""The variable, with paths separated as those of ``PATH``."""

_HOOKS = "hooks"


@attrs.frozen(kw_only=True)
class GivenPlugin:
    """A module with hooks, where it lies.

    Attributes:
        module: its name, as it is imported.
        root: the folder that it is imported from.
        distribution: the distribution whose source it is, or the name of its package.
        path: as it was given.
    """

    module: str
    root: Path
    distribution: str
    path: str

    def load(self) -> Any:
        """Import it.

        Raises:
            Exception: whatever the module raises.
        """
        enter_path(self.root)
        return importlib.import_module(self.module)


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
    found = _all_of(known)
    for one in found:
        _check_import(one)
        enter_path(one.root)
    os.environ[ENVIRONMENT] = os.pathsep.join(known)
    return found


def given() -> tuple[GivenPlugin, ...]:
    """The plugins that this process was given.

    Raises:
        ConfigError: as ``give`` does.
    """
    return _all_of(given_paths())


def replaces(one: GivenPlugin, distribution: str, module: str) -> bool:
    """Whether an installed plugin is the same one and is left out for it.

    Args:
        one: a plugin that was given.
        distribution: that of the installed one.
        module: the module with its hooks.
    """
    return module == one.module or canonical(distribution) == canonical(one.distribution)


def replaced(plugins: Iterable[GivenPlugin]) -> list[tuple[GivenPlugin, str]]:
    """Which of some plugins take the place of an installed one, and of which distribution."""
    return [
        (one, distribution)
        for distribution, module in _announced()
        for one in plugins
        if replaces(one, distribution, module)
    ]


def canonical(name: str) -> str:
    """One spelling of a distribution's name (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def enter_path(folder: Path) -> None:
    """Have modules imported from a folder before all others, as from that of a script."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def given_paths() -> list[str]:
    """The paths that this process was given, absolute."""
    return [path for path in os.environ.get(ENVIRONMENT, "").split(os.pathsep) if path]


def _all_of(paths: Iterable[str]) -> tuple[GivenPlugin, ...]:
    found: dict[str, GivenPlugin] = {}
    for path in paths:
        for one in _read(Path(path)):
            other = found.setdefault(one.module, one)
            if other.root != one.root:
                raise ConfigError(
                    f"{other.path} and {one.path} are both imported as '{one.module}'",
                    hint="give one of them another name",
                )
    return tuple(found.values())


def _read(path: Path) -> Iterable[GivenPlugin]:
    """The hooks of a path."""
    if not path.exists():
        raise ConfigError(
            f"there is no plugin {path}",
            hint="name a module with hooks, a package that has one called hooks.py, or the folder "
            "of a distribution",
        )
    if path.is_dir() and (path / "pyproject.toml").is_file():
        return _of_distribution(path)
    file = path if path.is_file() else path / f"{_HOOKS}.py"
    if file.suffix != ".py" or not file.is_file():
        raise ConfigError(
            f"{path} is no plugin: it has neither {_HOOKS}.py nor pyproject.toml"
            if path.is_dir()
            else f"{path} is no plugin: it is no Python module",
            hint="a plugin is a module whose functions are hooks, or a package with such a module",
        )
    return [_of_module(file, path)]


def _of_module(file: Path, path: Path) -> GivenPlugin:
    root = file.parent
    words = [file.stem]
    while (root / "__init__.py").is_file():
        words.insert(0, root.name)
        root = root.parent
    wrong = [word for word in words if not word.isidentifier()]
    if wrong:
        raise ConfigError(
            f"{path} cannot be imported: '{wrong[0]}' is no name of a module",
            hint="module names are made of letters, digits and underscores",
        )
    places = (root, root.parent) if root.name == "src" else (root,)
    names = [_project(place).get("name") for place in places]
    distribution = next((name for name in names if isinstance(name, str)), words[0])
    return GivenPlugin(module=".".join(words), root=root, distribution=distribution, path=str(path))


def _of_distribution(folder: Path) -> list[GivenPlugin]:
    project = _project(folder)
    points = project.get("entry-points", {}).get(PROJECT, {})
    if not points:
        raise ConfigError(
            f"{folder / 'pyproject.toml'} names no plugin",
            hint=f"a plugin is named in its table [project.entry-points.{PROJECT}]",
        )
    found = []
    for module in map(str, points.values()):
        relative = Path(*module.split("."))
        roots = [root for root in (folder / "src", folder) if _is_module(root / relative)]
        if not roots:
            raise ConfigError(
                f"{folder} has no module '{module}', which its pyproject.toml names",
                hint=f"it is looked for in {folder / 'src'} and in {folder}",
            )
        found.append(
            GivenPlugin(
                module=module,
                root=roots[0],
                distribution=str(project.get("name", folder.name)),
                path=str(folder),
            )
        )
    return found


def _is_module(path: Path) -> bool:
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def _project(folder: Path) -> Mapping[str, Any]:
    import tomllib  # noqa: PLC0415 - every command imports this module

    file = folder / "pyproject.toml"
    if not file.is_file():
        return {}
    try:
        project: Mapping[str, Any] = tomllib.loads(file.read_text("utf-8")).get("project", {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}", hint="correct the file") from error
    return project


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
        replaces(one, distribution, module) for distribution, module in _announced()
    ):
        return
    raise ConfigError(
        f"{one.path} cannot be imported: there is another module '{top}', in {places[0].parent}",
        hint="give the module another name",
    )


def _announced() -> Iterable[tuple[str, str]]:
    """Distribution and hooks module of every installed plugin."""
    from importlib import metadata  # noqa: PLC0415 - only where something is given

    for point in metadata.entry_points(group=PROJECT):
        yield ("" if point.dist is None else point.dist.name), point.module
