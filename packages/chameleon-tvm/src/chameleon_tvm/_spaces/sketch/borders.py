"""Skips products with padding: moves conditions on the padding out of the inner loops.

An inlined padding leaves ``(inside ? x : 0) * w`` in a sum of products, assumed to be finite. A
condition on outer loops becomes a guard around inner loops. If it depends on the register tile, the
reduction loop is split into runs in which the same part of the tile is inside.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from chameleon_tvm._quick_tvm import tirx, tvm
from chameleon_tvm._spaces.sketch.expressions import evaluate, substitute_numbers, variables_of

_COMPARISONS: dict[type, Callable[[Any, Any], Any]] = {
    tvm.tirx.LT: np.less,
    tvm.tirx.LE: np.less_equal,
    tvm.tirx.GT: np.greater,
    tvm.tirx.GE: np.greater_equal,
}
_MAX_POSITIONS = 1 << 14
"""Largest number of positions of outer loops that are enumerated to find the versions of a
border."""
MAX_PIECES = 9
"""Largest number of copies of the innermost loops that skipping products of padding may take."""
_MAX_PATTERNS = 3
"""Largest number of versions of the code for one axis: its beginning, middle and end."""


@attrs.frozen(kw_only=True)
class Version:
    """The part of a tile that lies inside the input, for some positions of the outer loops.

    Attributes:
        condition: Condition on outer loops; None for all remaining positions.
        runs: Ranges of the reduction loop with an equal part of the tile inside: first iteration,
            number of iterations, start and length of that part.
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
        conjuncts: The conditions that are not needed if the loops are split at this border.
        versions: At most three; the last one has no condition.
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
        hoisted: Conditions on outer loops only, each an ``if`` inside its innermost loop.
        borders: Conditions that become unnecessary if the reduction loop is split into ranges.
        remaining: All other conditions, which stay in the innermost loop.
    """

    hoisted: tuple[Any, ...]
    borders: tuple[Border, ...]
    remaining: tuple[Any, ...]


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
        reduction_names = [name for name in names if name in reductions]
        if type(conjunct) not in _COMPARISONS or not names <= ranges.keys() or len(inner) > 1:
            remaining.append(conjunct)
        elif not inner:
            hoisted.append(conjunct)
        elif (
            len(reduction_names) == 1
            and names - {inner[0], reduction_names[0]} <= available[reduction_names[0]]
        ):
            groups.setdefault((inner[0], reduction_names[0]), []).append(conjunct)
        else:
            remaining.append(conjunct)
    borders = []
    for (inside, reduction), members in groups.items():
        border = _border(inside, reduction, members, ranges)
        if border is None:
            remaining.extend(members)
        else:
            borders.append(border)
    return Guards(hoisted=tuple(hoisted), borders=tuple(borders), remaining=tuple(remaining))


def holds(conjunct: Any, variables: Mapping[str, Any]) -> Any:
    """Whether a comparison is true, for arrays of its variables' values."""
    compare = _COMPARISONS[type(conjunct)]
    return compare(evaluate(conjunct.a, variables), evaluate(conjunct.b, variables))


def _border(
    tile: str, reduction: str, conjuncts: Sequence[Any], ranges: Mapping[str, int]
) -> Border | None:
    """The versions of an axis; None if there are too many, or if they are not made of ranges."""
    outer = sorted(set().union(*(variables_of(c) for c in conjuncts)) - {tile, reduction})
    if math.prod(ranges[name] for name in outer) > _MAX_POSITIONS:
        return None
    grids = np.ogrid[tuple(slice(ranges[name]) for name in (*outer, reduction, tile))]
    variables = dict(zip((*outer, reduction, tile), grids, strict=True))
    shape = tuple(ranges[name] for name in (*outer, reduction, tile))
    inside = np.ones(shape, bool)
    for conjunct in conjuncts:
        inside &= holds(conjunct, variables)
    tables = inside.reshape(-1, ranges[reduction], ranges[tile])
    patterns, pattern_of = np.unique(tables, axis=0, return_inverse=True)
    pattern_of = pattern_of.reshape(-1)
    if len(patterns) > _MAX_PATTERNS:
        return None
    runs = [_runs(pattern) for pattern in patterns]
    known = [(number, run) for number, run in enumerate(runs) if run is not None]
    if len(known) < len(runs):
        return None
    versions: list[Version] = []
    most_frequent = int(np.bincount(pattern_of).argmax())
    for number, run in known:
        if number == most_frequent:
            continue
        condition = _range_condition(*_offset(conjuncts[0], outer, ranges), pattern_of == number)
        if condition is None:
            return None
        versions.append(Version(condition=condition, runs=run))
    remaining = next(run for number, run in known if number == most_frequent)
    versions.append(Version(condition=None, runs=remaining))
    return Border(
        tile=tile,
        reduction=reduction,
        outer=frozenset(outer),
        conjuncts=tuple(conjuncts),
        versions=tuple(versions),
    )


def _runs(pattern: NDArray[np.bool_]) -> tuple[tuple[int, int, int, int], ...] | None:
    """Runs of equal rows in a table (reduction, tile) of elements inside, without empty rows.

    It is None if the elements inside of a row are not one range.
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
    offset = substitute_numbers(conjunct.b, inner) - substitute_numbers(conjunct.a, inner)
    shape = tuple(ranges[name] for name in outer)
    variables = dict(zip(outer, np.ogrid[tuple(map(slice, shape))], strict=True))
    return offset, np.broadcast_to(evaluate(offset, variables), shape).reshape(-1)


def _range_condition(offset: Any, offsets: NDArray[np.int64], members: NDArray[np.bool_]) -> Any:
    """A condition on the offset that is true only at the chosen positions; None if impossible."""
    least, most = int(offsets[members].min()), int(offsets[members].max())
    if ((offsets >= least) & (offsets <= most) & ~members).any():
        return None
    conditions = []
    if least > offsets.min():
        conditions.append(offset >= least)
    if most < offsets.max():
        conditions.append(offset <= most)
    return tirx.all(*conditions) if conditions else None
