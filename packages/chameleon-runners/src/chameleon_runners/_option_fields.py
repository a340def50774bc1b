"""Functions that define options of runners. This module imports no numerical library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
from chameleon_core.plugin_api import option as core_option

_BEFORE = "before"


def option(
    default: Any,
    words: str,
    *,
    binds: bool = True,
    check: Callable[[Any, Any, Any], None] | None = None,
    before: str | None = None,
    **bounds: float,
) -> Any:
    """Define an option of a runner, on which measured times may depend."""
    checks = () if check is None else (check,)
    about: dict[str, Any] = {"binds": binds, _BEFORE: before}
    return core_option(default, words, *checks, **bounds, **about)


def unbound(default: Any, words: str, **more: Any) -> Any:
    """Define an option on which measured times do not depend."""
    return option(default, words, binds=False, **more)


def duration(default: float, words: str, **more: Any) -> Any:
    """Define an option in seconds on which measured times do not depend."""
    return unbound(default, words, above=0.0, **more)


def in_place(cls: type, fields: list[attrs.Attribute[Any]]) -> list[attrs.Attribute[Any]]:
    """Sort the options of a class by their ``before``, among those of its base class."""
    known = {field.name: field for field in fields}
    order = [field.name for field in attrs.fields(cls.__bases__[0])]
    position = len(order)
    for name in [name for name in known if name not in order]:
        if known[name].metadata.get(_BEFORE):
            position = order.index(known[name].metadata[_BEFORE])
        order.insert(position, name)
        position += 1
    return [known[name] for name in order]
