"""Inputs on which programs go wrong although they are right for random numbers around zero."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import numpy as np

TOLERANCES = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-4, "float64": 1e-6}
"""Accepted |difference|, relative to |expected| or to 1, whichever is larger; others are exact."""

ROUNDINGS_APART = 4.0
"""A result may be off by so many times as much as another one in float32 is off from float64."""

_FLOOR = 1e-3
"""Differences of small numbers are relative to this share of the largest one."""

SPREADING = (
    r"linalg|chol|lu\b|lu_|qr|svd|solve|inv|det|transpose|interpol|upsample|grid|2im|resize|[fdt]ft"
)
"""Operators that are products with matrices, or of series of steps, in which NaN may spread."""

NOT_FINITE = "NaN and infinities"
_EXTREMES = (0.0, -0.0, 1.0, -1.0, 1e3, -1e3, 1e-3, -1e-3, 1e-30, -1e-30, 0.5, 1.5)
_SUBNORMAL = (1e-40, -1e-40, 2.0**-126, -(2.0**-126), 3e-45, 0.0)


def hard_inputs(
    arrays: Sequence[Any], integers: Collection[int], *, casts: bool
) -> dict[str, list[Any]]:
    """Other inputs of a network, by a phrase that names them.

    Args:
        arrays: its usual inputs.
        integers: numbers of the integer inputs that are data, and not indices or lengths.
        casts: whether it converts floating-point numbers to integers. Languages leave open which
            integer a number becomes that the integers lack.
    """
    changes = {
        "a mean of 1000": _floats(lambda x: x + x.dtype.type(1000)),
        "a constant": _floats(lambda x: np.full_like(x, 0.7)),
    }
    if not casts:
        changes |= {
            "extremes": _floats(lambda x: _tiled(_EXTREMES, x)),
            "subnormal numbers": _floats(lambda x: _tiled(_SUBNORMAL, x)),
        }
    made = {
        label: [_sorted_like(array, change(array)) for array in arrays]
        for label, change in changes.items()
    }
    first = next((number for number, array in enumerate(arrays) if array.dtype.kind == "f"), None)
    if first is not None:  # weights and scales, which come later, are finite and not zero
        others = arrays[first + 1 :]
        made["zeros"] = [*arrays[:first], np.zeros_like(arrays[first]), *others]
        if not casts:
            marked = _sorted_like(arrays[first], _with_nan(arrays[first]))
            made[NOT_FINITE] = [*arrays[:first], marked, *others]
    made["integers over their whole range"] = [
        _whole_range(array) if number in integers else array for number, array in enumerate(arrays)
    ]
    return {
        label: inputs
        for label, inputs in made.items()
        if any(new is not old for new, old in zip(inputs, arrays, strict=True))
    }


def _floats(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A change of floating-point arrays that leaves others as they are."""

    def changed(array: Any) -> Any:
        if array.dtype.kind != "f":
            return array
        with np.errstate(all="ignore"):
            return np.asarray(change(array), array.dtype)

    return changed


def _sorted_like(array: Any, changed: Any) -> Any:
    """A changed array whose rows increase if they did before, such as edges of intervals."""
    rows = array.ndim and array.shape[-1] > 1 and bool((np.diff(array) > 0).all())
    return np.sort(changed, -1) if rows and changed is not array else changed


def _tiled(numbers: Sequence[float], array: Any) -> Any:
    return np.resize(np.array(numbers), array.shape)


def _with_nan(array: Any) -> Any:
    marked = array.copy().reshape(-1)
    places = marked[2::5]
    places[:] = np.resize(np.array([np.nan, np.inf, -np.inf]), places.shape)
    return marked.reshape(array.shape)


