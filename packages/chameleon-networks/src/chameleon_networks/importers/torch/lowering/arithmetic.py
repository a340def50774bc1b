"""Arithmetic and reductions of torch that TVM's importer lacks, or reads with another meaning."""

from __future__ import annotations

import math
from typing import Any

from chameleon_networks.graph.relaxed import relax
from chameleon_networks.importers.torch.lowering.values import (
    Converter,
    dtype_of,
    extents,
    given,
    tensor,
)


def _scaled_sum(operator: Any) -> Converter:
    """``x + alpha * y``; the importer leaves ``alpha`` out."""

    def convert(node: Any, importer: Any) -> Any:
        emit, dtype = importer.block_builder.emit, dtype_of(node)
        left, right = (tensor(importer, one, dtype) for one in node.args[:2])
        alpha = node.kwargs.get("alpha", 1)
        if alpha != 1:
            right = emit(relax.op.multiply(right, relax.const(alpha, dtype)))
        return emit(operator(left, right))

    return convert


def _promoted(operator: Any) -> Converter:
    """An operator on two operands of the result's type, as of an integer and a fraction."""

    def convert(node: Any, importer: Any) -> Any:
        dtype = dtype_of(node)
        left, right = (tensor(importer, one, dtype) for one in node.args[:2])
        return importer.block_builder.emit(operator(left, right))

    return convert


def _power(node: Any, importer: Any) -> Any:
    """``pow`` of two numbers that are promoted; TVM has it of floats alone."""
    emit, dtype = importer.block_builder.emit, dtype_of(node)
    computed = "float64" if "int" in dtype else dtype
    base, exponent = (tensor(importer, one, computed) for one in node.args[:2])
    made = emit(relax.op.power(base, exponent))
    return made if computed == dtype else emit(relax.op.astype(emit(relax.op.round(made)), dtype))


def _power_of_tensor(node: Any, importer: Any) -> Any:
    """``pow`` with a number as exponent, which may make floats of integers."""
    same = str(importer.env[node.args[0]].ty.dtype) == dtype_of(node)
    return importer._pow(node) if same else _power(node, importer)  # noqa: SLF001 - no other way in


def _rounded_quotient(node: Any, importer: Any) -> Any:
    """``div``, whose quotient is a float, and with ``rounding_mode``, where C's truncates."""
    emit, dtype = importer.block_builder.emit, dtype_of(node)
    left, right = (tensor(importer, one, dtype) for one in node.args[:2])
    mode = node.kwargs.get("rounding_mode")
    if mode == "floor":
        return emit(relax.op.floor_divide(left, right))
    quotient = emit(relax.op.divide(left, right))
    whole = "int" in dtype or mode is None
    return quotient if whole else emit(relax.op.trunc(quotient))


def _floor_quotient(node: Any, importer: Any) -> Any:
    dtype = dtype_of(node)
    left, right = (tensor(importer, one, dtype) for one in node.args[:2])
    return importer.block_builder.emit(relax.op.floor_divide(left, right))


def _product(node: Any, importer: Any) -> Any:
    """A matrix product in the type of its result; the importer's is float32 always."""
    dtype = dtype_of(node)
    left, right = (tensor(importer, one, dtype) for one in node.args[:2])
    return importer.block_builder.emit(relax.op.matmul(left, right, out_dtype=dtype))


def _product_and_sum(node: Any, importer: Any) -> Any:
    """``beta * a + alpha * (x @ y)``."""
    emit, dtype = importer.block_builder.emit, dtype_of(node)
    added, left, right = (tensor(importer, one, dtype) for one in node.args[:3])
    alpha, beta = node.kwargs.get("alpha", 1), node.kwargs.get("beta", 1)
    made = emit(relax.op.matmul(left, right, out_dtype=dtype))
    if alpha != 1:
        made = emit(relax.op.multiply(made, relax.const(alpha, dtype)))
    if beta == 0:
        return made
    if beta != 1:
        added = emit(relax.op.multiply(added, relax.const(beta, dtype)))
    return emit(relax.op.add(added, made))


def _clamped(node: Any, importer: Any) -> Any:
    """``clamp``; the importer's bounds are infinities, which integers do not have."""
    emit, dtype = importer.block_builder.emit, dtype_of(node)
    x = tensor(importer, node.args[0], dtype)
    low, high = given(node, 1, "min"), given(node, 2, "max")
    if "int" not in dtype and all(
        one is None or isinstance(one, int | float) for one in (low, high)
    ):
        least = -math.inf if low is None else float(low)
        most = math.inf if high is None else float(high)
        return emit(relax.op.clip(x, least, most))
    if low is not None:
        x = emit(relax.op.maximum(x, tensor(importer, low, dtype)))
    if high is not None:
        x = emit(relax.op.minimum(x, tensor(importer, high, dtype)))
    return x


