"""Replaces operators that TVM or later passes compute wrongly or not at all by others."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np
from chameleon_tvm.api import FLOAT16, INT8, SPATIAL, UINT8

from chameleon_networks._graph.constants import array_of, constant_of
from chameleon_networks._graph.relax_utils import (
    log1p,
    mutate,
    operator_name,
    relax,
    shape_of,
    static_shape,
    tvm,
    with_args,
)

_MAX_POWER = 4
"""The largest integer power that is written as products."""


def legalize(module: Any) -> Any:
    """Replace operators that TVM or later passes cannot handle by operators that they can."""
    return mutate(module, _Legalizer(module))


@relax.expr_functor.mutator
class _Legalizer(relax.PyExprMutator):
    """Replaces operator calls one at a time."""

    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        if 0 in (static_shape(call.ty) or ()):  # TVM fails at many empty tensors
            return relax.op.zeros(call.ty.shape, str(call.ty.dtype))
        lower = _LEGALIZATIONS.get(operator_name(call))
        if lower is None or not isinstance(call.ty, relax.TensorType):
            return call
        result = lower(call, self.builder_.emit)
        return call if result is None else result


def _reshape(call: Any, _emit: Any) -> Any:
    """A reshape, because ``ConvertLayout`` reads freed memory at operators that drop an axis."""
    return relax.op.reshape(call.args[0], call.ty.shape)


def _normalize_permutation(call: Any, _emit: Any) -> Any:
    """A permutation with axes from the front; ``ConvertLayout`` misreads those from the end."""
    axes = call.attrs.axes
    if axes is None or all(int(axis) >= 0 for axis in axes):
        return None
    return relax.op.permute_dims(call.args[0], [int(axis) % len(axes) for axis in axes])


def _stack_as_concat(call: Any, emit: Any) -> Any:
    """A concatenation in place of ``stack``, whose change of rank breaks ``ConvertLayout``."""
    shape = [int(extent) for extent in call.ty.shape]
    axis = int(call.attrs.axis) % len(shape)
    shape[axis] = 1
    parts = [emit(relax.op.reshape(part, shape)) for part in _tuple_fields(call.args[0], emit)]
    return relax.op.concat(parts, axis)


def _tuple_fields(value: Any, emit: Any) -> list[Any]:
    if isinstance(value, relax.Tuple):
        return list(value.fields)
    return [emit(relax.TupleGetItem(value, place)) for place in range(len(value.ty.fields))]


def _boolean_arithmetic(call: Any, _emit: Any) -> Any:
    """A sum, product or extremum of booleans as ``or`` or ``and``, because LLVM has none."""
    if str(call.ty.dtype) != "bool":
        return None
    either = operator_name(call) in {"relax.add", "relax.maximum"}
    return (relax.op.logical_or if either else relax.op.logical_and)(*call.args)


def _boolean_reduction(call: Any, emit: Any) -> Any:
    """``max`` or ``min`` of booleans in int8, because TVM has no limits of bool."""
    if str(call.ty.dtype) != "bool":
        return None
    made = emit(with_args(call, [emit(relax.op.astype(call.args[0], INT8))]))
    return relax.op.not_equal(made, relax.const(0, INT8))


def _half_reduction(call: Any, emit: Any) -> Any:
    """A sum or mean of half precision in float32, as in other frameworks, which round once."""
    if {str(call.args[0].ty.dtype), str(call.ty.dtype)} != {FLOAT16}:
        return None
    wide = emit(relax.op.astype(call.args[0], "float32"))
    if operator_name(call) == "relax.cumsum":
        made = relax.op.cumsum(wide, call.attrs.axis, "float32", call.attrs.exclusive)
    else:
        made = with_args(call, [wide])
    return relax.op.astype(emit(made), FLOAT16)


def _constant_answer(answer: bool) -> Callable[[Any, Any], Any]:
    """Make a function that answers ``isnan`` and the like for integers by a constant."""

    def answered(call: Any, _emit: Any) -> Any:
        if "float" in str(call.args[0].ty.dtype):
            return None
        return constant_of(np.full(shape_of(call), answer))

    return answered


_NARROW = (INT8, UINT8, "int16", "uint16")
"""Integers to which processors do not convert floats."""


def _cast(call: Any, emit: Any) -> Any:
    """A cast from float to narrow integers by int32, or from bool by a choice of 0 or 1."""
    # Frameworks wrap numbers that a narrow dtype cannot hold, but LLVM leaves them undefined.
    kind, source = str(call.ty.dtype), str(call.args[0].ty.dtype)
    if "float" in source and kind in _NARROW:
        return relax.op.astype(emit(relax.op.astype(call.args[0], "int32")), kind)
    # TVM has no code for functions such as ``tanh`` of vectors that are cast from bool.
    if source != "bool" or not kind.startswith("float"):
        return None
    return relax.op.where(call.args[0], relax.const(1.0, kind), relax.const(0.0, kind))


def _full(call: Any, emit: Any) -> Any:
    """``full`` with an infinite number, which TVM cannot represent, as a broadcast constant."""
    value = call.args[1]
    if not isinstance(value, tvm.ir.GenericConst):
        return None
    number = array_of(value).astype(str(call.ty.dtype))
    if np.isfinite(number).all():
        return None
    return relax.op.broadcast_to(emit(constant_of(number)), call.ty.shape)


def _take(call: Any, _emit: Any) -> Any:
    """``take`` with clipped indices, because TVM's mode ``fast`` may read beyond the array."""
    if str(call.attrs.mode) != "fast":
        return None
    axis = call.attrs.axis
    return relax.op.take(*call.args, None if axis is None else int(axis), mode="clip")


