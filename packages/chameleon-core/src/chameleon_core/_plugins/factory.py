"""Imports the classes and functions that records name, when they are needed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from chameleon_system.api import pause_garbage_collection

from chameleon_core._errors import PluginError
from chameleon_core._plugins.first_party import how_to_install
from chameleon_core._words import with_article

TRACEBACK = "`chameleon --debug`, with the same command after it, shows the traceback"
"""The first step for the author of a plugin, as a part of a hint."""


def load_factory(factory: str | Callable[..., Any]) -> Callable[..., Any]:
    """Import the class or function that a string such as ``"module:Class"`` names.

    Args:
        factory: the names of the module and of the attribute, separated by a colon; or the class or
            function itself, for stages that a program defines.

    Returns:
        The class or function.

    Raises:
        PluginError: the string has another form, the module fails to import, or the object is
            missing or cannot be called.
    """
    if callable(factory):
        return factory
    module_name, colon, attribute = factory.partition(":")
    if not (colon and module_name and attribute):
        raise PluginError(
            f"factory {factory!r} has another form than 'module:Class'",
            hint="correct it where the plugin's hooks name it",
        )
    try:
        # The import waits if another thread is still importing the module.
        with nullcontext() if module_name in sys.modules else pause_garbage_collection():
            value: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            value = getattr(value, part)
    except (Exception, SystemExit) as error:  # a plugin's module may raise anything
        missing = isinstance(error, ModuleNotFoundError)
        words = str(error) if missing else f"{type(error).__name__}: {error}"
        raise PluginError(
            f"{factory!r} cannot be imported: {words}", hint=hint_after(error)
        ) from error
    if not callable(value):
        raise PluginError(
            f"{factory!r} is {with_article(type(value).__name__)} and cannot be called",
            hint="the plugin's hooks must name a class or a function",
        )
    loaded: Callable[..., Any] = value
    return loaded


def hint_after(error: BaseException) -> str:
    """The hint of an error message about an exception that a plugin's own code raised.

    Args:
        error: the exception. If a module is missing, the hint names the module.
    """
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if not missing:
        return f"{TRACEBACK}; it is a mistake in the plugin"
    package = missing.partition(".")[0]
    if package != missing and package in sys.modules:
        return f"the package '{package}' has no module '{missing}': correct the import"
    if package.startswith("chameleon_"):
        return how_to_install(package.replace("chameleon_", "chameleon-tuner-").replace("_", "-"))
    return f"install the package that brings the module '{package}'"
