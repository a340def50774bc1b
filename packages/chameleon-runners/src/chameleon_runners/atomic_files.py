"""Files that a reader sees whole, or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


@contextlib.contextmanager
def written_whole(path: Path) -> Iterator[BinaryIO]:
    """Open a file that gets its name once everything is written.

    Args:
        path: the file; what it held before stays if writing fails.
    """
    unfinished = path.with_suffix(".part")
    with unfinished.open("wb") as file:
        yield file
    os.replace(unfinished, path)  # noqa: PTH105 - atomic, which is the point
