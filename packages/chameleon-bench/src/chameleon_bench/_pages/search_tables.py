"""The tables of one operator's search, and the listings of its winner."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import attrs
import numpy as np
from chameleon_core.api import RunFile, words
from chameleon_core.plugin_api import Task

from chameleon_bench._pages.rendering import Table, bar
from chameleon_bench._pages.run_record import Measured, TaskRecord, shown

_TEN = 10
_MANY = 10.0
"""Bars of a comparison longer than the shortest bar by more than this factor are cut off."""

_REASONS = 12
"""The number of reasons to list; other failures are only counted."""

_LEAST = 5
"""The fewest measurements of a knob value for which its share of failures is shown."""


def comparison(task: TaskRecord) -> Table | None:
    """A table of the final comparison of an operator; None if nothing was compared."""
    timed = [
        (variant.seconds, f"{variant.name} {variant.variant}".strip(), variant)
        for variant in task.operator.variants
        if variant.seconds is not None
    ]
    if len(timed) < 2:  # noqa: PLR2004 - one variant compares with nothing
        return None
    timed.sort(key=lambda variant: variant[0])
    ours = task.operator.tuned_seconds
    # A very slow variant would make all other bars too short to compare.
    whole = max(value for value, *_ in timed if value <= _MANY * timed[0][0])
    table = Table.of(
        timed,
        ("compared, in turns", lambda variant: variant[1]),
        ("median", lambda variant: words.in_seconds(variant[0])),
        ("times tuned", lambda variant: f"{variant[0] / ours:.2f}" if ours else "-"),
    )
    bars = (bar({v.name: value}, whole, first=not v.tuned) for value, _, v in timed)
    return table.with_bars("times tuned", bars)


def ten_best(measured: Measured) -> Table | None:
    """A table with the knob values of the ten fastest measurements, a column for each."""
    rows = measured.fastest(_TEN).tolist()
    if not rows:
        return None
    best = measured.seconds[rows[0]]
    origins = measured.origins.words
    # Knobs with one value in all rows, and knobs that never apply, are listed elsewhere.
    differing = [
        name for name, knob in measured.knobs.items() if len(set(knob.codes[rows].tolist())) > 1
    ]
    columns = [
        (
            words.in_seconds(measured.seconds[row]),
            f"{measured.seconds[row] / best:.3f}",
            f"{measured.spread[row]:.1%}",
            str(row + 1),
            origins[row],
            *(measured.values_of(row).get(name, "-") for name in differing),
        )
        for row in rows
    ]
    names = ("time", "times best", "spread", "measured as", "origin", *differing)
    # Each knob is a row, because there may be too many for columns.
    cells = [list(cells) for cells in zip(names, *columns, strict=True)]
    return Table(header=("rank", *map(str, range(1, len(rows) + 1))), rows=cells)


def agreed(measured: Measured) -> dict[str, str]:
    """The knobs whose value is the same in all of the ten fastest measurements, with that value."""
    rows = measured.fastest(_TEN).tolist()
    if len(rows) < 2:  # noqa: PLR2004 - a single measurement always agrees with itself
        return {}
    return {
        name: value
        for name, value in measured.values_of(rows[0]).items()
        if len(set(measured.knobs[name].codes[rows].tolist())) == 1
    }


def winner(task: TaskRecord) -> Table | None:
    """The winner's knob values; None if nothing succeeded."""
    best = task.operator.best
    if best is None:
        return None
    return Table(
        header=("knob", "value"), rows=[(name, shown(value)) for name, value in best.items()]
    )


def reasons(measured: Measured) -> Table | None:
    """A table of failures by kind and message, the most frequent first; None without any."""
    kinds = measured.failures.words
    # Messages with the same reason may contain different sizes and process ids.
    counts = Counter(
        (kind, re.sub(r"\d+", "#", message.partition("\n")[0])[:200])
        for kind, message in zip(kinds, measured.messages, strict=True)
        if kind
    )
    if not counts:
        return None
    rows = [(kind, why or "-", str(count)) for (kind, why), count in counts.most_common(_REASONS)]
    left = sum(count for _, count in counts.most_common()[_REASONS:])
    if left:
        rows.append(("all other reasons", "", str(left)))
    return Table(header=("kind", "reason (# is a number)", "measurements"), rows=rows)


def failing_values(measured: Measured) -> Table | None:
    """A table of knob values with which configurations fail more often than on average.

    Returns:
        The table, or None if there are no such values.
    """
    failed = ~measured.ok
    if not failed.any():
        return None
    overall = float(failed.mean())
    rows = []
    for name, knob in measured.knobs.items():
        counts = np.bincount(knob.codes + 1, minlength=len(knob.labels) + 1)[1:]
        bad = np.bincount(knob.codes + 1, failed, minlength=len(knob.labels) + 1)[1:]
        for label, count, failures in zip(knob.labels, counts, bad, strict=True):
            # How much more often than by chance, in standard deviations of a binomial count.
            excess = failures - overall * count
            deviation = np.sqrt(count * overall * (1.0 - overall))
            if count >= _LEAST and excess > 2.0 * deviation:
                rows.append((excess, name, label, int(failures), int(count)))
    rows.sort(reverse=True)
    if not rows:
        return None
    return Table(
        header=("knob", "value", "failed", "of", "share"),
        rows=[
            (name, label, str(bad), str(count), f"{bad / count:.0%}")
            for _, name, label, bad, count in rows[:_TEN]
        ],
    )


