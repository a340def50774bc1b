"""Options of runners in few words; importable without numerical libraries."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
from chameleon_core.plugins import options
from chameleon_core.plugins.options import BINDS

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
    """An option, on which measurements may depend.

    Args:
        default: as of ``options.option``.
        words: its help.
        binds: whether measurements depend on it (``chameleon_core.plugins.options``).
        check: a validator.
        before: the inherited option that it is listed before.
        bounds: ``at_least`` or ``above``.
    """
    checks = () if check is None else (check,)
    about: dict[str, Any] = {BINDS: binds, _BEFORE: before}
    return options.option(default, words, *checks, **bounds, **about)


def unbound(default: Any, words: str, **more: Any) -> Any:
    """An option on which no measurement depends; arguments as of ``option``."""
    return option(default, words, binds=False, **more)


def duration(default: float, words: str, **more: Any) -> Any:
    """A positive number of seconds on which no measurement depends; arguments as of ``option``."""
    return unbound(default, words, above=0.0, **more)


def in_place(cls: type, fields: list[attrs.Attribute[Any]]) -> list[attrs.Attribute[Any]]:
    """List a class's own options where they belong among the inherited ones.

    For ``attrs.frozen(field_transformer=...)``. An option that is defined anew keeps its place. A
    new one stands before the one that it names (``before``), or else after the new one above it.
    """
    known = {field.name: field for field in fields}
    order = [field.name for field in attrs.fields(cls.__bases__[0])]
    position = len(order)
    for name in [name for name in known if name not in order]:
        if known[name].metadata.get(_BEFORE):
            position = order.index(known[name].metadata[_BEFORE])
        order.insert(position, name)
        position += 1
    return [known[name] for name in order]
