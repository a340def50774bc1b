"""Listings of a winner as its page shows them: whole if they are short, else the inner loops."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import attrs
from chameleon_core.loop.end.listings import listing_folder
from chameleon_core.run_folder import LISTINGS
from chameleon_core.task import Task

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


_LABEL = re.compile(r"^(\.?\$?L[\w$.]*):")
"""A label inside a function, as compilers name it: ``.LBB0_3``, ``$L__BB0_2``."""

_TARGET = re.compile(r"^\s+[a-zA-Z@%][^#]*?([.$]?\$?L[\w$.]*)\s*;?\s*(?:#.*|//.*)?$")
"""An instruction whose last operand is such a label: it jumps there."""

_RETURN = re.compile(r"^\s+ret\w*\b")
"""Code that ends the function; what jumps back to it shares an end and repeats nothing."""


@attrs.frozen(kw_only=True)
class Loop:
    """Lines that end with a jump back to the first of them.

    Attributes:
        first: place of its first line.
        last: place of its last line.
        depth: how many loops it is in, itself included.
    """

    first: int
    last: int
    depth: int = 1


def innermost_loops(lines: Sequence[str]) -> list[Loop]:
    """The loops that have no other one inside, in their order.

    Args:
        lines: assembly of any target whose labels and jumps look as compilers write them.
    """
    labels: dict[str, int] = {}
    ends: dict[int, int] = {}
    for place, line in enumerate(lines):
        if label := _LABEL.match(line):
            labels[label[1]] = place
        elif (jump := _TARGET.match(line)) and jump[1] in labels:
            ends[labels[jump[1]]] = place
    returns = [place for place, line in enumerate(lines) if _RETURN.match(line)]
    loops = sorted(
        (first, last)
        for first, last in ends.items()
        if not any(first < place < last for place in returns)
    )
    found = []
    for first, last in loops:
        around = sum(begin <= first and last <= end for begin, end in loops)
        inside = any(first < begin and end <= last for begin, end in loops)
        if not inside:
            found.append(Loop(first=first, last=last, depth=around))
    return found


__all__ = ["Listing", "innermost_loops", "listings_of"]