def _clamped_max(node: Any, importer: Any) -> Any:
    dtype = dtype_of(node)
    x, high = (tensor(importer, one, dtype) for one in node.args[:2])
    return importer.block_builder.emit(relax.op.minimum(x, high))


def _extreme(operator: Any) -> Converter:
    """``amax`` and ``amin``; no axes are all axes."""

    def convert(node: Any, importer: Any) -> Any:
        axes = given(node, 1, "dim", None) or None
        keep = bool(given(node, 2, "keepdim", False))
        x = tensor(importer, node.args[0])
        return importer.block_builder.emit(operator(x, axes, keep))

    return convert


def _extreme_and_place(operator: Any, place: Any) -> Converter:
    """``max.dim`` and ``min.dim``: the number, and where it was."""

    def convert(node: Any, importer: Any) -> Any:
        emit = importer.block_builder.emit
        axis, keep = given(node, 1, "dim"), bool(given(node, 2, "keepdim", False))
        x = tensor(importer, node.args[0])
        found = emit(operator(x, axis, keep)), emit(place(x, axis, keep))
        return emit(relax.Tuple(found))

    return convert


def _along(operator: Any) -> Converter:
    """``prod.dim_int``: along one axis."""

    def convert(node: Any, importer: Any) -> Any:
        x = tensor(importer, node.args[0], dtype_of(node))
        axis, keep = given(node, 1, "dim"), bool(given(node, 2, "keepdim", False))
        return importer.block_builder.emit(operator(x, axis, keep))

    return convert


def _cumulative(operator: Any) -> Converter:
    """``cumsum`` and ``cumprod``, in the type of their result: int64 for integers."""

    def convert(node: Any, importer: Any) -> Any:
        dtype = dtype_of(node)
        x = tensor(importer, node.args[0], dtype)
        return importer.block_builder.emit(operator(x, given(node, 1, "dim"), dtype))

    return convert


def _group_norm(node: Any, importer: Any) -> Any:
    """``native_group_norm``, without scale and shift too."""
    x = tensor(importer, node.args[0])
    channels = int(node.args[4])
    dtype = str(x.ty.dtype)
    gamma, beta = (
        relax.const([neutral] * channels, dtype) if one is None else importer.env[one]
        for one, neutral in zip(node.args[1:3], (1.0, 0.0), strict=True)
    )
    axes = list(range(2, len(extents(x))))
    groups, epsilon = int(node.args[6]), float(node.args[7])
    made = relax.op.nn.group_norm(x, gamma, beta, groups, 1, axes, epsilon)
    return importer.block_builder.emit(relax.Tuple([importer.block_builder.emit(made)]))


CONVERTERS: dict[str, Converter] = {
    "add.Tensor": _scaled_sum(relax.op.add),
    "add.Scalar": _scaled_sum(relax.op.add),
    "sub.Tensor": _scaled_sum(relax.op.subtract),
    "sub.Scalar": _scaled_sum(relax.op.subtract),
    "mul.Tensor": _promoted(relax.op.multiply),
    "mul.Scalar": _promoted(relax.op.multiply),
    "pow.Scalar": _power,
    "pow.Tensor_Scalar": _power_of_tensor,
    "pow.Tensor_Tensor": _power,
    "div.Tensor": _rounded_quotient,
    "div.Scalar": _rounded_quotient,
    "div.Tensor_mode": _rounded_quotient,
    "div.Scalar_mode": _rounded_quotient,
    "floor_divide.default": _floor_quotient,
    "__lshift__.Scalar": _promoted(relax.op.left_shift),
    "__rshift__.Scalar": _promoted(relax.op.right_shift),
    "bitwise_left_shift.Tensor": _promoted(relax.op.left_shift),
    "bitwise_right_shift.Tensor": _promoted(relax.op.right_shift),
    "matmul.default": _product,
    "mm.default": _product,
    "bmm.default": _product,
    "addmm.default": _product_and_sum,
    "baddbmm.default": _product_and_sum,
    "clamp.default": _clamped,
    "clamp.Tensor": _clamped,
    "clamp_min.default": _clamped,
    "clamp_max.default": _clamped_max,
    "amax.default": _extreme(relax.op.max),
    "amin.default": _extreme(relax.op.min),
    "max.dim": _extreme_and_place(relax.op.max, relax.op.argmax),
    "min.dim": _extreme_and_place(relax.op.min, relax.op.argmin),
    "prod.dim_int": _along(relax.op.prod),
    "cumsum.default": _cumulative(relax.op.cumsum),
    "cumprod.default": _cumulative(relax.op.cumprod),
    "native_group_norm.default": _group_norm,
}
"""Converters by the name of the operator."""
