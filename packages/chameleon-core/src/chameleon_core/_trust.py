"""Refuses to run code that a file contains or names, unless the user trusts the file.

Run folders and files with tasks may come from other people. Commands treat them as data, and run
code in them only with ``--trust-source``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from chameleon_core._errors import ConfigError
from chameleon_core._plugins.registry import UnknownNameError, default_registry
from chameleon_core._task import Task


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


def check_sources(file: Path, *options: Any, trust_source: bool) -> None:
    """Raise an error if options of a file name code, and the user does not trust the file.

    Args:
        file: the file or folder that the options were read from.
        options: options, as for ``sources_in``.
        trust_source: whether the user trusts the file.

    Raises:
        ConfigError: the options name code, and the user does not trust the file.
    """
    named = dict.fromkeys(sources_in(options))
    if named and not trust_source:
        raise ConfigError(
            f"{file} names code that would be imported and run: {', '.join(named)}",
            hint="Add `trust_source=True` if the code is yours, or if you have read it.",
        )


def check_tasks(file: Path, tasks: Iterable[Task], *, trust_source: bool) -> None:
    """Raise an error if tasks of a file contain code, and the user does not trust the file.

    Args:
        file: the file or folder that the tasks were read from.
        tasks: all tasks of the file.
        trust_source: whether the user trusts the file.

    Raises:
        ConfigError: a task contains code, and the user does not trust the file.
    """
    named = [] if trust_source else [task for task in tasks if _carries_code(task.operator)]
    if named:
        raise ConfigError(
            f"task {named[0].name!r} of {file} carries code that would be run, as every "
            f"{named[0].operator!r} does",
            hint="Add `trust_source=True` (in a pipeline: trust_source: true beside the file) if "
            "the tasks are yours, or if you have read them.",
        )


def _carries_code(operator: str) -> bool:
    try:
        return bool(default_registry().record("operators", operator).carries_code)
    except UnknownNameError:
        return False  # no plugin can compute such a task