def _clip_indices(indices: Any, extents: Any, emit: Any) -> Any:
    """Indices, counted from the front and clipped, because TVM checks no bounds."""
    count = np.asarray(extents, str(indices.ty.dtype))
    if isinstance(indices, tvm.ir.GenericConst):
        known = array_of(indices)
        return constant_of(np.clip(np.where(known < 0, known + count, known), 0, count - 1))
    zero, extent, last = (constant_of(each) for each in (np.zeros_like(count), count, count - 1))
    forward = emit(relax.op.where(emit(indices < zero), emit(indices + extent), indices))
    return emit(relax.op.minimum(emit(relax.op.maximum(forward, zero)), last))


def _gather(call: Any, emit: Any) -> Any:
    """An operator that reads elements by indices, with all indices inside the data."""
    data, indices = call.args
    extents = shape_of(data)
    if isinstance(indices, relax.Tuple):
        parts = [_clip_indices(*each, emit) for each in zip(indices.fields, extents, strict=False)]
        return with_args(call, [data, relax.Tuple(parts)])
    if operator_name(call) == "relax.gather_elements":
        return with_args(call, [data, _clip_indices(indices, extents[int(call.attrs.axis)], emit)])
    first = int(call.attrs.batch_dims)
    chosen = extents[first : first + shape_of(indices)[-1]]
    return with_args(call, [data, _clip_indices(indices, chosen, emit)])


