"""The JSON arguments of an operator as fields that can be drawn one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Path = tuple[str | int, ...]
"""Where a value is in the arguments: a key, and in lists the places."""

ABSENT = object()
"""The value of a field that an operator leaves out, as it does with defaults."""


def flattened(arguments: Mapping[str, Any]) -> dict[Path, Any]:
    """Arguments as their values that are no lists, in the order in which they are written."""
    return {
        path: value for key, inner in arguments.items() for path, value in _leaves(inner, (key,))
    }


def _leaves(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _leaves(inner, (*path, key))
    elif isinstance(value, list | tuple) and value:
        for place, inner in enumerate(value):
            yield from _leaves(inner, (*path, place))
    else:
        yield path, value


def unflattened(fields: Mapping[Path, Any]) -> dict[str, Any]:
    """The arguments that ``flattened`` made these fields of; absent ones are left out."""
    out: dict[str | int, Any] = {}
    for path, value in fields.items():
        if value is ABSENT:
            continue
        below = out
        for step in path[:-1]:
            below = below.setdefault(step, {})
        below[path[-1]] = value
    return {str(key): _listed(value) for key, value in out.items()}


def _listed(value: Any) -> Any:
    if not isinstance(value, dict) or not value:
        return value
    inner = {key: _listed(one) for key, one in value.items()}
    if all(isinstance(key, int) for key in inner):
        return [inner[place] for place in sorted(inner)]
    return inner


def is_number(value: Any) -> bool:
    """Whether a value is an integer or a real number, and no flag."""
    return isinstance(value, int | float) and not isinstance(value, bool)
