"""Plugins that are used without being installed: ``chameleon --plugin PATH``.

An environment variable holds the paths of these plugins, so that child processes find them too.
Worker processes need them to build candidates whose operators come from plugins.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs

from chameleon_core._errors import ConfigError
from chameleon_core._plugins.hookspecs import PROJECT

PLUGINS_VARIABLE = "CHAMELEON_PLUGINS"
"""Environment variable with the paths of plugins, separated as in ``PATH``."""

_HOOKS = "hooks"


@attrs.frozen(kw_only=True)
class GivenPlugin:
    """A plugin that the user gave with ``--plugin``: a module with hooks that is not installed.

    Attributes:
        module: the name under which the module is imported.
        root: the folder that the module is imported from.
        distribution: the distribution that the module belongs to. If it belongs to none, the name
            of its package.
        path: the path as the user gave it.
    """

    module: str
    root: Path
    distribution: str
    path: str

    def load(self) -> Any:
        """Import the plugin's module with its hooks, and return the module.

        Raises:
            Exception: any exception that the module raises.
        """
        enter_path(self.root)
        return importlib.import_module(self.module)


def given_plugins() -> tuple[GivenPlugin, ...]:
    """The plugins that the user gave to this process with ``--plugin``.

    Raises:
        ConfigError: a path is no plugin, or two modules have the same name.
    """
    return all_of(given_paths())


def is_given(distribution: str) -> bool:
    """Whether the user gave a plugin of a distribution with ``--plugin``."""
    name = canonical(distribution)
    return any(canonical(plugin.distribution) == name for plugin in given_plugins())


def replaces(plugin: GivenPlugin, distribution: str, module: str) -> bool:
    """Whether a plugin given with ``--plugin`` is another copy of an installed plugin.

    Chameleon then loads the given copy, and not the installed one.

    Args:
        plugin: the plugin that was given with ``--plugin``.
        distribution: the distribution of the installed plugin.
        module: the module with the hooks of the installed plugin.
    """
    return module == plugin.module or canonical(distribution) == canonical(plugin.distribution)


def canonical(name: str) -> str:
    """The canonical form of a distribution's name (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def enter_path(folder: Path) -> None:
    """Put a folder first in the import path of this process."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def given_paths() -> list[str]:
    """The absolute paths of the plugins that the user gave with ``--plugin``."""
    return [path for path in os.environ.get(PLUGINS_VARIABLE, "").split(os.pathsep) if path]


def all_of(paths: Iterable[str]) -> tuple[GivenPlugin, ...]:
    """The plugins at some paths, each a module or package with hooks.

    Args:
        paths: the paths as the user gave them with ``--plugin``.

    Raises:
        ConfigError: a path is no plugin, or two modules have the same name.
    """
    plugins: dict[str, GivenPlugin] = {}
    for path in paths:
        for plugin in _read(Path(path)):
            other = plugins.setdefault(plugin.module, plugin)
            if other.root != plugin.root:
                raise ConfigError(
                    f"{other.path} and {plugin.path} are both imported as '{plugin.module}'",
                    hint="give one of them another name",
                )
    return tuple(plugins.values())


def _read(path: Path) -> Iterable[GivenPlugin]:
    """The modules with hooks at a path."""
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
    names = [_project(folder).get("name") for folder in places]
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
    plugins = []
    for module in map(str, points.values()):
        relative = Path(*module.split("."))
        roots = [root for root in (folder / "src", folder) if _is_module(root / relative)]
        if not roots:
            raise ConfigError(
                f"{folder} has no module '{module}', which its pyproject.toml names",
                hint=f"it is looked for in {folder / 'src'} and in {folder}",
            )
        plugins.append(
            GivenPlugin(
                module=module,
                root=roots[0],
                distribution=str(project.get("name", folder.name)),
                path=str(folder),
            )
        )
    return plugins


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


def announced() -> Iterable[tuple[str, str]]:
    """Distribution and hooks module of every installed plugin."""
    from importlib import metadata  # noqa: PLC0415 - only where something is given

    for point in metadata.entry_points(group=PROJECT):
        yield ("" if point.dist is None else point.dist.name), point.module
