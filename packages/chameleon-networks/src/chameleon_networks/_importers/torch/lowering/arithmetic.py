"""Converters of torch's arithmetic and reductions that TVM's importer lacks or misreads."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import torch
from chameleon_tvm.api import INT8, tirx

from chameleon_networks._graph.relax_utils import integer_power, log1p, map_elements, relax
from chameleon_networks._importers.torch.lowering.torch_calls import Converter, TorchCall, extents

op = relax.op


def _add_scaled(operator: Any, call: TorchCall) -> Any:
    """``x + alpha * y``; the importer leaves ``alpha`` out."""
    left, right = call.operands(2)
    return operator(left, _scale(right, call, "alpha"))


def _scale(value: Any, call: TorchCall, name: str) -> Any:
    """A value times a factor that a call may give by name."""
    factor = call.node.kwargs.get(name, 1)
    return value if factor == 1 else value * relax.const(factor, call.dtype)


def _promote(operator: Any, call: TorchCall) -> Any:
    """An operator on two operands that are converted to the result's dtype first."""
    return operator(*call.operands(2))


def _compare(operator: Any, call: TorchCall) -> Any:
    """A comparison in the dtype to which torch promotes both operands."""
    values = (
        value.meta["val"] if isinstance(value, torch.fx.Node) else value
        for value in call.node.args[:2]
    )
    common = str(torch.result_type(*values)).removeprefix("torch.")
    return operator(*call.operands(2, common))


def _shift(operator: Any, call: TorchCall) -> Any:
    """``<<`` and ``>>``; a count that is negative or too large shifts out all bits but the sign."""
    x, y = (call.emit(value) for value in call.operands(2))
    kind = np.dtype(call.dtype)
    most = 8 * kind.itemsize - 1
    inside = op.logical_and(y >= relax.const(0, call.dtype), y <= relax.const(most, call.dtype))
    right = operator is op.right_shift
    sign = op.right_shift(x, relax.const(most, call.dtype)) if kind.kind == "i" and right else None
    outside = relax.const(0, call.dtype) if sign is None else call.emit(sign)
    shifted = call.emit(operator(x, op.clip(y, 0, most)))
    return op.where(call.emit(inside), shifted, outside)


def _power(call: TorchCall) -> Any:
    """``pow`` of two operands in the result's dtype."""
    operands = call.operands(2)
    if "int" in call.dtype:
        return integer_power(call.importer.block_builder, *operands)
    return op.power(*operands)


_ROOTS = {0.5: op.sqrt, -0.5: op.rsqrt}
"""Powers that torch computes as square roots, also of negative zero and infinity."""


def _pow_tensor_scalar(call: TorchCall) -> Any:
    """``pow`` with a number as exponent, whose result is floating-point for some integers."""
    root = _ROOTS.get(call.argument(1, "exponent"))
    if root is not None and call.dtype in {"float32", "float64"}:
        return root(*call.operands(1))
    same = str(call.value(0).ty.dtype) == call.dtype
    return call.importer._pow(call.node) if same else _power(call)  # noqa: SLF001 - no public method


def _exp2(call: TorchCall) -> Any:
    """``exp2``, which Relax lacks."""
    [x] = call.operands(1)
    return map_elements(call.importer.block_builder, tirx.exp2, x, "exp2")


def _log1p(call: TorchCall) -> Any:
    """``log1p``; TVM's importer adds 1 first, and so loses a small number."""
    [x] = call.operands(1)
    return log1p(call.emit, x, signed=call.node.args[0].target is not torch.ops.aten.exp.default)


def _library_function(name: str, call: TorchCall) -> Any:
    """A function of the C library, in float32 at least."""
    wide = call.dtype if call.dtype == "float64" else "float32"
    [x] = call.operands(1, wide)
    symbol = name if wide == "float64" else f"{name}f"
    value = partial(tirx.call_pure_extern, wide, symbol)
    return op.astype(map_elements(call.importer.block_builder, value, x, name), call.dtype)


def _bessel(name: str, call: TorchCall) -> Any:
    """A Bessel function of the first or second kind, which is NaN at infinity as in torch."""
    [x] = call.operands(1)
    value = call.emit(_library_function(name, call))
    return op.where(call.emit(op.isinf(x)), relax.const(math.nan, call.dtype), value)


