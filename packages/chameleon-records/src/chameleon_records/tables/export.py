"""Writes a table of measurements in one of the forms that other tools read."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from chameleon_system.files import write_whole

from chameleon_records.errors import RecordsError
from chameleon_records.tables.files import as_csv, as_parquet
from chameleon_records.tables.kernel_tuner import as_cache, as_t4
from chameleon_records.tables.rows import Row, by_task

WHOLE: Mapping[str, Callable[[Sequence[Row]], bytes]] = {"csv": as_csv, "parquet": as_parquet}
"""Forms in which all tasks are in one file."""

EACH: Mapping[str, Callable[[Sequence[Row]], bytes]] = {"kernel-tuner": as_cache, "t4": as_t4}
"""Forms in which each task has a file of its own."""


def write_rows(rows: Sequence[Row], form: str, place: Path) -> list[Path]:
    """Write rows.

    Args:
        rows: of one or several tasks.
        form: a name in ``WHOLE`` or ``EACH``.
        place: the file; of a form with a file for each task the folder, made where it is missing.

    Returns:
        The files.

    Raises:
        RecordsError: there is no row, a library is missing, or a file cannot be written.
    """
    if not rows:
        raise RecordsError("there is no measurement to export", hint="Run a pipeline first.")
    if form in WHOLE:
        contents = {place: WHOLE[form](rows)}
    else:
        tasks = by_task(rows)
        names = _names([task for task, _ in tasks])
        contents = {
            place / f"{name}.json": EACH[form](some)
            for name, some in zip(names, tasks.values(), strict=True)
        }
    try:
        for file, content in contents.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file, content)
    except OSError as error:
        raise RecordsError(
            f"cannot write {place}: {error.strerror or error}", hint="Name a place elsewhere."
        ) from error
    return list(contents)


def _names(tasks: Sequence[str]) -> list[str]:
    """Names of files for names of tasks, all different."""
    made: list[str] = []
    for task in tasks:
        name = re.sub(r"[^\w.@-]+", "_", task, flags=re.ASCII).lstrip(".") or "task"
        numbered = (f"{name}_{number}" for number in itertools.count(2))
        made.append(next(one for one in itertools.chain([name], numbered) if one not in made))
    return made


__all__ = ["EACH", "WHOLE", "write_rows"]