def _scatter_booleans(scatter: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Make a function that computes scatters of booleans in int8, because LLVM lacks them."""

    def scattered(call: Any, emit: Any) -> Any:
        data, indices, updates = call.args
        if str(data.ty.dtype) != "bool":
            return scatter(call, emit)
        data, updates = (emit(relax.op.astype(one, INT8)) for one in (data, updates))
        made = emit(scatter(with_args(call, [data, indices, updates]), emit))
        return relax.op.not_equal(made, relax.const(0, INT8))

    return scattered


@_scatter_booleans
def _scatter_nd(call: Any, emit: Any) -> Any:
    data, indices, updates = call.args
    chosen = shape_of(data)[: shape_of(indices)[-1]]
    return with_args(call, [data, _clip_indices(indices, chosen, emit), updates])


@_scatter_booleans
def _scatter_elements(call: Any, emit: Any) -> Any:
    """Scatter into the part of the data that the indices cover."""
    # TVM assumes equal extents of data and indices along all axes but the scattered one.
    whole, places, updates = call.args
    axis = int(call.attrs.axis) % len(places.ty.shape)
    indices = _clip_indices(places, shape_of(whole)[axis], emit)

    def scattered(data: Any, later: int) -> Any:
        shapes = enumerate(zip(shape_of(data), shape_of(places), strict=True))
        for other, (size, written) in shapes:
            if other >= later and other != axis and written < size:
                head, tail = (
                    emit(relax.op.strided_slice(data, [other], [begin], [end]))
                    for begin, end in ((0, written), (written, size))
                )
                return relax.op.concat([emit(scattered(head, other + 1)), tail], other)
        return relax.op.scatter_elements(data, indices, updates, axis, call.attrs.reduction)

    return scattered(whole, 0)


def _resize_one_row(call: Any, emit: Any) -> Any:
    """Resize to two rows and keep one; TVM divides by zero to align the corners of one row."""
    sizes = [int(extent) for extent in call.args[1]]
    if str(call.attrs.coordinate_transformation_mode) != "align_corners" or 1 not in sizes:
        return None
    more = relax.ShapeExpr([max(2, extent) for extent in sizes])
    whole = emit(relax.Call(call.op, [call.args[0], more, *call.args[2:]], call.attrs))
    axes = [place for place, letter in enumerate(call.attrs.layout) if letter in SPATIAL]
    return relax.op.strided_slice(whole, axes, [0] * len(axes), sizes)


def _divide_integers(call: Any, emit: Any) -> Any:
    """A quotient or remainder of integers that never ends the process."""
    # x86 does so at a division by 0, which becomes 1, and of the smallest number by -1.
    dividend, divisor = call.args
    kind = str(call.ty.dtype)
    if "int" not in kind:
        return None
    ends = [0] if kind.startswith("u") else [0, -1]
    if isinstance(divisor, tvm.ir.GenericConst):
        known = array_of(divisor)
        if not np.isin(known, ends).any():
            return None
    # ``b & b`` hides from TVM that nested choices have the same condition, which it would merge.
    hidden = emit(relax.op.bitwise_and(divisor, divisor))
    one, safe = relax.const(1, kind), divisor
    for number in ends:
        is_end = emit(relax.op.equal(hidden, relax.const(number, kind)))
        safe = emit(relax.op.where(is_end, one, safe))
    result = with_args(call, [dividend, safe])
    if len(ends) == 1 or "mod" in operator_name(call):
        return result
    sign = emit(relax.op.where(is_end, relax.const(-1, kind), one))
    return relax.op.multiply(emit(result), sign)


def _power(call: Any, emit: Any) -> Any:
    """A small integer power as products, because ``pow`` is slow and does not take integers."""
    base, exponent = call.args
    if not isinstance(exponent, tvm.ir.GenericConst) or array_of(exponent).size != 1:
        return None
    power = float(array_of(exponent).reshape(()))
    if power not in range(1, _MAX_POWER + 1) or list(call.ty.shape) != list(base.ty.shape):
        return None
    return reduce(lambda product, factor: emit(product * factor), [base] * int(power))


def _sign(call: Any, _emit: Any) -> Any:
    """The sign of an unsigned number is 0 or 1; TVM's needs the number -1."""
    kind = str(call.ty.dtype)
    return relax.op.minimum(call.args[0], relax.const(1, kind)) if kind.startswith("uint") else None


def _hyperbolic(call: Any, emit: Any) -> Any:
    """``cosh``, and ``sinh`` as ``tanh(x) * cosh(x)``, which LLVM lacks for vectors."""
    # Subtracting log 2 in the exponent avoids an early overflow.
    x, log2 = call.args[0], relax.const(math.log(2.0), str(call.ty.dtype))
    size = emit(relax.op.abs(x))
    whole = relax.op.exp(size - log2) + relax.op.exp(relax.op.negative(size) - log2)
    return whole if operator_name(call) == "relax.cosh" else relax.op.tanh(x) * whole


def _leaky_relu(call: Any, emit: Any) -> Any:
    """A ReLU without a leak, which is NaN for NaN and, like a product, for negative infinity."""
    if float(call.attrs.alpha):
        return None
    x, kind = call.args[0], str(call.ty.dtype)
    zero, infinity, nan = (relax.const(number, kind) for number in (0.0, math.inf, math.nan))
    finite = emit(emit(relax.op.abs(x)) < infinity)
    below = emit(relax.op.where(finite, zero, nan))
    return relax.op.where(emit(x > zero), x, below)


def _atanh(call: Any, emit: Any) -> Any:
    """``atanh`` as half of ``log(1 + x) - log(1 - x)``, because TVM's loses a small x."""
    x = call.args[0]
    above, below = (log1p(emit, part) for part in (x, emit(relax.op.negative(x))))
    return (above - below) * relax.const(0.5, str(call.ty.dtype))


_LEGALIZATIONS: dict[str, Callable[[Any, Any], Any]] = {
    **dict.fromkeys(("relax.squeeze", "relax.expand_dims", "relax.flatten"), _reshape),
    "relax.permute_dims": _normalize_permutation,
    "relax.stack": _stack_as_concat,
    "relax.full": _full,
    "relax.astype": _cast,
    "relax.take": _take,
    **dict.fromkeys(("relax.add", "relax.multiply"), _boolean_arithmetic),
    **dict.fromkeys(("relax.max", "relax.min"), _boolean_reduction),
    **dict.fromkeys(("relax.cumsum", "relax.sum", "relax.mean"), _half_reduction),
    **{f"relax.nn.avg_pool{axes}d": _half_reduction for axes in (1, 2, 3)},
    "relax.nn.adaptive_avg_pool2d": _half_reduction,
    **dict.fromkeys(("relax.isnan", "relax.isinf"), _constant_answer(answer=False)),
    "relax.isfinite": _constant_answer(answer=True),
    **dict.fromkeys(("relax.divide", "relax.floor_divide"), _divide_integers),
    **dict.fromkeys(("relax.mod", "relax.floor_mod"), _divide_integers),
    "relax.split": lambda call, _emit: call.args[0],  # a split into one part gives no tuple
    **dict.fromkeys(("relax.image.resize2d", "relax.image.resize3d"), _resize_one_row),
    "relax.power": _power,
    **dict.fromkeys(("relax.maximum", "relax.minimum"), _boolean_arithmetic),
    "relax.sign": _sign,
    "relax.atanh": _atanh,
    "relax.nn.leakyrelu": _leaky_relu,
    "relax.scatter_elements": _scatter_elements,
    "relax.scatter_nd": _scatter_nd,
    **dict.fromkeys(("relax.gather_elements", "relax.gather_nd", "relax.index_tensor"), _gather),
    **dict.fromkeys(("relax.sinh", "relax.cosh"), _hyperbolic),
}
"""Functions, by operator. Each returns the expression that replaces a call, or None."""
