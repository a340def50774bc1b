"""Imports the classes and functions that records name, when they are needed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from chameleon_system.api import pause_garbage_collection

from chameleon_core._errors import ChameleonError, PluginError
from chameleon_core._plugins.first_party import how_to_install
from chameleon_core._plugins.kinds import Kind
from chameleon_core._plugins.records import (
    InstructionRecord,
    OperatorRecord,
    PluginRecord,
    TemplateRecord,
)
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


def make_stage(kind: Kind, record: PluginRecord, options: Any, context: Any = None) -> Any:
    """Import and make a stage of a pipeline. Raises the same errors as ``make``.

    Args:
        kind: the kind of the stage. It decides whether the factory takes a context.
        record: the record that the plugin registered.
        options: an instance of ``record.options``.
        context: the second argument of the factory, for kinds that take a context.
    """
    return make(kind, record, *((options, context) if kind.takes_context else (options,)))


def make(
    kind: Kind,
    record: PluginRecord | OperatorRecord | TemplateRecord | InstructionRecord,
    *arguments: Any,
) -> Any:
    """Import a plugin's class, make an object, and check that it has the methods of its contract.

    Args:
        kind: the kind of the plugin, such as explorers.
        record: the record that the plugin registered.
        arguments: the arguments of the factory.

    Raises:
        PluginError: the class cannot be imported, its constructor fails, or the object lacks a
            method.
        ChameleonError: the constructor raised a ``ChameleonError``, which is passed on.
    """
    factory = load_factory(record.factory)
    try:
        stage = factory(*arguments)
    except ChameleonError:
        raise
    except (Exception, SystemExit) as error:
        raise PluginError(
            f"{kind.noun} '{record.name}' cannot be made: {type(error).__name__}: {error}",
            hint=f"{record.factory!r} raised this; {hint_after(error)}",
        ) from error
    if missing := _missing_methods(kind, stage):
        raise PluginError(
            f"{kind.noun} '{record.name}' lacks {', '.join(map(repr, missing))}",
            hint=f"{record.factory!r} must have every method of {kind.contract}",
        )
    return stage


def _missing_methods(kind: Kind, stage: Any) -> list[str]:
    if kind.contract is None:
        return []
    names: frozenset[str] = getattr(load_factory(kind.contract), "__abstractmethods__", frozenset())
    return sorted(name for name in names if not hasattr(stage, name))
