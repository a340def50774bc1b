"""Describes a tensor as a strided view of the array that it is rearranged from.

A kernel that reads the array in place needs no permutations, slices or broadcasts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from chameleon_networks._graph.constants import array_of, slices_of
from chameleon_networks._graph.relax_utils import axes_of, operator_name, relax, shape_of, tvm
from chameleon_networks._graph.strides import Axis, dense_strides, reshaped_axes

_RESHAPING = frozenset(f"relax.{name}" for name in ("reshape", "expand_dims", "squeeze", "flatten"))


@attrs.frozen(kw_only=True, eq=False)
class StridedView:
    """A tensor as strided axes of another tensor's memory, times a factor.

    Attributes:
        source: The expression of the other tensor.
        axes: For each axis of the tensor, the (extent, stride) pairs of its parts in the memory of
            ``source``, outermost first.
        offset: The offset of the first element in the memory of ``source``, in elements.
        factor: The number that a reader must multiply each element of ``source`` by.
    """

    source: Any
    axes: tuple[Axis, ...]
    offset: int = 0
    factor: float = 1.0

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor's shape."""
        return tuple(math.prod(size for size, _ in axis) for axis in self.axes)

    def permuted(self, order: Sequence[int]) -> StridedView:
        """The view with its axes in another order."""
        return attrs.evolve(self, axes=tuple(self.axes[axis] for axis in order))

    def reshaped(self, shape: Sequence[int]) -> StridedView | None:
        """The same view in another shape, or None if an axis would have no fixed stride."""
        axes = reshaped_axes(self.axes, shape)
        return None if axes is None else attrs.evolve(self, axes=axes)

    def broadcast(self, shape: Sequence[int]) -> StridedView:
        """The same view, repeated along axes of extent 1 and along new axes in front."""
        missing: tuple[Axis, ...] = ((),) * (len(shape) - len(self.axes))
        axes = tuple(
            ((extent, 0),) if extent > 1 and not axis else axis
            for extent, axis in zip(shape, (*missing, *self.axes), strict=True)
        )
        return attrs.evolve(self, axes=axes)

    def sliced(self, index: int, begin: int, extent: int) -> StridedView | None:
        """The view of a range of one axis, or None if the axis has no single stride."""
        axis = self.axes[index]
        if len(axis) > 1:
            return None
        stride = axis[0][1] if axis else 0
        part: Axis = ((extent, stride),) if extent > 1 else ()
        axes = (*self.axes[:index], part, *self.axes[index + 1 :])
        return attrs.evolve(self, axes=axes, offset=self.offset + begin * stride)

    def without(self, index: int) -> StridedView:
        """The view without an axis of extent 1."""
        return attrs.evolve(self, axes=(*self.axes[:index], *self.axes[index + 1 :]))


def identity_view(source: Any) -> StridedView:
    """A tensor as a view of itself."""
    shape = shape_of(source)
    strides = dense_strides(shape)
    axes = tuple(
        ((extent, stride),) if extent > 1 else ()
        for extent, stride in zip(shape, strides, strict=True)
    )
    return StridedView(source=source, axes=axes)


def views_of(tensor: Any, values: Mapping[Any, Any]) -> list[StridedView]:
    """All views of a tensor: of the tensors that it is rearranged from, and of itself, at last."""
    own = identity_view(tensor)
    value = values.get(tensor) if isinstance(tensor, relax.Var) else None
    step = rearrangement_of(value, values)
    if step is None:
        return [own]
    parent, derive = step
    derived = [derive(view) for view in views_of(parent, values)]
    return [*(view for view in derived if view is not None), own]


Rearrangement = tuple[Any, Callable[[StridedView], StridedView | None]]
"""The tensor that another one is rearranged from, and a function that converts views of the latter
to views of the former, or None."""


def rearrangement_of(value: Any, values: Mapping[Any, Any]) -> Rearrangement | None:
    """The tensor that an expression rearranges, and a function of its views, or None."""
    if isinstance(value, relax.TupleGetItem):
        return _split_part(value, values)
    step = _REARRANGEMENTS.get(operator_name(value))
    return None if step is None else step(value)


def _split_part(value: Any, values: Mapping[Any, Any]) -> Rearrangement | None:
    call: Any = values.get(value.tuple_value)
    if operator_name(call) != "relax.split":
        return None
    parent = call.args[0]
    rank = len(shape_of(parent))
    axis = int(call.attrs.axis) % rank
    extents = [int(part.shape[axis]) for part in call.ty.fields]
    index = int(value.index)
    begin = sum(extents[:index])
    return parent, lambda view: view.sliced(axis, begin, extents[index])


def _take_index(call: Any) -> Rearrangement | None:
    """``take`` of one element of an axis, which removes the axis."""
    data, places = call.args[:2]
    if call.attrs.axis is None or not isinstance(places, tvm.ir.GenericConst) or shape_of(places):
        return None
    shape = shape_of(data)
    axis = int(call.attrs.axis) % len(shape)
    index = int(array_of(places)) % shape[axis]

    def derive(view: StridedView) -> StridedView | None:
        element = view.sliced(axis, index, 1)
        return None if element is None else element.without(axis)

    return data, derive


def _slice(call: Any) -> Rearrangement | None:
    data, slices = call.args[0], slices_of(call)
    shape = shape_of(data)
    if any(step != 1 for *_, step in slices):
        return None
    parts = [(axis, *slice(begin, end).indices(shape[axis])[:2]) for axis, begin, end, _ in slices]

    def derive(view: StridedView) -> StridedView | None:
        result: StridedView | None = view
        for axis, begin, end in parts:
            result = None if result is None else result.sliced(axis, begin, end - begin)
        return result

    return data, derive


def _scaling(call: Any) -> Rearrangement | None:
    """A product with a constant scalar, or a quotient by one."""
    tensor, number = call.args
    divided = str(call.op.name) == "relax.divide"
    if not divided and scalar_of(tensor) is not None:
        tensor, number = number, tensor
    factor = scalar_of(number)
    if not factor or scalar_of(tensor) is not None or shape_of(tensor) != shape_of(call):
        return None
    scale = 1.0 / factor if divided else factor
    return tensor, lambda view: attrs.evolve(view, factor=view.factor * scale)


_REARRANGEMENTS: dict[str, Callable[[Any], Rearrangement | None]] = {
    "relax.permute_dims": lambda call: (call.args[0], lambda view: view.permuted(axes_of(call))),
    "relax.broadcast_to": lambda call: (call.args[0], lambda view: view.broadcast(shape_of(call))),
    "relax.take": _take_index,
    "relax.strided_slice": _slice,
    "relax.multiply": _scaling,
    "relax.divide": _scaling,
    **dict.fromkeys(
        _RESHAPING, lambda call: (call.args[0], lambda view: view.reshaped(shape_of(call)))
    ),
}


def scalar_of(argument: Any) -> float | None:
    """The value of a constant of one element, or None for other expressions."""
    if not isinstance(argument, tvm.ir.GenericConst):
        return None
    array = array_of(argument)
    return float(array.reshape(())) if array.size == 1 else None
