"""Finds out what a path holds, reads it once per process, and says what is wrong with it."""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Any

from chameleon_core.errors import ConfigError
from chameleon_core.task import Task

from chameleon_runners.replay.kernel_tuner import table_of_cache, table_of_t4
from chameleon_runners.replay.run_records import tables_of_run
from chameleon_runners.replay.table import Table

OPERATOR = "table"
"""``Task.operator`` of every task that is a recorded table."""

_GZIP_MAGIC = b"\x1f\x8b"


def tables_at(path: str) -> tuple[Table, ...]:
    """The tables of a file or run folder.

    Args:
        path: a Kernel Tuner cache or T4 file, plain or gzip, or a run folder.

    Raises:
        ConfigError: there is nothing, or nothing that can be read.
        RunFolderError: it is a folder without a run in it.
    """
    place = Path(path)
    if not place.exists():
        raise ConfigError(
            f"there is no table at {path}",
            hint="name a Kernel Tuner cache or T4 file (.json or .json.gz), or a run folder",
        )
    if place.is_dir():
        return tuple(tables_of_run(place))
    changed = place.stat()
    return _tables_in(path, changed.st_mtime_ns, changed.st_size)


def table_of_task(task: Task) -> Table:
    """The table that a task of the frontend ``table`` stands for.

    Raises:
        ConfigError: the task is another one's, or its table is gone or has changed since.
    """
    if task.operator != OPERATOR:
        raise ConfigError(
            f"task {task.name!r} is a {task.operator!r}, not a recorded table",
            hint="the space 'table' and the runner 'replay' go with `model: {table: FILE}`",
        )
    digest = task.arguments["digest"]
    for table in tables_at(task.location):
        if table.digest == digest:
            return table
    raise ConfigError(
        f"{task.location} no longer holds the table {task.name!r} that the task was made from",
        hint="restore it, or tune into another folder (--output)",
    )


# Reading takes a second for ten thousand configurations, and a suite reads each table many times.
@lru_cache(maxsize=16)
def _tables_in(path: str, _changed: int, _size: int) -> tuple[Table, ...]:
    file = Path(path)
    content = _bytes(file)
    name = file.name.removesuffix(".gz").removesuffix(".json")
    digest = hashlib.sha256(content).hexdigest()[:24]
    value = _parsed(content, path)
    if isinstance(value, dict) and {"tune_params_keys", "cache"} <= value.keys():
        return (table_of_cache(value, name, digest),)
    if isinstance(value, dict) and isinstance(value.get("results"), list):
        return (table_of_t4(value, name, digest),)
    raise ConfigError(
        f"{path} is neither a Kernel Tuner cache nor a T4 file",
        hint="a cache has the keys 'tune_params_keys' and 'cache', a T4 file has 'results'",
    )


def _bytes(file: Path) -> bytes:
    try:
        content = file.read_bytes()
        return gzip.decompress(content) if content.startswith(_GZIP_MAGIC) else content
    except (OSError, EOFError, zlib.error) as error:
        raise _unreadable(str(file), error) from error


def _parsed(content: bytes, path: str) -> Any:
    try:
        text = content.decode()
        try:
            return json.loads(text)
        except json.JSONDecodeError:
            # Kernel Tuner closes the braces of a cache only when the tuning ends.
            return json.loads(text.rstrip().rstrip(",") + "}}")
    except ValueError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: str, error: Exception) -> ConfigError:
    return ConfigError(
        f"the table {path} cannot be read: {error}", hint="fetch or record the file anew"
    )
