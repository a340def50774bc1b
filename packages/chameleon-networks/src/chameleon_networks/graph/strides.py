"""Strides of tensors, in elements from one index of an axis to the next."""

from __future__ import annotations

import math
from collections.abc import Sequence

Shape = tuple[int, ...]


def dense_strides(shape: Sequence[int]) -> Shape:
    """Strides of a tensor without gaps."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether a tensor's elements lie one after the other; strides of single indices are free."""
    axes = zip(shape, strides, dense_strides(shape), strict=True)
    return all(extent == 1 or stride == wanted for extent, stride, wanted in axes)


def axis_in(shape: Sequence[int], axis: int, reshaped: Sequence[int]) -> int | None:
    """Which axis of a tensor in another shape is one of its axes; None if none is.

    Args:
        shape: the tensor's extents.
        axis: one of its axes, whose extent may be another one.
        reshaped: the other shape.
    """
    around = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    for position in reversed(range(len(reshaped))):
        if (math.prod(reshaped[:position]), math.prod(reshaped[position + 1 :])) == around:
            return position
    return None


def reshaped_strides(
    shape: Sequence[int], strides: Sequence[int], reshaped: Sequence[int]
) -> Shape | None:
    """Strides with which a tensor has another shape in place; None if it has to move.

    Args:
        shape: its extents.
        strides: its strides.
        reshaped: other extents of as many elements.
    """
    if 0 in shape:
        return dense_strides(reshaped)
    old = [(e, s) for e, s in zip(shape, strides, strict=True) if e != 1]
    result: list[int] = []
    start = 0
    for extent in reshaped:
        if extent == 1:
            result.append(0)
            continue
        # What is left of the merged old axes is kept in place of them as one axis.
        while start + 1 < len(old) and old[start][0] % extent:
            (outer, far), (inner, near) = old[start : start + 2]
            if far != inner * near:
                return None
            old[start : start + 2] = [(outer * inner, near)]
        left, remainder = divmod(old[start][0], extent)
        if remainder:
            return None
        result.append(left * old[start][1])
        old[start] = (left, old[start][1])
        start += left == 1
    for axis in range(len(result) - 1, -1, -1):
        if reshaped[axis] == 1:
            inside = axis + 1 < len(result)
            result[axis] = reshaped[axis + 1] * result[axis + 1] if inside else 1
    return tuple(result)