LINES, CHARACTERS, WIDTH = 400, 40_000, 400
"""The largest part of a listing on a page: lines, characters, and characters per line."""

_ASSEMBLY = ".s"
_COMMENT = "#"


@attrs.frozen(kw_only=True)
class Listing:
    """A listing of a winner, such as its assembly.

    Attributes:
        told: A phrase that says how long the listing is, and which part of it is in ``text``. An
            example is "900 lines, of which its beginning is shown".
        text: The part of the listing that the page shows.
    """

    name: str
    told: str
    text: str


def listings_of(folder: Path, task: Task) -> list[Listing]:
    """Read the code of a task's winning kernel, such as its TensorIR and its assembly."""
    below = Path(RunFile.LISTINGS, task.folder_name)
    files = sorted((folder / below).glob("[!.]*"))
    return [_listing(file, below / file.name) for file in files if file.is_file()]


def _listing(file: Path, path: Path) -> Listing:
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    shown = [line if len(line) <= WIDTH else f"{line[:WIDTH]}…" for line in lines]
    note = f"{len(lines):,} lines"
    if _fitting(shown) < len(shown):
        loops = innermost_loops(lines) if file.suffix == _ASSEMBLY else []
        what = "its innermost loops" if loops else "its beginning"
        shown = _of_loops(shown, loops) if loops else shown[: _fitting(shown)]
        note += f", of which {what} are shown" if loops else f", of which {what} is shown"
        note += f"; all of it is in {path}"
        shown.insert(0, f"{_COMMENT} {file.name}: {note}")
    return Listing(name=file.name, told=note, text="\n".join(shown))


def _fitting(lines: Sequence[str]) -> int:
    """The number of first lines that a page may show."""
    characters = 0
    for count, line in enumerate(lines[:LINES]):
        characters += len(line) + 1
        if characters > CHARACTERS:
            return count
    return min(len(lines), LINES)


def _of_loops(lines: Sequence[str], loops: Sequence[Loop]) -> list[str]:
    """The most deeply nested loops that fit a page; among these, the longest come first."""
    room, spans = LINES, []
    characters = CHARACTERS
    for loop in sorted(loops, key=lambda loop: (-loop.depth, loop.first - loop.last)):
        end = loop.first + _fitting(lines[loop.first : min(loop.last + 1, loop.first + room)])
        size = sum(len(line) + 1 for line in lines[loop.first : end])
        if end == loop.first or size > characters:
            continue
        spans.append((loop.first, end))
        room -= end - loop.first
        characters -= size
    shown: list[str] = []
    after = 0
    for first, end in sorted(spans):
        shown += [*_left_out(first - after), *lines[first:end]]
        after = end
    return [*shown, *_left_out(len(lines) - after)]


def _left_out(count: int) -> list[str]:
    return [f"{_COMMENT} ... {count:,} lines"] if count else []


_LABEL = re.compile(r"^(\.?\$?L[\w$.]*):")
"""A label inside a function, as compilers write it: ``.LBB0_3``, ``$L__BB0_2``."""

_TARGET = re.compile(r"^\s+[a-zA-Z@%][^#]*?([.$]?\$?L[\w$.]*)\s*;?\s*(?:#.*|//.*)?$")
"""A jump: an instruction whose last operand is a label inside a function."""

_RETURN = re.compile(r"^\s+ret\w*\b")
"""An instruction that ends the function. A backward jump across it makes no loop."""


@attrs.frozen(kw_only=True)
class Loop:
    """A loop in assembly: lines that end with a jump back to the first line.

    Attributes:
        depth: The number of loops around these lines, this loop included.
    """

    first: int
    last: int
    depth: int = 1


def innermost_loops(lines: Sequence[str]) -> list[Loop]:
    """The loops in assembly that contain no other loop, in order."""
    labels: dict[str, int] = {}
    ends: dict[int, int] = {}
    for index, line in enumerate(lines):
        if label := _LABEL.match(line):
            labels[label[1]] = index
        elif (jump := _TARGET.match(line)) and jump[1] in labels:
            ends[labels[jump[1]]] = index
    returns = [index for index, line in enumerate(lines) if _RETURN.match(line)]
    loops = sorted(
        (first, last)
        for first, last in ends.items()
        if not any(first < index < last for index in returns)
    )
    innermost = []
    for first, last in loops:
        around = sum(begin <= first and last <= end for begin, end in loops)
        inside = any(first < begin and end <= last for begin, end in loops)
        if not inside:
            innermost.append(Loop(first=first, last=last, depth=around))
    return innermost
