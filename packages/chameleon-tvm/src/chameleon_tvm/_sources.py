"""Imports objects from the user's own Python code, which a pipeline names by file or module."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from chameleon_core.plugin_api import ConfigError
from chameleon_system.api import with_article


def named_object(source: str, who: str) -> Any:
    """Import the object named by ``path.py:function`` or ``package.module:function``.

    Args:
        source: The object's name in one of these two forms.
        who: The part of the pipeline that names the object, such as an option, for error messages.

    Raises:
        ConfigError: The file, module or attribute does not exist, or importing it fails.
    """
    path, _, attribute = source.rpartition(":")
    module = _file_module(path, who) if path.endswith(".py") else _package_module(path, who)
    if not hasattr(module, attribute):
        offered = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        raise ConfigError(
            f"{who}: {path} has no {attribute!r}",
            hint=f"It has {', '.join(offered[:8])}." if offered else "It defines no function.",
        )
    return getattr(module, attribute)


def named_function(source: str, who: str, hint: str) -> Callable[..., Any]:
    """Import the function named by ``path.py:function`` or ``package.module:function``.

    Args:
        source: The function's name in one of these two forms.
        who: The part of the pipeline that names the function, for error messages.
        hint: The hint of the error if the object is not callable.

    Raises:
        ConfigError: The function does not exist, or the object is not callable.
    """
    function: Callable[..., Any] | None = named_object(source, who)
    if not callable(function):
        kind = with_article(type(function).__name__)
        raise ConfigError(f"{who}: {source} is {kind} and no function", hint=hint)
    return function


def _file_module(file: str, who: str) -> ModuleType:
    path = Path(file).expanduser().resolve()
    if not path.is_file():
        raise ConfigError(
            f"{who}: there is no file {file}",
            hint="Paths are relative to the pipeline file, or without one to the working "
            f"directory, {Path.cwd()}.",
        )
    # Registered under a name of its own: TVMScript reads the source of the module it runs in.
    # Two files of one stem are two modules, or the second would take the first one's place.
    folder = hashlib.sha256(str(path.parent).encode()).hexdigest()[:12]
    name = f"_chameleon_user_{folder}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{who}: {file} is not a Python file", hint="Name a file ending in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ConfigError(
            f"{who}: {file} cannot be imported: {type(error).__name__}: {error}",
            hint=f"Run `python {file}` to see the whole error.",
        ) from error
    return module


def _package_module(package: str, who: str) -> ModuleType:
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ConfigError(
            f"{who}: module {package!r} cannot be imported: {error}",
            hint="Install it into this environment, or name a file as 'path.py:function'.",
        ) from error
