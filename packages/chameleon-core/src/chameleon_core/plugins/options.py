"""Options in few words, and what their metadata may say of them beside ``help``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import attrs
from attrs import validators

BINDS = "binds"

NOT_BINDING = MappingProxyType({BINDS: False})
"""Metadata of an option that no measurement depends on, as a deadline or a tracker's address: a
run may be continued with another one. ``attrs.field(metadata={**NOT_BINDING, "help": ...})``."""

FORMER = "former"
"""Metadata of an option: its former name. Pipelines and run folders that have that one are read as
if they had today's. ``attrs.field(metadata={FORMER: "file", "help": ...})``."""


def option(
    default: Any,
    words: str,
    *checks: Callable[[Any, Any, Any], None],
    at_least: float | None = None,
    at_most: float | None = None,
    above: float | None = None,
    **metadata: Any,
) -> Any:
    """``attrs.field`` with what options have in common.

    Args:
        default: its value if none is given, or ``attrs.NOTHING``. No check has to accept None as
            the default. A type stands for a new object each time.
        words: its help.
        checks: validators.
        at_least: the lowest value.
        at_most: the highest value.
        above: what every value is above.
        metadata: what else is said of it, such as ``binds`` or ``duration``.
    """
    limits = (validators.ge, at_least), (validators.gt, above), (validators.le, at_most)
    bounds = (check(limit) for check, limit in limits if limit is not None)
    check: Any = [*bounds, *checks]
    check = validators.and_(*check) if len(check) > 1 else next(iter(check), None)
    if check is not None and default is None:
        check = validators.optional(check)
    about = {"help": words, **metadata}
    if isinstance(default, type):
        return attrs.field(factory=default, validator=check, metadata=about)
    return attrs.field(default=default, validator=check, metadata=about)


def former_names(options: type) -> dict[str, str]:
    """Today's name of every option of a class that had another one, by that one."""
    return {
        field.metadata[FORMER]: field.alias
        for field in attrs.fields(options)
        if FORMER in field.metadata
    }


def renamed(section: Mapping[str, Any], former: Mapping[str, str]) -> dict[str, Any]:
    """A mapping with today's names; if a former one is there as well, today's wins."""
    today = {key: value for key, value in section.items() if key not in former}
    return {former[key]: value for key, value in section.items() if key in former} | today
