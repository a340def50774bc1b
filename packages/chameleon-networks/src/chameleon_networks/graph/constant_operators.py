"""What NumPy says about operators that networks apply to constants: positions, masks, slices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from chameleon_tvm.operators.activations import ARRAYS
from numpy.typing import NDArray

from chameleon_networks.graph.relaxed import relax

Array = NDArray[Any]
Known = Callable[[Any], Array | None]
"""The value of an argument, or None where it is not constant."""

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "relax.equal": np.equal,
    "relax.not_equal": np.not_equal,
    "relax.less": np.less,
    "relax.less_equal": np.less_equal,
    "relax.greater": np.greater,
    "relax.greater_equal": np.greater_equal,
    "relax.logical_and": np.logical_and,
    "relax.logical_or": np.logical_or,
    "relax.logical_xor": np.logical_xor,
    "relax.bitwise_and": np.bitwise_and,
    "relax.bitwise_or": np.bitwise_or,
    "relax.bitwise_xor": np.bitwise_xor,
    "relax.floor_divide": np.floor_divide,
    "relax.floor_mod": np.mod,
    "relax.mod": np.fmod,
}
UNARY: dict[str, Callable[[Any], Any]] = {
    "relax.logical_not": np.logical_not,
    "relax.bitwise_not": np.bitwise_not,
    "relax.cos": np.cos,
    "relax.sin": np.sin,
    "relax.log": np.log,
    "relax.floor": np.floor,
    "relax.ceil": np.ceil,
    "relax.tanh": np.tanh,
    "relax.erf": np.vectorize(math.erf, otypes=[float]),
    "relax.square": np.square,
    "relax.sign": np.sign,
    "relax.sigmoid": ARRAYS["sigmoid"],
    **{f"relax.nn.{name}": ARRAYS[name] for name in ("relu", "relu6", "gelu", "gelu_tanh", "silu")},
}


def evaluate_other(call: Any, known: Known) -> Array | None:
    """The value of a call that is neither element-wise nor a mere change of shape.

    Args:
        call: a call of a Relax operator.
        known: values of its arguments.

    Returns:
        None where the operator is not one of these, or an argument is not constant.
    """
    evaluate = _OTHERS.get(str(call.op.name))
    return None if evaluate is None else evaluate(call, known)


def integers(argument: Any) -> list[int]:
    """The numbers of a shape, or of a tuple of constants."""
    values = argument.values if isinstance(argument, relax.ShapeExpr) else argument.fields
    return [int(getattr(one, "value", one)) for one in values]


def _all(arguments: Sequence[Any], known: Known) -> list[Array] | None:
    found = [known(argument) for argument in arguments]
    return None if any(one is None for one in found) else [one for one in found if one is not None]


def _arange(call: Any, known: Known) -> Array | None:
    bounds = _all(call.args, known)
    if bounds is None:
        return None
    return np.arange(*(one.item() for one in bounds), dtype=str(call.ty.dtype))


def _full(call: Any, known: Known) -> Array | None:
    """An array of one number; only the number has to be constant, as the shape is always known."""
    value = known(call.args[1])
    return None if value is None else np.full([int(e) for e in call.ty.shape], value)


def _concat(call: Any, known: Known) -> Array | None:
    if not isinstance(call.args[0], relax.Tuple):
        return None
    found = _all(call.args[0].fields, known)
    return None if found is None else np.concatenate(found, axis=int(call.attrs.axis))


def _strided_slice(call: Any, known: Known) -> Array | None:
    data, *places = call.args
    value = known(data)
    if value is None:
        return None
    axes, begins, ends = (integers(one) for one in places[:3])
    steps = integers(places[3]) if len(places) > 3 else [1] * len(axes)  # noqa: PLR2004
    parts = [slice(None)] * value.ndim
    for axis, begin, end, step in zip(axes, begins, ends, steps, strict=True):
        if step < 1:
            return None  # where such a slice ends is written differently in NumPy
        parts[axis] = slice(begin, end, step)
    return value[tuple(parts)]


def _slice_scatter(call: Any, known: Known) -> Array | None:
    found = _all(call.args, known)
    if found is None:
        return None
    data, part, *places = found
    begin, end, step = (int(place) for place in places)
    if step < 1:
        return None
    made = data.copy()
    where = [slice(None)] * data.ndim
    where[int(call.attrs.axis)] = slice(begin, end, step)
    made[tuple(where)] = part
    return made


def _take(call: Any, known: Known) -> Array | None:
    found = _all(call.args[:2], known)
    if found is None or call.attrs.axis is None:
        return None
    data, places = found
    axis = int(call.attrs.axis)
    inside = -data.shape[axis] <= places.min(initial=0) <= places.max(initial=0) < data.shape[axis]
    return data.take(places, axis=axis) if inside else None


def _gather_elements(call: Any, known: Known) -> Array | None:
    found = _all(call.args, known)
    if found is None:
        return None
    data, places = found
    return np.take_along_axis(data, places, axis=int(call.attrs.axis))


def _index_tensor(call: Any, known: Known) -> Array | None:
    data = known(call.args[0])
    if data is None or not isinstance(call.args[1], relax.Tuple):
        return None
    places = _all(call.args[1].fields, known)
    value: Array | None = None if places is None else data[tuple(places)]
    return value


def _reduction(reduce: Callable[..., Any]) -> Callable[[Any, Known], Array | None]:
    def reduced(call: Any, known: Known) -> Array | None:
        value = known(call.args[0])
        if value is None:
            return None
        axes = call.attrs.axis
        over = None if axes is None else tuple(int(axis) for axis in axes)
        return np.asarray(reduce(value, axis=over, keepdims=bool(call.attrs.keepdims)))

    return reduced


def _cumsum(call: Any, known: Known) -> Array | None:
    value = known(call.args[0])
    if value is None or bool(call.attrs.exclusive) or call.attrs.axis is None:
        return None
    return np.cumsum(value, axis=int(call.attrs.axis))


_OTHERS: dict[str, Callable[[Any, Known], Array | None]] = {
    "relax.arange": _arange,
    "relax.full": _full,
    "relax.full_like": _full,
    "relax.concat": _concat,
    "relax.strided_slice": _strided_slice,
    "relax.slice_scatter": _slice_scatter,
    "relax.take": _take,
    "relax.gather_elements": _gather_elements,
    "relax.index_tensor": _index_tensor,
    "relax.cumsum": _cumsum,
    "relax.sum": _reduction(np.sum),
    "relax.mean": _reduction(np.mean),
    "relax.max": _reduction(np.max),
    "relax.min": _reduction(np.min),
    "relax.prod": _reduction(np.prod),
}
