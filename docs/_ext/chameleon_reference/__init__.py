"""Sphinx extension: writes the pages of the reference from the code before the site is built.

They go into ``docs/reference``, which git ignores. Their content is data first (``pages``), so that
a test can ask whether anything is missing without running Sphinx.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from chameleon_reference.pages import pages
from chameleon_reference.sources import prepare

if TYPE_CHECKING:
    from sphinx.application import Sphinx

FOLDER = "reference"


def write_pages(app: Sphinx) -> None:
    """Write each page whose text has changed, and remove those that are no more."""
    folder = Path(app.srcdir) / FOLDER
    folder.mkdir(exist_ok=True)
    wanted = {f"{name}.md": text for name, text in pages().items()}
    for file in folder.glob("*.md"):
        if file.name not in wanted:
            file.unlink()
    for name, text in wanted.items():
        file = folder / name
        if not file.is_file() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")


def keep_bars(
    _app: Sphinx, _what: str, _name: str, _obj: Any, _options: Any, lines: list[str]
) -> None:
    """Bars around a word of a docstring are a magnitude, and no substitution."""
    lines[:] = [re.sub(r"\|(\w+)\|", r"\\|\1\\|", line) for line in lines]


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the writer."""
    app.connect("builder-inited", write_pages)
    app.connect("source-read", prepare)
    app.connect("autodoc-process-docstring", keep_bars)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
