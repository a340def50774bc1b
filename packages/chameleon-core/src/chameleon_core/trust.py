"""Code that files name or carry, which is run only if the user trusts them.

Run folders and files with tasks may come from strangers. They are data, and what reads them refuses
the code in them unless it is told ``trust_source``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from chameleon_core.errors import ConfigError
from chameleon_core.plugins.registry import UnknownNameError, default_registry
from chameleon_core.task import Task


def sources_in(options: Any) -> Iterator[str]:
    """The texts of checked options that name code: fields whose metadata say ``source``.

    Args:
        options: an instance of an attrs class, or what such a one consists of.
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


def check_sources(file: Path, *options: Any, trust_source: bool) -> None:
    """Refuse options of a file that name code.

    Args:
        file: the file or folder that they were read from.
        options: see ``sources_in``.
        trust_source: whether the user trusts it.

    Raises:
        ConfigError: they name some, and the user does not.
    """
    named = dict.fromkeys(sources_in(options))
    if named and not trust_source:
        raise ConfigError(
            f"{file} names code that would be imported and run: {', '.join(named)}",
            hint="Add --trust-source if the code is yours, or if you have read it.",
        )


def check_tasks(file: Path, tasks: Iterable[Task], *, trust_source: bool) -> None:
    """Refuse tasks of a file that carry code.

    Args:
        file: the file or folder that they were read from.
        tasks: all of them.
        trust_source: whether the user trusts it.

    Raises:
        ConfigError: one carries some, and the user does not.
    """
    named = [] if trust_source else [task for task in tasks if _carries_code(task.operator)]
    if named:
        raise ConfigError(
            f"task {named[0].name!r} of {file} carries code that would be run, as every "
            f"{named[0].operator!r} does",
            hint="Add --trust-source (in a pipeline: trust_source: true beside the file) if the "
            "tasks are yours, or if you have read them.",
        )


def _carries_code(operator: str) -> bool:
    try:
        return bool(default_registry().record("operators", operator).carries_code)
    except UnknownNameError:
        return False  # nothing makes such a task computable
