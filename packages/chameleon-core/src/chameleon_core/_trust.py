"""Refuses to run code that a file contains or names, unless the user trusts the file.

Run folders and files with tasks may come from other people. Commands treat them as data, and run
code in them only with ``--trust-source``.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from chameleon_core._errors import ConfigError
from chameleon_core._plugins.options import sources_in
from chameleon_core._plugins.registry import Registry, UnknownNameError
from chameleon_core._task import Task


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
        return bool(Registry.default().record("operators", operator).carries_code)
    except UnknownNameError:
        return False  # no plugin can compute such a task
