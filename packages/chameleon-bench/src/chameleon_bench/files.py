"""Files that are replaced as a whole, and names that are not taken."""

from __future__ import annotations

import itertools
from pathlib import Path


def written(file: Path, text: str) -> Path:
    """Replace a file as a whole: a reader sees the old text or the new one."""
    part = file.with_name(f".{file.name}.part")
    part.write_text(text, encoding="utf-8")
    return part.replace(file)


def unused(folder: Path, pattern: str) -> Path:
    """The first path in a folder that nothing has, with 1, 2 and so on in the pattern's braces."""
    paths = (folder / pattern.format(number) for number in itertools.count(1))
    return next(path for path in paths if not path.exists())
