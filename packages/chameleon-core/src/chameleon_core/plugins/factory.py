"""Imports what a record names, when it is needed and not before."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

from chameleon_core.errors import ChameleonError, PluginError
from chameleon_core.plugins.kinds import Kind
from chameleon_core.plugins.records import (
    InstructionRecord,
    OperatorRecord,
    PluginRecord,
    TemplateRecord,
)
from chameleon_core.words import with_article

TRACEBACK = "`chameleon --debug`, with the same command after it, shows the traceback"
"""What whoever writes a plugin does first."""


def load_factory(factory: str) -> Callable[..., Any]:
    """Import the object behind ``"module:Class"``.

    Args:
        factory: module and attribute, separated by a colon.

    Returns:
        The class or function.

    Raises:
        PluginError: the text has another form, the module fails to import, or the object is
            missing or cannot be called.
    """
    module_name, colon, attribute = factory.partition(":")
    if not (colon and module_name and attribute):
        raise PluginError(
            f"factory {factory!r} has another form than 'module:Class'",
            hint="correct it where the plugin's hooks name it",
        )
    try:
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
    """Decides about an exception that came out of a plugin's own code.

    Args:
        error: the exception; of one that a missing module caused, the hint names the module.
    """
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    if not missing:
        return f"{TRACEBACK}; it is a mistake in the plugin"
    package = missing.partition(".")[0]
    if package != missing and package in sys.modules:
        return f"the package '{package}' has no module '{missing}': correct the import"
    return f"install the package that brings the module '{package}'"


def make_stage(kind: Kind, record: PluginRecord, options: Any, context: Any = None) -> Any:
    """Import a stage of a pipeline and make it, as ``make`` does.

    Args:
        kind: what it is; says whether the factory takes a context.
        record: what the plugin registered.
        options: an instance of ``record.options``.
        context: given to the factory of kinds that take one.
    """
    return make(kind, record, *((options, context) if kind.takes_context else (options,)))


def make(
    kind: Kind,
    record: PluginRecord | OperatorRecord | TemplateRecord | InstructionRecord,
    *arguments: Any,
) -> Any:
    """Import an implementation, make it and see that it has the methods of its contract.

    Args:
        kind: what it is.
        record: what the plugin registered.
        arguments: what the factory of such a kind is called with.

    Raises:
        PluginError: it cannot be imported, its constructor fails, or it lacks a method.
        ChameleonError: what the constructor itself reports in this form.
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
    missing = _missing_methods(kind, stage)
    if missing:
        raise PluginError(
            f"{kind.noun} '{record.name}' lacks {', '.join(map(repr, missing))}",
            hint=f"{record.factory!r} must have every method of {kind.contract}",
        )
    return stage


def _missing_methods(kind: Kind, stage: Any) -> list[str]:
    if kind.contract is None:
        return []
    contract = load_factory(kind.contract)
    names: frozenset[str] = getattr(contract, "__abstractmethods__", frozenset())
    return sorted(name for name in names if not hasattr(stage, name))