def _div(call: TorchCall) -> Any:
    """``div``, whose quotient is a float, with ``rounding_mode`` ``floor``, ``trunc`` or None."""
    mode = call.node.kwargs.get("rounding_mode")
    if mode == "floor":
        return _promote(op.floor_divide, call)
    quotient = _promote(op.divide, call)
    return quotient if "int" in call.dtype or mode is None else op.trunc(quotient)


def _matmul(call: TorchCall) -> Any:
    """A matrix product in the result's dtype; TVM's importer always computes float32."""
    return _promote(partial(op.matmul, out_dtype=call.dtype), call)


def _addmm(call: TorchCall) -> Any:
    """``beta * a + alpha * (x @ y)``."""
    added, left, right = call.operands(3)
    result = _scale(op.matmul(left, right, out_dtype=call.dtype), call, "alpha")
    return result if call.node.kwargs.get("beta") == 0 else _scale(added, call, "beta") + result


def _clamp(call: TorchCall) -> Any:
    """``clamp``; TVM's importer uses infinite bounds, which integers do not have."""
    [x] = call.operands(1)
    low, high = call.argument(1, "min"), call.argument(2, "max")
    if "int" not in call.dtype and all(
        value is None or isinstance(value, int | float) for value in (low, high)
    ):
        least, most = -math.inf if low is None else low, math.inf if high is None else high
        if least <= most:  # TVM would exchange bounds that are not in order
            return op.clip(x, float(least), float(most))
    for bound, operator in ((low, op.maximum), (high, op.minimum)):
        if bound is not None:
            x = call.emit(operator(x, call.tensor(bound, call.dtype)))
    return x


def _amax_amin(operator: Any, call: TorchCall) -> Any:
    """``amax`` and ``amin``, along all axes if no axes are given."""
    return operator(
        call.value(0), call.argument(1, "dim") or None, bool(call.argument(2, "keepdim"))
    )


def _any(call: TorchCall) -> Any:
    """``any`` of a tensor of any dtype; the result is bool, or uint8 for uint8."""
    axes, keep = call.argument(1, "dim"), bool(call.argument(2, "keepdim"))
    bits = op.astype(call.tensor(call.node.args[0], "bool"), INT8)
    return op.astype(op.max(bits, None if axes == [] else axes, keep), call.dtype)


def _max_dim(operator: Any, position: Any, call: TorchCall) -> Any:
    """``max.dim`` and ``min.dim``: the extreme number, and its index."""
    axis, keep = call.argument(1, "dim"), bool(call.argument(2, "keepdim"))
    return call.emit(
        relax.Tuple([value(call.value(0), axis, keep) for value in (operator, position)])
    )


def _prod(operator: Any, call: TorchCall) -> Any:
    """``prod`` in the result's dtype, along one axis or along all."""
    return operator(*call.operands(1), call.argument(1, "dim"), bool(call.argument(2, "keepdim")))


def _where(call: TorchCall) -> Any:
    """``where`` with two operands that are converted to the result's dtype."""
    condition = call.tensor(call.node.args[0], "bool")
    chosen = (call.tensor(operand, call.dtype) for operand in call.node.args[1:3])
    return op.where(condition, *chosen)


def _cat(call: TorchCall) -> Any:
    """``cat``, whose parts are converted to the result's dtype."""
    parts = [call.tensor(part, call.dtype) for part in call.node.args[0]]
    return op.concat(parts, call.argument(1, "dim", 0))


def _cumulative(operator: Any, call: TorchCall) -> Any:
    """``cumsum`` and ``cumprod`` in the result's dtype, which is int64 for integers."""
    return operator(*call.operands(1), call.argument(1, "dim"), call.dtype)


