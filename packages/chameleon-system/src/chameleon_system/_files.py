"""Replaces files and folders atomically, and finds unused names."""

from __future__ import annotations

import ctypes
import itertools
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def user_cache_folder() -> Path:
    """Chameleon's folder in the user's cache folder: ``$XDG_CACHE_HOME/chameleon``."""
    return Path(os.environ.get("XDG_CACHE_HOME", "") or Path.home() / ".cache", "chameleon")


@contextmanager
def open_atomic(file: Path) -> Iterator[BinaryIO]:
    """A context with a stream whose content replaces ``file`` if no error occurs.

    Another process that reads the file sees the old content or the new one, never a part.

    Raises:
        OSError: the file cannot be written.
    """
    # Process ids are not unique: writers may be threads, or in containers that share the folder.
    part = file.with_name(f".{file.name}.{os.urandom(8).hex()}.part")
    try:
        with part.open("xb") as stream:
            yield stream
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)


def write_atomic(file: Path, content: str | bytes) -> Path:
    """Replace a file atomically (``open_atomic``), and return its path."""
    with open_atomic(file) as stream:
        stream.write(content.encode() if isinstance(content, str) else content)
    return file


def replace_folder(new: Path, folder: Path) -> None:
    """Replace a folder by another one on the same file system, and remove the old folder.

    A reader sees the old folder or the new one. If the process is killed between two renames, the
    next call restores the old folder.

    Raises:
        OSError: a folder cannot be moved.
    """
    _recover(folder)
    if not folder.exists():
        new.rename(folder)
    elif _exchange(new, folder):
        shutil.rmtree(new)
    else:
        try:
            folder.rename(_backup_of(folder))
            new.rename(folder)
        finally:
            _recover(folder)


def _backup_of(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.old")


def _recover(folder: Path) -> None:
    """Restore a folder from its backup, or remove the backup if the folder exists."""
    aside = _backup_of(folder)
    if folder.exists():
        shutil.rmtree(aside, ignore_errors=True)
    elif aside.exists():
        aside.rename(folder)


def _exchange(first: Path, second: Path) -> bool:
    """Exchange the names of two folders in one step; return whether the system can do so."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    here, exchange = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux
    names = os.fsencode(first), os.fsencode(second)
    return rename is not None and rename(here, names[0], here, names[1], exchange) == 0


def unused_path(folder: Path, pattern: str) -> Path:
    """The first path in a folder that does not exist, such as ``old-2`` for ``old-{}``."""
    paths = (folder / pattern.format(number) for number in itertools.count(1))
    return next(path for path in paths if not path.exists())
