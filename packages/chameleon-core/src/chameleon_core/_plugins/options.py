"""A short form for declaring options, and keys of their metadata."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs
from attrs import validators


def option(
    default: Any,
    words: str,
    *checks: Callable[[Any, Any, Any], None],
    at_least: float | None = None,
    at_most: float | None = None,
    above: float | None = None,
    **metadata: Any,
) -> Any:
    """Declare an option: ``attrs.field`` with its help, limits and metadata.

    Args:
        default: the value if the user gives none, or ``attrs.NOTHING`` for a required option. The
            default None is valid even if checks refuse it. If the default is a type such as
            ``list``, each new object gets a new value from calling it.
        words: the help text.
        checks: validators, as for ``attrs.field``.
        at_least: the lowest valid value.
        at_most: the highest valid value.
        above: a value that every valid value must exceed.
        metadata: other metadata of the field, such as ``duration``. ``binds=False`` marks an option
            that measurements do not depend on, such as a deadline. ``former="file"`` is an option's
            former name, with which pipelines and run folders are still read.
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
    """The renamed options of an options class: the present name of each, by its former name."""
    return {
        field.metadata["former"]: field.alias
        for field in attrs.fields(options)
        if "former" in field.metadata
    }


def renamed(section: Mapping[str, Any], former: Mapping[str, str]) -> dict[str, Any]:
    """Replace former names of options by their present names in a section of a pipeline.

    If the section has both names of an option, the value under the present name is kept.

    Args:
        section: the values of the options by name.
        former: the present name of each renamed option, by its former name.
    """
    today = {key: value for key, value in section.items() if key not in former}
    return {former[key]: value for key, value in section.items() if key in former} | today


def sources_in(options: Any) -> Iterator[str]:
    """Yield the names of the user's code in options, such as ``nets.py:build``.

    The user must trust this code before Chameleon runs it. The names are the values of fields whose
    metadata has ``source``.

    Args:
        options: the options as an instance of an attrs class, or a mapping, list or value in it.
    """
    if attrs.has(type(options)):
        for field in attrs.fields(type(options)):
            value = getattr(options, field.name)
            if not field.metadata.get("source"):
                yield from sources_in(value)
            elif value:
                yield str(value)
    elif isinstance(options, Mapping):
        yield from sources_in(tuple(options.values()))
    elif isinstance(options, list | tuple):
        for inner in options:
            yield from sources_in(inner)
