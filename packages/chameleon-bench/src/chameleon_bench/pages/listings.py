"""Listings of a winner as its page shows them: whole where they are short, else what matters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import attrs
from chameleon_core.loop.end.listings import listing_folder
from chameleon_core.run_folder import LISTINGS
from chameleon_core.task import Task

from chameleon_bench.pages.assembly import Loop, innermost_loops

LINES, CHARACTERS, WIDTH = 400, 40_000, 400
"""What a page shows of a listing at most: lines, characters, and characters of a line."""

_ASSEMBLY = ".s"
_COMMENT = "#"


@attrs.frozen(kw_only=True)
class Listing:
    """A listing.

    Attributes:
        name: of its file.
        told: how long it is, and what of it is shown, in words.
        text: what is shown.
    """

    name: str
    told: str
    text: str


def listings_of(folder: Path, task: Task) -> list[Listing]:
    """The listings of a task's winner; none where the run folder has none.

    Args:
        folder: the run's.
        task: one of its tasks.
    """
    place = Path(LISTINGS, listing_folder(task))
    files = sorted((folder / place).glob("[!.]*"))
    return [_listing(file, place / file.name) for file in files if file.is_file()]


def _listing(file: Path, place: Path) -> Listing:
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    shown = [line if len(line) <= WIDTH else f"{line[:WIDTH]}…" for line in lines]
    told = f"{len(lines):,} lines"
    if _fitting(shown) < len(shown):
        loops = innermost_loops(lines) if file.suffix == _ASSEMBLY else []
        what = "its innermost loops" if loops else "its beginning"
        shown = _of_loops(shown, loops) if loops else shown[: _fitting(shown)]
        told += f", of which {what} are shown" if loops else f", of which {what} is shown"
        told += f"; all of it is in {place}"
        shown.insert(0, f"{_COMMENT} {file.name}: {told}")
    return Listing(name=file.name, told=told, text="\n".join(shown))


def _fitting(lines: Sequence[str]) -> int:
    """How many of the first lines may be shown."""
    characters = 0
    for count, line in enumerate(lines[:LINES]):
        characters += len(line) + 1
        if characters > CHARACTERS:
            return count
    return min(len(lines), LINES)


def _of_loops(lines: Sequence[str], loops: Sequence[Loop]) -> list[str]:
    """The loops that are nested deepest, the longest of these first, as many as there is room for.

    They stand in their order, and what is left out between them is counted.
    """
    room, kept = LINES, []
    characters = CHARACTERS
    for loop in sorted(loops, key=lambda one: (-one.depth, one.first - one.last)):
        end = loop.first + _fitting(lines[loop.first : min(loop.last + 1, loop.first + room)])
        size = sum(len(line) + 1 for line in lines[loop.first : end])
        if end == loop.first or size > characters:
            continue
        kept.append((loop.first, end))
        room -= end - loop.first
        characters -= size
    shown: list[str] = []
    after = 0
    for first, end in sorted(kept):
        shown += [*_left_out(first - after), *lines[first:end]]
        after = end
    return [*shown, *_left_out(len(lines) - after)]


def _left_out(count: int) -> list[str]:
    return [f"{_COMMENT} ... {count:,} lines"] if count else []


__all__ = ["Listing", "listings_of"]
