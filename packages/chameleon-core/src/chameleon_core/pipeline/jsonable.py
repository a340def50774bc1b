"""Options as JSON values: the inverse of reading them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import attrs


def to_json(value: Any, tags: Mapping[str, type] | None = None) -> Any:
    """An options instance, or any value in one, as JSON values.

    Args:
        value: an attrs instance, a container, an enum member, a path or a scalar.
        tags: the names of a tagged field's classes; an instance of one of them becomes a
            mapping with that name as its only key.
    """
    # A stage among the options of another one says itself how a pipeline writes it.
    value = value.to_json() if hasattr(value, "to_json") else value
    if attrs.has(type(value)):
        plain = {
            field.alias: to_json(getattr(value, field.name), field.metadata.get("tagged"))
            for field in attrs.fields(type(value))
            if field.init
        }
        name = next((name for name, kind in (tags or {}).items() if kind is type(value)), None)
        return plain if name is None else {name: plain}
    if isinstance(value, Mapping):
        return {str(key): to_json(inner, tags) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(inner, tags) for inner in value]
    if isinstance(value, set | frozenset):
        return sorted(to_json(inner, tags) for inner in value)
    if isinstance(value, Enum):
        return value.value
    return str(value) if isinstance(value, Path) else value
