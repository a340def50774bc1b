"""Inputs on which programs go wrong although they are right for random numbers around zero."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

ROUNDINGS_APART = 4.0
"""A result may be off by so many times as much as another one in float32 is off from float64."""

_FLOOR = 1e-3
"""Differences of small numbers are relative to this share of the largest one."""

SPREADING = (
    r"linalg|chol|lu\b|lu_|qr|svd|solve|inv|det|transpose|interpol|upsample|grid|2im|resize|fft|dft"
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
    made = {label: [change(array) for array in arrays] for label, change in changes.items()}
    first = next((number for number, array in enumerate(arrays) if array.dtype.kind == "f"), None)
    if first is not None:  # weights and scales, which come later, are finite and not zero
        others = arrays[first + 1 :]
        made["zeros"] = [*arrays[:first], np.zeros_like(arrays[first]), *others]
        if not casts:
            made[NOT_FINITE] = [*arrays[:first], _with_nan(arrays[first]), *others]
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
    """The largest difference from the nearest of some results, relative to these.

    Numbers below 1, or below a thousandth of the largest one, count as such numbers. NaN is no
    difference from NaN or an infinity; with ``may_spread``, from no number. With ``finite``, only
    finite numbers count.
    """
    if wanted[0].dtype.kind in "biu":
        return 0.0 if any(np.array_equal(have, want) for want in wanted) else float("inf")
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
        same |= may_spread & np.isnan(ours)
        skipped = 0.0 if finite else np.inf
        errors.append(np.where(same, 0.0, np.where(np.isfinite(apart), apart, skipped)))
    return float(np.minimum.reduce(errors).max(initial=0.0))