def _whole_range(array: Any) -> Any:
    limits = np.iinfo(array.dtype)
    rng = np.random.default_rng(0)
    numbers = rng.integers(limits.min, limits.max, array.shape, array.dtype, endpoint=True)
    ends = np.array([limits.min, limits.max, 0, limits.max // 3 + 1], array.dtype)
    flat = numbers.reshape(-1)
    flat[: ends.size] = ends[: flat.size]
    return flat.reshape(array.shape)


def difference(have: Any, *wanted: Any, finite: bool = False, may_spread: bool = False) -> float:
    """The largest of ``differences``."""
    return float(differences(have, *wanted, finite=finite, may_spread=may_spread).max(initial=0.0))


def undefined(one: Any, other: Any) -> Any:
    """The places at which two results of a reference are numbers without a common digit."""
    if one.dtype.kind != "f":
        return np.zeros(one.shape, bool)
    one, other = one.astype(np.float64), other.astype(one.dtype).astype(np.float64)
    with np.errstate(invalid="ignore"):
        size = np.maximum(np.maximum(np.abs(one), np.abs(other)), 1.0)
        apart = np.isfinite(size) & (np.abs(one - other) > _NO_DIGIT * size)
        return apart | (np.isinf(size) & (one != other))


_NO_DIGIT = 0.5


def differences(have: Any, *wanted: Any, finite: bool = False, may_spread: bool = False) -> Any:
    """The difference of each number from the nearest of some results, relative to these.

    Numbers below 1, or below a thousandth of the largest one, count as such numbers. NaN is no
    difference from NaN or an infinity; with ``may_spread``, neither is from any number. With
    ``finite``, only finite numbers count.
    """
    if wanted[0].dtype.kind in "biu":
        equal = np.logical_or.reduce([have == want for want in wanted])
        return np.where(equal, 0.0, 0.0 if finite else np.inf)
    errors = []
    for want in wanted:
        with np.errstate(over="ignore", invalid="ignore"):
            theirs = want.astype(have.dtype).astype(np.float64)
            ours = have.astype(np.float64)
            size = np.abs(theirs)
            floor = max(1.0, _FLOOR * size[np.isfinite(size)].max(initial=0.0))
            apart = np.abs(ours - theirs) / np.maximum(size, floor)
        one_is_nan = np.isnan(ours) | np.isnan(theirs)
        same = (ours == theirs) | (one_is_nan & ~np.isfinite(ours) & ~np.isfinite(theirs))
        same |= may_spread & ~np.isfinite(ours)
        skipped = 0.0 if finite else np.inf
        errors.append(np.where(same, 0.0, np.where(np.isfinite(apart), apart, skipped)))
    return np.minimum.reduce(errors)


def chooses_equally(inputs: Iterable[Any], values: Iterable[Any], have: Any, want: Any) -> bool:
    """Whether indices choose the same numbers of an input as a reference's, and as many of them.

    Args:
        inputs: arrays.
        values: other results of the reference; one of them must be the numbers that it chooses,
            unless the indices are an order of all numbers.
        have: indices.
        want: the reference's.
    """
    for numbers in inputs:
        for axis in range(numbers.ndim):
            theirs, ours = _chosen(numbers, want, axis), _chosen(numbers, have, axis)
            if theirs is None or ours is None or not _equal(theirs, ours):
                continue
            one = have.ndim < numbers.ndim  # a single choice along the axis
            as_many = one or _distinct(have, axis) >= _distinct(want, axis)
            shown = any(_equal(theirs, value) for value in values)
            if as_many and (shown or _is_order(want, numbers, axis)):
                return True
    return False


def _chosen(numbers: Any, indices: Any, axis: int) -> Any | None:
    """The numbers of an array at indices along an axis, which the indices may lack, or None."""
    if not 0 <= numbers.ndim - indices.ndim <= 1:
        return None
    whole = indices if indices.ndim == numbers.ndim else np.expand_dims(indices, axis)
    extents = [extent for place, extent in enumerate(whole.shape) if place != axis]
    if extents != [*np.delete(numbers.shape, axis)]:
        return None
    inside = ((whole >= 0) & (whole < numbers.shape[axis])).all()
    return np.take_along_axis(numbers, whole, axis).reshape(indices.shape) if inside else None


def _equal(one: Any, other: Any) -> bool:
    return (
        one.shape == other.shape
        and one.dtype == other.dtype
        and (np.array_equal(one, other, equal_nan=one.dtype.kind == "f"))
    )


def _is_order(indices: Any, numbers: Any, axis: int) -> bool:
    """Whether indices choose each number along an axis once, as those of ``argsort`` do."""
    rows = indices.size // max(1, numbers.shape[axis])
    return indices.shape == numbers.shape and _distinct(indices, axis) == indices.size - rows


def _distinct(indices: Any, axis: int) -> int:
    """How many different indices there are along an axis, in all places of the others."""
    ordered = np.sort(indices, min(axis, indices.ndim - 1)) if indices.ndim else indices
    return (
        int((np.diff(ordered, axis=min(axis, indices.ndim - 1)) != 0).sum()) if indices.ndim else 0
    )
