"""Strides of tensors in elements, and their change by reshapes."""

from __future__ import annotations

import math
from collections.abc import Sequence

Shape = tuple[int, ...]
Axis = tuple[tuple[int, int], ...]
"""An axis as the (extent, stride in elements) of each of its parts, outermost first. Empty for an
axis of extent 1."""


def dense_strides(shape: Sequence[int]) -> Shape:
    """Strides of a tensor without gaps."""
    return tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether a tensor is contiguous; strides of axes of extent 1 do not matter."""
    axes = zip(shape, strides, dense_strides(shape), strict=True)
    return all(extent == 1 or stride == wanted for extent, stride, wanted in axes)


def axis_in(shape: Sequence[int], axis: int, reshaped: Sequence[int]) -> int | None:
    """The number of a tensor's axis after a reshape, or None if that splits or merges it."""
    around = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    for position in reversed(range(len(reshaped))):
        if (math.prod(reshaped[:position]), math.prod(reshaped[position + 1 :])) == around:
            return position
    return None


def reshaped_strides(
    shape: Sequence[int], strides: Sequence[int], reshaped: Sequence[int]
) -> Shape | None:
    """The strides after a reshape without a copy, or None if the reshape needs a copy."""
    if 0 in shape:
        return dense_strides(reshaped)
    axes = reshaped_axes([(part,) for part in zip(shape, strides, strict=True)], reshaped)
    if axes is None or any(len(axis) > 1 for axis in axes):
        return None
    result: list[int] = []
    inner = 1
    for extent, axis in zip(reversed(reshaped), reversed(axes), strict=True):
        result.append(axis[0][1] if axis else inner)
        inner = extent * result[-1]
    return tuple(reversed(result))


def reshaped_axes(axes: Sequence[Axis], reshaped: Sequence[int]) -> tuple[Axis, ...] | None:
    """The axes after a reshape without a copy, or None if the reshape needs a copy."""
    parts = list(_merged([part for axis in axes for part in axis]))
    result = []
    for extent in reshaped:
        axis = []
        left = extent
        while left > 1:
            if not parts:
                return None
            size, stride = parts.pop(0)
            if size > left:
                if size % left:
                    return None
                parts.insert(0, (size // left, stride))
                size, stride = left, stride * (size // left)
            elif left % size:
                return None
            axis.append((size, stride))
            left //= size
        result.append(_merged(axis))
    return None if parts else tuple(result)


def _merged(parts: Sequence[tuple[int, int]]) -> Axis:
    """The parts of an axis, with contiguous neighbours merged."""
    merged: list[tuple[int, int]] = []
    for extent, stride in parts:
        if extent == 1:
            continue
        if merged and merged[-1][1] == extent * stride:
            merged[-1] = (merged[-1][0] * extent, stride)
        else:
            merged.append((extent, stride))
    return tuple(merged)
