"""Plugins that are used without being installed: ``chameleon --plugin PATH``.

An environment variable holds the paths of these plugins, so that child processes find them too.
Worker processes need them to build candidates whose operators come from plugins.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from chameleon_core._errors import ConfigError
from chameleon_core._plugins.hookspecs import PROJECT

PLUGINS_VARIABLE = "CHAMELEON_PLUGINS"
"""Environment variable with the paths of plugins, separated as in ``PATH``."""

_HOOKS = "hooks"


@attrs.frozen(kw_only=True)
class LocalPlugin:
    """A plugin that the user named with ``--plugin``: a module with hooks that is not installed.

    Attributes:
        module: the name under which the module is imported.
        root: the folder that the module is imported from.
        distribution: the distribution that the module belongs to. If it belongs to none, the name
            of its package.
        path: the path as the user wrote it.
    """

    module: str
    root: Path
    distribution: str
    path: str

    def load(self) -> Any:
        """Import the plugin's module with its hooks, and return the module."""
        self.enter_path()
        return importlib.import_module(self.module)

    def enter_path(self) -> None:
        """Put the plugin's folder first in the import path of this process."""
        if str(self.root) not in sys.path:
            sys.path.insert(0, str(self.root))

    def replaces(self, distribution: str, module: str) -> bool:
        """Whether Chameleon loads this plugin instead of an installed one."""
        return module == self.module or canonical(distribution) == canonical(self.distribution)


def add(named: Iterable[str]) -> Sequence[tuple[str, str]]:
    """Use plugins that are not installed, in this process and in processes started later.

    Args:
        named: the paths of the plugins. Each is a module with hooks, a package with a module
            ``hooks``, or the folder of a distribution that names its hooks in ``pyproject.toml``.

    Returns:
        The path of each local plugin that replaces an installed one, with the distribution of the
        installed one.

    Raises:
        ConfigError: a path is no plugin, or another module has the name of the plugin's module.
    """
    absolute = [str(Path(path).expanduser().resolve()) for path in named]
    known = dict.fromkeys([*paths(), *absolute])
    plugins, installed = _plugins_at(known), list(_installed())
    for plugin in plugins:
        _check_import(plugin, installed)
        plugin.enter_path()
    os.environ[PLUGINS_VARIABLE] = os.pathsep.join(known)
    return [
        (plugin.path, distribution)
        for distribution, module in installed
        for plugin in plugins
        if plugin.replaces(distribution, module)
    ]


def paths() -> list[str]:
    """The absolute paths of the plugins that this process uses without their installation."""
    return [path for path in os.environ.get(PLUGINS_VARIABLE, "").split(os.pathsep) if path]


def in_use() -> tuple[LocalPlugin, ...]:
    """The plugins that this process uses without their installation.

    Raises:
        ConfigError: a path is no plugin, or two modules have the same name.
    """
    return _plugins_at(paths())


def is_local(distribution: str) -> bool:
    """Whether a local plugin replaces the installed distribution of this name, if there is one."""
    name = canonical(distribution)
    return any(canonical(plugin.distribution) == name for plugin in in_use())


def canonical(name: str) -> str:
    """The canonical form of a distribution's name (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _installed() -> Iterable[tuple[str, str]]:
    """Distribution and hooks module of every installed plugin."""
    from importlib import metadata  # noqa: PLC0415 - only commands with ``--plugin`` need it

    for point in metadata.entry_points(group=PROJECT):
        yield ("" if point.dist is None else point.dist.name), point.module


def _check_import(plugin: LocalPlugin, installed: Iterable[tuple[str, str]]) -> None:
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
    if top not in sys.modules and any(plugin.replaces(*other) for other in installed):
        return
    raise ConfigError(
        f"{plugin.path} cannot be imported: there is another module '{top}', in {places[0].parent}",
        hint="give the module another name",
    )


def _plugins_at(paths: Iterable[str]) -> tuple[LocalPlugin, ...]:
    plugins: dict[str, LocalPlugin] = {}
    for path in paths:
        for plugin in _read(Path(path)):
            other = plugins.setdefault(plugin.module, plugin)
            if other.root != plugin.root:
                raise ConfigError(
                    f"{other.path} and {plugin.path} are both imported as '{plugin.module}'",
                    hint="give one of them another name",
                )
    return tuple(plugins.values())


def _read(path: Path) -> Iterable[LocalPlugin]:
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


def _of_module(file: Path, path: Path) -> LocalPlugin:
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
    return LocalPlugin(module=".".join(words), root=root, distribution=distribution, path=str(path))


def _of_distribution(folder: Path) -> list[LocalPlugin]:
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
            LocalPlugin(
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
