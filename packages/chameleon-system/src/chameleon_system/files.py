"""Files that are replaced as a whole, and names that are not taken."""

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
    """Chameleon's folder among the user's caches: ``$XDG_CACHE_HOME/chameleon``."""
    return Path(os.environ.get("XDG_CACHE_HOME", "") or Path.home() / ".cache", "chameleon")


@contextmanager
def replacing(file: Path) -> Iterator[BinaryIO]:
    """A stream whose content takes the place of a file if the block ends without an error.

    A reader sees the old content or the new one, and never a part of it.

    Args:
        file: in a folder that is there.

    Raises:
        OSError: it cannot be written.
    """
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as stream:
            yield stream
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)


def write_whole(file: Path, content: str | bytes) -> Path:
    """Replace a file as ``replacing`` does; returns it."""
    with replacing(file) as stream:
        stream.write(content.encode() if isinstance(content, str) else content)
    return file


def replace_folder(new: Path, folder: Path) -> None:
    """Put a folder in the place of another one, which is removed if it is there.

    A reader sees the old folder or the new one. If the system cannot exchange folders and the
    process is killed between two renames, the next call brings the old folder back.

    Args:
        new: on the same file system.
        folder: its place.

    Raises:
        OSError: it cannot be moved.
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
    """Bring a folder back that is aside, or remove that if there is one in its place."""
    aside = _aside(folder)
    if folder.exists():
        shutil.rmtree(aside, ignore_errors=True)
    elif aside.exists():
        aside.rename(folder)


def _exchange(first: Path, second: Path) -> bool:
    """Give two folders each other's names in one step; whether the system can."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    here, exchanging = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux
    names = os.fsencode(first), os.fsencode(second)
    return rename is not None and rename(here, names[0], here, names[1], exchanging) == 0


def unused(folder: Path, pattern: str) -> Path:
    """The first path in a folder that nothing has, with 1, 2 and so on in the pattern's braces."""
    paths = (folder / pattern.format(number) for number in itertools.count(1))
    return next(path for path in paths if not path.exists())
