"""Files that are replaced as a whole, and names that are not taken."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def replacing(file: Path) -> Iterator[BinaryIO]:
    """A stream whose content takes the place of a file where the block ends without an error.

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


def unused(folder: Path, pattern: str) -> Path:
    """The first path in a folder that nothing has, with 1, 2 and so on in the pattern's braces."""
    paths = (folder / pattern.format(number) for number in itertools.count(1))
    return next(path for path in paths if not path.exists())
