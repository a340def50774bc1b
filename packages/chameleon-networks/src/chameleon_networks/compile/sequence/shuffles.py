"""Shuffles: permutations of one axis, which a network writes as reshape, permutation, reshape."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any, cast

import attrs
from chameleon_core.errors import ConfigError

from chameleon_networks.graph.moves import shape_of
from chameleon_networks.graph.relaxed import relax, tvm
from chameleon_networks.graph.strided import Step, View, contiguous, step_of, views_of


@attrs.frozen(kw_only=True, eq=False)
class Shuffle:
    """A tensor as another one with an axis in another order.

    Attributes:
        source: the other one, an expression.
        axis: which axis.
        parts: digits of an index of the axis, outermost first: how many values each has, and how
            far apart they are in the other tensor's axis.
    """

    source: Any
    axis: int
    parts: tuple[tuple[int, int], ...]

    @property
    def table(self) -> tuple[int, ...]:
        """For each index of the axis the other tensor's."""
        digits = [range(0, extent * step, step) for extent, step in self.parts]
        return tuple(map(sum, itertools.product(*digits)))


def shuffle_of(value: Any, values: Mapping[Any, Any]) -> Shuffle | None:
    """What a reshape or permutation shuffles; None where it is something else.

    Args:
        value: an expression.
        values: what variables are bound to.
    """
    if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.Op):
        return None
    if str(value.op.name) not in {"relax.reshape", "relax.permute_dims"}:
        return None
    parent, derive = cast(Step, step_of(value, values))
    try:
        views = [derive(view) for view in views_of(parent, values)]
    except ConfigError:
        return None  # a shape is known only while the network runs
    shuffles = (_shuffle(view) for view in views if view is not None)
    return next((one for one in shuffles if one is not None), None)


def _shuffle(view: View) -> Shuffle | None:
    """What a view shuffles; None where it is not one axis of all of its source."""
    shape = shape_of(view.source)
    strides = contiguous(shape)
    several = [axis for axis, parts in enumerate(view.axes) if len(parts) > 1]
    if view.shape != shape or view.factor != 1.0 or len(several) != 1:
        return None
    [axis] = several
    for place, (extent, stride) in enumerate(zip(shape, strides, strict=True)):
        if place != axis and extent > 1 and view.axes[place] != ((extent, stride),):
            return None
    if any(step % strides[axis] for _, step in view.axes[axis]):
        return None
    parts = tuple((extent, step // strides[axis]) for extent, step in view.axes[axis])
    made = Shuffle(source=view.source, axis=axis, parts=parts)
    return made if sorted(made.table) == list(range(shape[axis])) else None
