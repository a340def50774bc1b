"""Padded taps skipped: the condition of an inlined padding moved out of the innermost loops.

A padding that is inlined into a sum of products leaves ``(inside ? x : 0) * w`` there. If the
condition is false nothing is added, so the whole addition is left out: products of zero are not
computed, which assumes finite operands. A condition on outer loops guards the loops inside of it. A
loop of the register tile and a loop of the reduction may decide one together. It splits the latter
into runs in which the same part of the tile is inside, so that no condition is left in them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from chameleon_tvm.quick_tvm import tirx, tvm
from chameleon_tvm.spaces.sketch.expressions import evaluate, replaced, variables_of

_COMPARISONS: dict[type, Callable[[Any, Any], Any]] = {
    tvm.tirx.LT: np.less,
    tvm.tirx.LE: np.less_equal,
    tvm.tirx.GT: np.greater,
    tvm.tirx.GE: np.greater_equal,
}
_MOST_POSITIONS = 1 << 14
"""Positions of outer loops that are enumerated to find which parts of a border differ."""
MOST_PIECES = 9
"""Copies of the innermost loops that skipping may take."""
_MOST_PATTERNS = 3
"""Pieces of code for one axis: its beginning, middle and end."""


@attrs.frozen(kw_only=True)
class Version:
    """The part of the tile that is inside, for some positions of the outer loops.

    Attributes:
        condition: on outer loops; None if it is what remains.
        runs: start and length of a range of the reduction loop, start and length of the range of
            the tile's loop that is inside for it.
    """

    condition: Any
    runs: tuple[tuple[int, int, int, int], ...]


@attrs.frozen(kw_only=True, eq=False)
class Border:
    """The border along one axis of the tile.

    Attributes:
        tile: name of the tile's loop.
        reduction: name of the reduction loop.
        outer: names of the outer loops that the version depends on.
        conjuncts: the conditions this border takes care of.
        versions: at most three; the last one has no condition.
    """

    tile: str
    reduction: str
    outer: frozenset[str]
    conjuncts: tuple[Any, ...]
    versions: tuple[Version, ...]


@attrs.frozen(kw_only=True, eq=False)
class Guards:
    """How the conditions of one sum are met.

    Attributes:
        hoisted: conditions that guard the loops inside of their last variable.
        borders: conditions met by splitting loops.
        kept: those that stay with the operand.
    """

    hoisted: tuple[Any, ...]
    borders: tuple[Border, ...]
    kept: tuple[Any, ...]


def guards_of(
    conjuncts: Sequence[Any],
    ranges: Mapping[str, int],
    *,
    reductions: Sequence[str],
    tile: Sequence[str],
    available: Mapping[str, frozenset[str]],
) -> Guards:
    """Sort the conditions of a sum.

    Args:
        conjuncts: comparisons of integer expressions.
        ranges: extents of all loops around the statement, by name; each starts at 0.
        reductions: names of the loops that are summed over.
        tile: names of the loops inside of all those.
        available: for every reduction loop, the names of the loops around it.
    """
    hoisted, remaining = [], []
    groups: dict[tuple[str, str], list[Any]] = {}
    for conjunct in conjuncts:
        names = variables_of(conjunct)
        inner = [name for name in names if name in tile]
        summed = [name for name in names if name in reductions]
        if type(conjunct) not in _COMPARISONS or not names <= ranges.keys() or len(inner) > 1:
            remaining.append(conjunct)
        elif not inner:
            hoisted.append(conjunct)
        elif len(summed) == 1 and names - {inner[0], summed[0]} <= available[summed[0]]:
            groups.setdefault((inner[0], summed[0]), []).append(conjunct)
        else:
            remaining.append(conjunct)
    borders = []
    for (inside, reduction), members in groups.items():
        border = _border(inside, reduction, members, ranges)
        if border is None:
            remaining.extend(members)
        else:
            borders.append(border)
    return Guards(hoisted=tuple(hoisted), borders=tuple(borders), kept=tuple(remaining))


def holds(conjunct: Any, variables: Mapping[str, Any]) -> Any:
    """The truth of a comparison on arrays of variables."""
    compare = _COMPARISONS[type(conjunct)]
    return compare(evaluate(conjunct.a, variables), evaluate(conjunct.b, variables))


def _border(
    tile: str, reduction: str, conjuncts: Sequence[Any], ranges: Mapping[str, int]
) -> Border | None:
    """The versions of one axis; None if they are too many or not made of ranges."""
    outer = sorted(set().union(*(variables_of(c) for c in conjuncts)) - {tile, reduction})
    if math.prod(ranges[name] for name in outer) > _MOST_POSITIONS:
        return None
    grids = np.ogrid[tuple(slice(ranges[name]) for name in (*outer, reduction, tile))]
    variables = dict(zip((*outer, reduction, tile), grids, strict=True))
    shape = tuple(ranges[name] for name in (*outer, reduction, tile))
    inside = np.ones(shape, bool)
    for conjunct in conjuncts:
        inside &= holds(conjunct, variables)
    tables = inside.reshape(-1, ranges[reduction], ranges[tile])
    patterns, which = np.unique(tables, axis=0, return_inverse=True)
    which = which.reshape(-1)
    if len(patterns) > _MOST_PATTERNS:
        return None
    runs = [_runs(pattern) for pattern in patterns]
    known = [(number, run) for number, run in enumerate(runs) if run is not None]
    if len(known) < len(runs):
        return None
    versions: list[Version] = []
    usual = int(np.bincount(which).argmax())
    for number, run in known:
        if number == usual:
            continue
        condition = _range_of(*_offset(conjuncts[0], outer, ranges), which == number)
        if condition is None:
            return None
        versions.append(Version(condition=condition, runs=run))
    remaining = next(run for number, run in known if number == usual)
    versions.append(Version(condition=None, runs=remaining))
    return Border(
        tile=tile,
        reduction=reduction,
        outer=frozenset(outer),
        conjuncts=tuple(conjuncts),
        versions=tuple(versions),
    )


def _runs(pattern: NDArray[np.bool_]) -> tuple[tuple[int, int, int, int], ...] | None:
    """Runs of equal rows of a table (reduction, tile) of what is inside; empty rows left out.

    None if what is inside is not one range.
    """
    starts = [0, *(1 + np.flatnonzero((pattern[1:] != pattern[:-1]).any(axis=1))).tolist()]
    runs = []
    for start, end in zip(starts, [*starts[1:], len(pattern)], strict=True):
        inside = np.flatnonzero(pattern[start])
        if not len(inside):
            continue
        first, count = int(inside[0]), len(inside)
        if int(inside[-1]) - first + 1 != count:
            return None
        runs.append((start, end - start, first, count))
    return tuple(runs)


def _offset(
    conjunct: Any, outer: Sequence[str], ranges: Mapping[str, int]
) -> tuple[Any, NDArray[np.int64]]:
    """The part of a comparison that outer loops decide, and its value at all their positions."""
    inner = dict.fromkeys(variables_of(conjunct) - set(outer), 0)
    offset = replaced(conjunct.b, inner) - replaced(conjunct.a, inner)
    shape = tuple(ranges[name] for name in outer)
    variables = dict(zip(outer, np.ogrid[tuple(map(slice, shape))], strict=True))
    return offset, np.broadcast_to(evaluate(offset, variables), shape).reshape(-1)


def _range_of(offset: Any, places: NDArray[np.int64], chosen: NDArray[np.bool_]) -> Any:
    """A condition on the offset that holds for the chosen positions and no others, or None."""
    least, most = int(places[chosen].min()), int(places[chosen].max())
    if ((places >= least) & (places <= most) & ~chosen).any():
        return None
    conditions = []
    if least > places.min():
        conditions.append(offset >= least)
    if most < places.max():
        conditions.append(offset <= most)
    return tirx.all(*conditions) if conditions else None
