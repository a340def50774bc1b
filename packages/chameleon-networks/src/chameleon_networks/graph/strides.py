"""Computes strides of tensors: elements in memory from one index of an axis to the next."""

from __future__ import annotations

import math
from collections.abc import Sequence

Shape = tuple[int, ...]


def dense_strides(shape: Sequence[int]) -> Shape:
    """Strides of a tensor without gaps."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether a tensor has no gaps in memory. The strides of axes of extent 1 do not matter.

    Args:
        shape: The extents of the tensor.
        strides: The strides of the tensor's axes, in elements.
    """
    axes = zip(shape, strides, dense_strides(shape), strict=True)
    return all(extent == 1 or stride == wanted for extent, stride, wanted in axes)


def axis_in(shape: Sequence[int], axis: int, reshaped: Sequence[int]) -> int | None:
    """The number of a tensor's axis after a reshape. None if the reshape splits or merges the axis.

    Args:
        shape: The extents of the tensor.
        axis: The number of the axis, whose extent may differ in ``reshaped``.
        reshaped: The extents after the reshape.
    """
    around = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    for position in reversed(range(len(reshaped))):
        if (math.prod(reshaped[:position]), math.prod(reshaped[position + 1 :])) == around:
            return position
    return None


def reshaped_strides(
    shape: Sequence[int], strides: Sequence[int], reshaped: Sequence[int]
) -> Shape | None:
    """The strides of a tensor after a reshape in place. None if the reshape must move data.

    Args:
        shape: The extents of the tensor.
        strides: The strides of the tensor.
        reshaped: The extents after the reshape, with the same number of elements.
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
