"""What blocks of a function of loops are: their iterators, sizes, and how they read memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from chameleon_tvm.quick_tvm import Schedule, tirx, tvm
from chameleon_tvm.spaces.loops.trees import structural_equal, structural_map, uses, walk
from chameleon_tvm.types import FLOAT32, STORAGE

_COSTLY = ("exp", "log", "tanh", "erf", "pow", "sqrt", "sin", "cos", "atan", "sigmoid")
"""Parts of the names of functions that take many times as long as reading a number does."""


def is_costly(block: Any) -> bool:
    """Whether a block computes what takes many times as long as reading a number."""
    found = False

    def visit(node: Any) -> None:
        nonlocal found
        found = found or isinstance(node, tirx.Div) or any(part in str(node.op) for part in _COSTLY)

    walk(block.body, (tvm.ir.Call, tirx.Div), visit)
    return found


_NARROW = {
    "int16",
    *(name for one in STORAGE.values() for name in (one.name, one.storage_dtype)),
} - {FLOAT32}


def is_narrow(block: Any) -> bool:
    """Whether a block reads or writes numbers of 8 or 16 bits."""
    regions = [*block.reads, *block.writes]
    return any(str(one.source.dtype) in _NARROW for one in regions)


def kinds(schedule: Schedule, block: Any) -> tuple[list[int], list[int]]:
    """Places of a block's spatial and of its reduced iterators."""
    iterators = schedule.get(block).iter_vars
    spatial = [
        place for place, one in enumerate(iterators) if one.iter_type == tirx.IterVar.DataPar
    ]
    return spatial, [place for place in range(len(iterators)) if place not in spatial]


def same_places(block: Any) -> bool:
    """Whether every number is computed from the numbers at its own place, and from constants."""
    [write] = block.writes
    wanted = [one.min for one in write.region]
    if has_gaps(block) or computes_with_places(block):
        return False
    extents = [int(extent) for extent in write.source.shape]
    return all(
        (
            [int(extent) for extent in read.source.shape] == extents
            and all(
                structural_equal(one.min, other)
                for one, other in zip(read.region, wanted, strict=True)
            )
        )
        or math.prod(int(extent) for extent in read.source.shape) == 1
        for read in block.reads
    )


def interleaved(block: Any) -> int:
    """How many sources neighbouring elements come from by turns, as in a channel shuffle."""
    last = block.iter_vars[-1]
    extent = int(last.dom.extent)
    found: list[int] = []

    def visit(node: Any) -> None:
        if node.a.same_as(last.var):
            ways = int(getattr(node.b, "value", 0))
            if 1 < ways < extent and extent % ways == 0:
                found.append(ways)

    walk(block.body, tirx.FloorMod, visit)
    return min(found, default=1)


def has_gaps(block: Any) -> bool:
    """Whether a block reads or writes part of a larger array."""
    return any(len(region.source.ty.strides) for region in (*block.reads, *block.writes))


def computes_with_places(block: Any) -> bool:
    """Whether a block's iterators occur in what it computes, and not just in where it reads."""
    values: list[Any] = []
    walk(block.body, tirx.BufferStore, lambda node: values.append(node.value))
    placeless = [
        structural_map(
            value, [(tvm.ir.TensorLoad, lambda load: tirx.FloatImm("float32", 0.0).astype(load.ty))]
        )
        for value in values
    ]
    return any(uses(value, one.var) for value in placeless for one in block.iter_vars)


def other_axis(block: Any) -> int | None:
    """The axis along which a block reads neighbours where it writes them along the last one."""
    variables = [one.var for one in block.iter_vars]
    for read in block.reads:
        if not len(read.region):
            continue
        used = tirx.analysis.undefined_vars(read.region[-1].min)
        places = [
            place
            for place, variable in enumerate(variables)
            if any(variable.same_as(one) for one in used)
        ]
        if len(places) == 1 and places[0] != len(variables) - 1:
            return places[0]
    return None


def contiguous(block: Any, reduced: Sequence[int]) -> bool:
    """Whether all that a reduction reads anew for its terms are neighbours along a reduced axis.

    Of the products of a matrix with another one, whose rows are added up, one factor is none.
    """
    variables = [block.iter_vars[place].var for place in reduced]
    varying = [
        region
        for region in block.reads
        if any(_occurs(variables, part.min) for part in region.region)
    ]
    lasts = [region.region[-1].min for region in varying]
    return bool(lasts) and all(_occurs(variables, last) for last in lasts)


def _occurs(variables: Sequence[Any], index: Any) -> bool:
    used = tirx.analysis.undefined_vars(index)
    return any(variable.same_as(one) for one in used for variable in variables)


def size(schedule: Schedule, block: Any) -> int:
    """How often a block is computed."""
    return math.prod(int(one.dom.extent) for one in schedule.get(block).iter_vars)


def divisor(extent: int, most: int) -> int:
    """The largest divisor of an extent up to some number."""
    return next(size for size in range(min(extent, most), 0, -1) if extent % size == 0)
