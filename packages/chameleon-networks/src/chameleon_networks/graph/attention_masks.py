"""What masks add to scores, as an input that attention's kernel reads, or as causality."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from chameleon_networks.graph.attention_scores import Mask
from chameleon_networks.graph.relaxed import relax

_SURELY_HIDES = -1e9
"""A mask of at most this hides a key, whatever its score."""
RANK = 4
"""Axes of scores: batch, heads, queries, keys."""


def four_axes(shape: tuple[int, ...]) -> tuple[int, int, int, int]:
    """Scores' shape as (batch, heads, queries, keys)."""
    padded = (*(1,) * (RANK - len(shape)), *shape)
    *batch, heads, queries, keys = padded
    return (math.prod(batch), heads, queries, keys)


@attrs.frozen(kw_only=True, eq=False)
class Masking:
    """What all masks together add to scores, with axes (batch, heads, queries, keys)."""

    constant: NDArray[Any] | None = None
    computed: Any = None
    computed_shape: tuple[int, ...] = ()

    @classmethod
    def of(cls, mask: Mask, scores: tuple[int, ...]) -> Masking | None:
        """A mask with the axes of the scores; None where it has none of these shapes."""
        shape = _mask_shape(mask, scores)
        if shape is None:
            return None
        if isinstance(mask.value, np.ndarray):
            return cls(constant=mask.value.reshape(shape))
        value = mask.value if mask.shape == shape else relax.op.reshape(mask.value, list(shape))
        return cls(computed=value, computed_shape=shape)

    def __add__(self, other: Masking) -> Masking:
        constants = [one for one in (self.constant, other.constant) if one is not None]
        computed = [one for one in (self, other) if one.computed is not None]
        value = computed[0].computed if computed else None
        shape = computed[0].computed_shape if computed else ()
        for one in computed[1:]:
            value = relax.op.add(value, one.computed)
            shape = tuple(np.broadcast_shapes(shape, one.computed_shape))
        return Masking(
            constant=functools.reduce(np.add, constants) if constants else None,
            computed=value,
            computed_shape=shape,
        )

    @property
    def causal(self) -> bool:
        """Whether the mask does nothing but hide later keys."""
        if self.constant is None or self.computed is not None:
            return False
        seen = np.tri(*self.constant.shape[2:], dtype=np.bool_)
        later = self.constant[..., ~seen]
        return bool(
            later.size and (later <= _SURELY_HIDES).all() and not self.constant[..., seen].any()
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the input there is to add; empty for none."""
        if self.computed is not None:
            constant = () if self.constant is None else self.constant.shape
            return tuple(np.broadcast_shapes(self.computed_shape, constant))
        if self.constant is None or self.causal or not self.constant.any():
            return ()
        return self.constant.shape

    @property
    def inputs(self) -> tuple[Any, ...]:
        """The expression to add, if any."""
        if not self.shape:
            return ()
        if self.constant is None:
            return (self.computed,)
        constant = relax.const(np.ascontiguousarray(self.constant, np.float32))
        return (constant if self.computed is None else relax.op.add(self.computed, constant),)


def masking_of(masks: Sequence[Mask], scores: tuple[int, ...]) -> Masking | None:
    """The sum of masks; None where one has a shape that no kernel reads."""
    total = Masking()
    for mask in masks:
        one = Masking.of(mask, scores)
        if one is None:
            return None
        total = total + one
    return total


def _mask_shape(mask: Mask, scores: tuple[int, ...]) -> tuple[int, ...] | None:
    """A mask's shape with the axes (batch, heads, queries, keys) of the scores."""
    rank = len(mask.scores)
    shape = (*(1,) * (rank - len(mask.shape)), *mask.shape)
    leading, whole = shape[:-2], mask.scores[:-2]
    last = shape[-2:]
    if math.prod(leading) == 1:
        return (1, 1, *last)
    if leading == whole:
        return (*scores[:2], *last)
    if rank < RANK or four_axes(mask.scores) != scores:
        return None
    *batch, heads = leading
    if math.prod(batch) == 1 or tuple(batch) == tuple(whole[:-1]):
        return (math.prod(batch), heads, *last)
    return None
