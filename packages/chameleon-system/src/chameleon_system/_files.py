"""Replaces files and folders as a whole, and finds names that no file has yet."""

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
def replacing(file: Path) -> Iterator[BinaryIO]:
    """A context with a stream whose content replaces a file if no error occurs.

    Another process that reads the file sees the old content or the new one, never a part.

    Args:
        file: the file to replace or make. Its folder must exist.

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


def write_whole(file: Path, content: str | bytes) -> Path:
    """Replace a file as a whole (``replacing``), and return its path."""
    with replacing(file) as stream:
        stream.write(content.encode() if isinstance(content, str) else content)
    return file


def replace_folder(new: Path, folder: Path) -> None:
    """Replace a folder by another one, and remove the old folder if there is one.

    A reader sees the old folder or the new one. If the system cannot exchange folders in one step,
    two renames are needed. If the process is killed between them, the next call restores the old
    folder.

    Args:
        new: the new folder, on the same file system as ``folder``.
        folder: the path of the folder to replace.

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
            folder.rename(_aside(folder))
            new.rename(folder)
        finally:
            _recover(folder)


def _aside(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.old")


def _recover(folder: Path) -> None:
    """Restore a folder that was moved aside, or remove it if its place is taken."""
    aside = _aside(folder)
    if folder.exists():
        shutil.rmtree(aside, ignore_errors=True)
    elif aside.exists():
        aside.rename(folder)


def _exchange(first: Path, second: Path) -> bool:
    """Exchange the names of two folders in one step; return whether the system can do so."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    here, exchanging = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux
    names = os.fsencode(first), os.fsencode(second)
    return rename is not None and rename(here, names[0], here, names[1], exchanging) == 0


def unused(folder: Path, pattern: str) -> Path:
    """The first path in a folder that does not exist yet, such as ``earlier-2``.

    Args:
        folder: the folder.
        pattern: the name with braces, such as ``earlier-{}``. The braces are filled with 1, 2 and
            so on.
    """
    paths = (folder / pattern.format(number) for number in itertools.count(1))
    return next(path for path in paths if not path.exists())
