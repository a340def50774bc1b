"""Into how many parts a long loop over all elements of a tensor is split for the threads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from chameleon_tvm.quick_tvm import tirx, tvm
from chameleon_tvm.spaces.loops.blocks import divisor
from chameleon_tvm.spaces.loops.trees import walk

MOST_PARTS = 64
"""Parts of a loop: several for each of many threads, so that all of them end together."""

SHORTEST = 64
"""Elements of a part of more than ``MOST_PARTS``: less would mostly be the rest of some vectors."""


def plan_parts(extents: Sequence[int]) -> int:
    """Into how many equal parts the elements of a tensor are split.

    The largest number up to ``MOST_PARTS`` is taken if its parts are in one piece for TVM, and
    otherwise the nearest number, as a ratio, of which that is true.

    Args:
        extents: of the tensor's axes.
    """
    total = math.prod(extents)
    most = divisor(total, MOST_PARTS)
    if in_one_piece(extents, most):
        return most
    # The single part of everything is in one piece, so that there always is a nearest number.
    numbers = [one for one in _divisors(total) if one <= max(MOST_PARTS, total // SHORTEST)]
    nearest = sorted(numbers, key=lambda parts: abs(math.log(parts / MOST_PARTS)))
    return next(parts for parts in nearest if in_one_piece(extents, parts))


def plan_rows(extents: Sequence[int], most: int = MOST_PARTS) -> int:
    """The same of whole rows: parts that no axis but one is cut by.

    Vectors of less than 32 bits an element have many lanes: what whole rows leave over after the
    last whole vector is less often long than what other parts do.

    Args:
        extents: of the tensor's axes.
        most: parts.
    """
    parts = 1
    for extent in extents:
        if parts * extent > most:
            return parts * divisor(extent, most // parts)
        parts *= extent
    return parts


def in_one_piece(extents: Sequence[int], parts: int) -> bool:
    """Whether TVM sees that each of some equal parts of a tensor lies in one piece.

    It computes an element's place on every axis from the number of the part and the place within
    it, and the place in memory from these. Where divisions or remainders are left in that, LLVM
    makes no vectors of the loop.

    Args:
        extents: of the tensor's axes.
        parts: a divisor of the number of elements.
    """
    total = math.prod(extents)
    length = total // parts
    part, within = (tirx.Var(name, "int64") for name in ("part", "within"))
    analyzer = tvm.sym.Analyzer()
    analyzer.bind(part, tvm.ir.Range(0, parts))
    analyzer.bind(within, tvm.ir.Range(0, length))
    place: Any = tirx.IntImm("int64", 0)
    behind = total
    for extent in extents:
        row, behind = behind, behind // extent
        on_axis = tirx.floordiv(tirx.floormod(part * length + within, row), behind)
        place = place * extent + analyzer.simplify(on_axis)
    divisions: list[Any] = []
    walk(analyzer.simplify(place), (tirx.FloorDiv, tirx.FloorMod), divisions.append)
    return not divisions


def _divisors(total: int) -> set[int]:
    small = [size for size in range(1, math.isqrt(total) + 1) if total % size == 0]
    return {*small, *(total // size for size in small)}