def _variance(call: TorchCall) -> Any:
    """``var`` in a wider dtype, as in torch; TVM's rounds each square and scales the mean."""
    shape = extents(call.value(0))
    wide = "float64" if call.dtype in {"float32", "float64"} else "float32"
    [x] = call.operands(1, wide)
    correction, keep = call.argument(2, "correction"), bool(call.argument(3, "keepdim"))
    axes = call.argument(1, "dim") or [*range(len(shape))]
    count = math.prod(shape[axis] for axis in axes) - (1 if correction is None else correction)
    distance = call.emit(x - call.emit(op.mean(x, axes, True)))
    total = call.emit(op.sum(call.emit(distance * distance), axes, keep))
    result = call.emit(total / relax.const(float(max(count, 0)), wide))
    return op.astype(result, call.dtype)


def _group_norm(call: TorchCall) -> Any:
    """``native_group_norm``, also without scale and shift."""
    x = call.value(0)
    channels, groups, epsilon = (call.node.args[position] for position in (4, 6, 7))
    gamma, beta = (
        relax.const([neutral] * int(channels), str(x.ty.dtype))
        if value is None
        else call.tensor(value)
        for value, neutral in zip(call.node.args[1:3], (1.0, 0.0), strict=True)
    )
    axes = list(range(2, len(extents(x))))
    affine = any(value is not None for value in call.node.args[1:3])
    result = op.nn.group_norm(x, gamma, beta, int(groups), 1, axes, float(epsilon), affine, affine)
    return call.emit(relax.Tuple([result]))


_COMPARISONS = {
    "eq": op.equal,
    "ne": op.not_equal,
    "lt": op.less,
    "le": op.less_equal,
    "gt": op.greater,
    "ge": op.greater_equal,
}

_SHARED_CONVERTERS: tuple[tuple[Converter, tuple[str, ...]], ...] = (
    (partial(_add_scaled, op.add), ("add.Tensor", "add.Scalar")),
    (partial(_add_scaled, op.subtract), ("sub.Tensor", "sub.Scalar")),
    (partial(_promote, op.multiply), ("mul.Tensor", "mul.Scalar")),
    (_power, ("pow.Scalar", "pow.Tensor_Tensor")),
    (_div, ("div.Tensor", "div.Scalar", "div.Tensor_mode", "div.Scalar_mode")),
    *(
        (
            partial(_shift, shift),
            (
                *(f"__{side[0]}shift__.{kind}" for kind in ("Scalar", "Tensor")),
                *(
                    f"bitwise_{side}_shift.{kind}"
                    for kind in ("Tensor", "Tensor_Scalar", "Scalar_Tensor")
                ),
            ),
        )
        for side, shift in (("left", op.left_shift), ("right", op.right_shift))
    ),
    (_matmul, ("matmul.default", "mm.default", "bmm.default")),
    (_addmm, ("addmm.default", "baddbmm.default")),
    *(
        (partial(_compare, operator), (f"{name}.Tensor", f"{name}.Scalar"))
        for name, operator in _COMPARISONS.items()
    ),
    (_clamp, ("clamp.default", "clamp.Tensor", "clamp_min.default")),
)

CONVERTERS: dict[str, Converter] = {
    **{name: convert for convert, names in _SHARED_CONVERTERS for name in names},
    "pow.Tensor_Scalar": _pow_tensor_scalar,
    "exp2.default": _exp2,
    "log1p.default": _log1p,
    "erfc.default": partial(_library_function, "erfc"),
    "lgamma.default": partial(_library_function, "lgamma"),
    **{
        f"special_bessel_{name}.default": partial(_bessel, name)
        for name in ("j0", "j1", "y0", "y1")
    },
    "floor_divide.default": partial(_promote, op.floor_divide),
    "clamp_max.default": partial(_promote, op.minimum),
    "amax.default": partial(_amax_amin, op.max),
    **dict.fromkeys(("any.default", "any.dim", "any.dims"), _any),
    "amin.default": partial(_amax_amin, op.min),
    "max.dim": partial(_max_dim, op.max, op.argmax),
    "min.dim": partial(_max_dim, op.min, op.argmin),
    "where.self": _where,
    "cat.default": _cat,
    **dict.fromkeys(("prod.default", "prod.dim_int"), partial(_prod, op.prod)),
    "cumsum.default": partial(_cumulative, op.cumsum),
    "cumprod.default": partial(_cumulative, op.cumprod),
    "native_group_norm.default": _group_norm,
    "var.correction": _variance,
}
"""Converters by the name of the operator."""
