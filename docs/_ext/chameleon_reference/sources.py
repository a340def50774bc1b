"""What the pages are on GitHub, made what Sphinx needs, before it reads them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

REST = "% guides that nobody has put anywhere else"
"""Stands in a toctree of ``index.md`` where the others go."""

SECURITY = "SECURITY.md"
"""Lies at the top of the repository, and is a page of the reference on the site."""

_OUTSIDE = re.compile(r"\[([^\]]+)\]\((\.\./[^)#\s]+)\)")


def prepare(app: Sphinx, name: str, source: list[str]) -> None:
    """Change what Sphinx reads of a page."""
    folder = Path(app.srcdir)
    text = source[0]
    if name == "index":
        text = completed(text, folder)
    text = text.replace(f"../{SECURITY}", "reference/security.md")
    source[0] = without_folders(text, (folder / name).parent)


def security_page() -> str:
    """The page about trust, with links as they are from the folder of the reference."""
    text = (Path(__file__).parents[3] / SECURITY).read_text(encoding="utf-8")
    return text.replace("](docs/", "](../")


def completed(text: str, folder: Path) -> str:
    """The start page with every page of the folder in one of its toctrees.

    A page that is added is in the site without more.

    Args:
        text: the start page.
        folder: where the pages are.
    """
    named = set(re.findall(r"^([\w-]+)$", text, re.MULTILINE)) | {"index"}
    others = sorted(file.stem for file in folder.glob("*.md") if file.stem not in named)
    return text.replace(REST, "\n".join(others))


def without_folders(text: str, folder: Path) -> str:
    """A page whose links to folders of the repository, which the site has not, are their names.

    Args:
        text: the page.
        folder: where it is.
    """

    def name(link: re.Match[str]) -> str:
        leads_to_folder = (folder / link[2]).is_dir()
        return f"`{link[2].replace('../', '')}`" if leads_to_folder else link[0]

    return _OUTSIDE.sub(name, text)
