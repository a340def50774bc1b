"""Skips products with padding: moves conditions on the padding out of the inner loops.

An inlined padding leaves ``(inside ? x : 0) * w`` in a sum of products. If the condition is false,
the product is zero, so the whole addition is left out. This assumes finite operands. A condition on
outer loops becomes a guard around the loops inside of them. If a condition depends on a loop of the
register tile and a reduction loop, the reduction loop is split into runs. In each run, the same
part of the tile is inside, so no condition is left.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from chameleon_tvm._quick_tvm import tirx, tvm
from chameleon_tvm._spaces.sketch.expressions import evaluate, replaced, variables_of

_COMPARISONS: dict[type, Callable[[Any, Any], Any]] = {
    tvm.tirx.LT: np.less,
    tvm.tirx.LE: np.less_equal,
    tvm.tirx.GT: np.greater,
    tvm.tirx.GE: np.greater_equal,
}
_MOST_POSITIONS = 1 << 14
"""Largest number of positions of outer loops that are enumerated to find the versions of a
border."""
MOST_PIECES = 9
"""Largest number of copies of the innermost loops that skipping products of padding may take."""
_MOST_PATTERNS = 3
"""Largest number of versions of the code for one axis: its beginning, middle and end."""


@attrs.frozen(kw_only=True)
class Version:
    """The part of a tile that lies inside the input, for some positions of the outer loops.

    Attributes:
        condition: Condition on outer loops under which this version holds; None for all remaining
            positions.
        runs: The reduction loop is split into ranges of iterations. In each range, the same part of
            the tile lies inside the input. Four numbers describe a range: the first iteration, the
            number of iterations, and the start and length of that part of the tile.
    """

    condition: Any
    runs: tuple[tuple[int, int, int, int], ...]


@attrs.frozen(kw_only=True, eq=False)
class Border:
    """The border of the padded input along one axis of a register tile.

    Attributes:
        tile: Name of the tile's loop.
        reduction: Name of the reduction loop.
        outer: Names of the outer loops that decide which of ``versions`` holds.
        conjuncts: The conditions on padding that are not needed if the loops are split at this
            border.
        versions: The parts of the tile that can lie inside the input, at most three. The last
            version has no condition, and holds if no other version does.
    """

    tile: str
    reduction: str
    outer: frozenset[str]
    conjuncts: tuple[Any, ...]
    versions: tuple[Version, ...]


@attrs.frozen(kw_only=True, eq=False)
class Guards:
    """The conditions on padding in a sum of products, by the way in which they are handled.

    Attributes:
        hoisted: Conditions on outer loops only. Each becomes an ``if`` directly inside the
            innermost loop that the condition depends on, so that inner loops need no condition.
        borders: Conditions that become unnecessary if the reduction loop is split into ranges, one
            for each part of the tile that lies inside the input.
        kept: All other conditions. They stay in the innermost loop, at the operand that is read.
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
    """Decide for each condition on padding whether it can leave the inner loops, and how."""
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
    """Whether a comparison is true, for arrays of its variables' values."""
    compare = _COMPARISONS[type(conjunct)]
    return compare(evaluate(conjunct.a, variables), evaluate(conjunct.b, variables))


def _border(
    tile: str, reduction: str, conjuncts: Sequence[Any], ranges: Mapping[str, int]
) -> Border | None:
    """The versions of an axis; None if there are too many, or if they are not made of ranges."""
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
    """Runs of equal rows in a table (reduction, tile) of elements inside; empty rows left out.

    None if the elements inside of a row are not one range.
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
    """The part of a comparison that outer loops decide, and its values at all their positions."""
    inner = dict.fromkeys(variables_of(conjunct) - set(outer), 0)
    offset = replaced(conjunct.b, inner) - replaced(conjunct.a, inner)
    shape = tuple(ranges[name] for name in outer)
    variables = dict(zip(outer, np.ogrid[tuple(map(slice, shape))], strict=True))
    return offset, np.broadcast_to(evaluate(offset, variables), shape).reshape(-1)


def _range_of(offset: Any, places: NDArray[np.int64], chosen: NDArray[np.bool_]) -> Any:
    """A condition on the offset that is true only at the chosen positions; None if impossible."""
    least, most = int(places[chosen].min()), int(places[chosen].max())
    if ((places >= least) & (places <= most) & ~chosen).any():
        return None
    conditions = []
    if least > places.min():
        conditions.append(offset >= least)
    if most < places.max():
        conditions.append(offset <= most)
    return tirx.all(*conditions) if conditions else None
