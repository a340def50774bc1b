"""Options as JSON values: the inverse of reading them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import attrs

from chameleon_core.plugins.registry import default_registry

Tags = Mapping[str, type]
"""Names of classes; an instance of one is written as a mapping with that name as its only key."""


def registered_classes(kind: str) -> Tags:
    """Names and classes of a kind of plugin, of the installed ones."""
    return default_registry().classes(kind)


def tags_of(field: attrs.Attribute[Any], classes: Callable[[str], Tags]) -> Tags | None:
    """The tags that the values of a field may have; None if they have none.

    Args:
        field: its metadata may hold ``tagged``, with names and classes, or a kind of plugin.
        classes: gives the names and classes of a kind.
    """
    tagged = field.metadata.get("tagged")
    return classes(tagged) if isinstance(tagged, str) else tagged


def default_of(
    field: attrs.Attribute[Any], classes: Callable[[str], Tags] = registered_classes
) -> Any:
    """The default of an option as JSON values, or ``attrs.NOTHING`` if it has none.

    Args:
        field: one that is computed of the other options has no default of its own.
        classes: gives the names and classes of a kind of plugin.
    """
    default: Any = field.default
    if isinstance(default, attrs.Factory):  # type: ignore[arg-type]
        default = attrs.NOTHING if default.takes_self else default.factory()
    if default is attrs.NOTHING:
        return default
    return to_json(default, tags_of(field, classes), classes=classes)


def to_json(
    value: Any, tags: Tags | None = None, *, classes: Callable[[str], Tags] = registered_classes
) -> Any:
    """An options instance, or any value in one, as JSON values.

    Args:
        value: an attrs instance, a container, an enum member, a path or a scalar.
        tags: the names of a tagged field's classes.
        classes: gives the names and classes of a kind of plugin.
    """
    # A stage among the options of another one says itself how a pipeline writes it.
    value = value.to_json() if hasattr(value, "to_json") else value
    if attrs.has(type(value)):
        plain = {
            field.alias: to_json(
                getattr(value, field.name), tags_of(field, classes), classes=classes
            )
            for field in attrs.fields(type(value))
            if field.init and not _unwritten(field, value)
        }
        name = next((name for name, kind in (tags or {}).items() if kind is type(value)), None)
        return plain if name is None else {name: plain}
    if isinstance(value, Mapping):
        return {str(key): to_json(inner, tags, classes=classes) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(inner, tags, classes=classes) for inner in value]
    if isinstance(value, set | frozenset):
        return sorted(to_json(inner, tags, classes=classes) for inner in value)
    if isinstance(value, Enum):
        return value.value
    return str(value) if isinstance(value, Path) else value


def _unwritten(field: attrs.Attribute[Any], value: Any) -> bool:
    """Whether a field is left out: one whose metadata say so (``unwritten_default``), unchanged."""
    return bool(
        field.metadata.get("unwritten_default") and getattr(value, field.name) == field.default
    )
