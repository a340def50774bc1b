"""Options as JSON values, as a pipeline file would contain them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import attrs

from chameleon_core._plugins.registry import Registry

Tags = Mapping[str, type]
"""Classes by name. An instance is written as a mapping with the name of its class as the only
key."""


def registered_classes(kind: str) -> Tags:
    """Names and classes of one kind of installed plugins."""
    return Registry.default().classes(kind)


def tags_of(field: attrs.Attribute[Any], classes: Callable[[str], Tags]) -> Tags | None:
    """The attrs classes from which the values of a tagged option choose one by its name.

    A tagged option has values such as ``{dense: {...}}``, whose only key names the class.

    Args:
        field: the option. If it is tagged, its metadata has ``tagged``: classes by name, or a kind
            of plugin.
        classes: a function that returns the classes of a kind of plugin, by name.

    Returns:
        The classes by name, or None if the option is not tagged.
    """
    tagged = field.metadata.get("tagged")
    return classes(tagged) if isinstance(tagged, str) else tagged


def to_json(
    value: Any, tags: Tags | None = None, *, classes: Callable[[str], Tags] = registered_classes
) -> Any:
    """Convert options, or any value in them, to JSON values.

    Args:
        value: an attrs instance, a container, an enum member, a path or a scalar.
        tags: the classes, by name, that the values of a tagged field may have.
        classes: a function that returns the classes of a kind of plugin, by name.
    """
    # A stage that is an option of another stage has its own ``to_json``.
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
    """Whether a field is left out: unchanged, and marked as ``unwritten_default``."""
    return bool(
        field.metadata.get("unwritten_default") and getattr(value, field.name) == field.default
    )
