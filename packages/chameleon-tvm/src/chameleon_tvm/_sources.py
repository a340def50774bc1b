"""Imports objects from the user's own Python code, which a pipeline names by file or module."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from chameleon_core.api import words
from chameleon_core.plugin_api import ConfigError


def named_object(source: str, context: str) -> Any:
    """Import the object named by ``path.py:function`` or ``package.module:function``.

    Args:
        source: The object's name in one of these two forms.
        context: The part of the pipeline that names the object, for error messages.

    Raises:
        ConfigError: The file, module or attribute does not exist, or importing it fails.
    """
    path, _, attribute = source.rpartition(":")
    module = _file_module(path, context) if path.endswith(".py") else _package_module(path, context)
    if not hasattr(module, attribute):
        functions = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        raise ConfigError(
            f"{context}: {path} has no {attribute!r}",
            hint=f"It has {', '.join(functions[:8])}." if functions else "It defines no function.",
        )
    return getattr(module, attribute)


def named_function(source: str, context: str, hint: str) -> Callable[..., Any]:
    """Import the function named by ``path.py:function`` or ``package.module:function``.

    Args:
        source: The function's name in one of these two forms.
        context: The part of the pipeline that names the function, for error messages.

    Raises:
        ConfigError: The function does not exist, or the object is not callable.
    """
    function: Callable[..., Any] | None = named_object(source, context)
    if not callable(function):
        kind = words.with_article(type(function).__name__)
        raise ConfigError(f"{context}: {source} is {kind} and no function", hint=hint)
    return function


def _file_module(file: str, context: str) -> ModuleType:
    path = Path(file).expanduser().resolve()
    if not path.is_file():
        raise ConfigError(
            f"{context}: there is no file {file}",
            hint="Paths are relative to the pipeline file, or without one to the working "
            f"directory, {Path.cwd()}.",
        )
    # Registered under a name of its own: TVMScript reads the source of the module it runs in. The
    # name contains the folder, since a second file with the same stem would replace the first
    # module.
    folder = hashlib.sha256(str(path.parent).encode()).hexdigest()[:12]
    name = f"_chameleon_user_{folder}_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ConfigError(
            f"{context}: {file} is not a Python file", hint="Name a file ending in .py."
        )
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with _neighbours(str(path.parent)):
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        hint = f"Run `python {file}` to see the whole error."
        if isinstance(error, ModuleNotFoundError):
            hint = (
                f"The module {error.name!r} is neither in {path.parent} nor installed for "
                f"{sys.executable}."
            )
        raise ConfigError(
            f"{context}: {file} cannot be imported: {type(error).__name__}: {error}", hint=hint
        ) from error
    return module


_NEIGHBOURS: set[str] = set()
"""Names of modules that the user's files have imported from their own folders."""


@contextlib.contextmanager
def _neighbours(folder: str) -> Iterator[None]:
    """Let a file import the modules beside it, as ``python file.py`` does."""
    # Another folder may have modules of the same names, and these files may have changed since.
    for name in _NEIGHBOURS:
        sys.modules.pop(name, None)
    _NEIGHBOURS.clear()
    before = set(sys.modules)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
        if folder not in sys.path:
            sys.path.append(folder)  # a function may import modules when it is called
        for name in sys.modules.keys() - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file is not None and Path(file).is_relative_to(folder):
                _NEIGHBOURS.add(name)


def _package_module(package: str, context: str) -> ModuleType:
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ConfigError(
            f"{context}: module {package!r} cannot be imported: {error}",
            hint="Install it into this environment, or name a file as 'path.py:function'.",
        ) from error
