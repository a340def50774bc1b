"""Converters for ONNX's arithmetic, normalization and training that TVM lacks or misreads."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np
from chameleon_tvm.api import INT8, UINT8, tirx, tvm

from chameleon_networks._graph.constants import array_of, constant_of
from chameleon_networks._graph.relax_utils import integer_power, log1p, map_elements, relax
from chameleon_networks._importers.onnx import nodes
from chameleon_networks._importers.onnx.nodes import Node, NodeError, dtype_of, scalar, shape_of

op = relax.op
_Step = Callable[..., list[Any]]

KERNEL_DTYPES = frozenset(
    (
        *("bool", "float32", "float64", INT8, "int16", "int32", "int64"),
        *(UINT8, "uint16", "uint32", "uint64"),
    )
)
"""Dtypes that kernels compute in."""


def _is_integer(value: Any) -> bool:
    return np.dtype(dtype_of(value)).kind in "iu"


def _power(node: Node) -> Any:
    """``Pow``, whose result has the dtype of the base; the exponent may have another dtype."""
    base, exponent = node[0], node[1]
    dtype = computed_dtype = dtype_of(base)
    if _is_integer(base):
        known = isinstance(exponent, tvm.ir.GenericConst)
        powers = array_of(exponent).reshape(-1).tolist() if known else []
        if len(powers) == 1 and powers[0] in range(_MAX_FACTORS):
            factors = [base] * int(powers[0]) or [op.ones_like(base)]
            product = reduce(lambda product, factor: node.emit(product * factor), factors)
            extents = [*np.broadcast_shapes(shape_of(base), shape_of(exponent))]
            return product if extents == shape_of(base) else op.broadcast_to(product, extents)
        if _is_integer(exponent):
            return integer_power(node.builder, base, op.astype(exponent, dtype))
        computed_dtype = "float64"
        base = op.astype(base, computed_dtype)
    if isinstance(exponent, tvm.ir.GenericConst):
        exponent = relax.const(array_of(exponent).astype(computed_dtype), computed_dtype)
    elif dtype_of(exponent) != computed_dtype:
        exponent = op.astype(exponent, computed_dtype)
    power = op.power(base, exponent)
    return power if dtype == computed_dtype else op.astype(power, dtype)


_MAX_FACTORS = 64
"""Powers of integers with so many factors are zero, one or too large for 64 bits."""


def _modulo(node: Node) -> Any:
    """``Mod``: the result has the sign of the dividend if ``fmod`` is set, else of the divisor."""
    x, y = node[0], node[1]
    if _is_integer(x):
        return (op.mod if node.attributes.get("fmod") else op.floor_mod)(x, y)
    rest = node.emit(op.mod(x, y))
    if node.attributes.get("fmod"):
        return rest
    zero = scalar(0, x)
    negative = node.emit(y < zero)
    sign_differs = op.not_equal(rest < zero, negative)
    signed_zero = op.where(negative, scalar(-0.0, x), zero)
    return op.where(op.equal(rest, zero), signed_zero, op.where(sign_differs, rest + y, rest))


def _shift(node: Node) -> Any:
    """``BitShift``; a count that is negative or too large shifts out all bits but the sign."""
    x, y = node[0], node[1]
    right = node.attributes["direction"] == "RIGHT"
    shifted = (op.right_shift if right else op.left_shift)(x, y)
    bits = 8 * np.dtype(dtype_of(x)).itemsize
    inside = y < scalar(bits, y)
    overflow_result = scalar(0, x)
    if np.dtype(dtype_of(x)).kind == "i":
        inside = op.logical_and(inside, y >= scalar(0, y))
        if right:
            overflow_result = op.right_shift(x, scalar(bits - 1, x))
    return op.where(inside, shifted, overflow_result)


def _is_infinite(node: Node) -> Any:
    x, names = node[0], {"detect_positive": math.inf, "detect_negative": -math.inf}
    detected = [
        scalar(infinity, x) for name, infinity in names.items() if node.attributes.get(name)
    ]
    if not detected:
        return relax.const(np.zeros(shape_of(x), np.bool_))
    return reduce(op.logical_or, (op.equal(x, infinity) for infinity in detected))


def _reduce_extremum(node: Node) -> Any:
    """``ReduceMax`` and ``ReduceMin`` along axes, also of bool and of no numbers."""
    x, largest = node[0], node.op_type == "ReduceMax"
    shape, dtype = shape_of(x), np.dtype(dtype_of(x))
    if not node.axes and node.attributes.get("noop_with_empty_axes"):
        return x
    axes = [nodes.normalize_axis(axis, len(shape)) for axis in node.axes or range(len(shape))]
    keep = bool(node.attributes.get("keepdims", 1))
    if 0 not in shape:
        return (op.max if largest else op.min)(x, axes, keep)
    # The extremum of no numbers is the identity element.
    ends = {"b": (False, True), "f": (-math.inf, math.inf)}.get(dtype.kind)
    least, most = ends or (np.iinfo(dtype).min, np.iinfo(dtype).max)
    extreme, initial = (np.max, least) if largest else (np.min, most)
    return constant_of(extreme(np.empty(shape, dtype), tuple(axes), keepdims=keep, initial=initial))


def _log_sum_exp(node: Node, x: Any, axes: list[int] | None, keep: bool) -> Any:
    """``log(sum(exp(x)))``, whose largest number is taken out of the sum if it is finite."""
    most = node.emit(op.max(x, axes, True))
    is_infinite = op.equal(op.abs(most), scalar(math.inf, x))
    rest = op.log(op.sum(op.exp(x - most), axes, True))
    result = op.where(is_infinite, most, rest + most)
    return result if keep else op.squeeze(result, axes)


_REDUCTIONS: Mapping[str, Callable[..., Any]] = {
    "ReduceL1": lambda x, *options: op.sum(op.abs(x), *options),
    "ReduceL2": lambda x, *options: op.sqrt(op.sum(op.square(x), *options)),
    "ReduceLogSum": lambda x, *options: op.log(op.sum(x, *options)),
    "ReduceMean": op.mean,
    "ReduceSumSquare": lambda x, *options: op.sum(op.square(x), *options),
}
"""Reductions that TVM's importer misreads in some forms."""
_INTEGER_REDUCTIONS = frozenset({"ReduceL1", "ReduceSumSquare"})
"""Reductions that compute integers from integers."""
_IDENTITY_REDUCTIONS = frozenset({"ReduceLogSumExp", "ReduceMean"})
"""Reductions that do not change a single number."""


def _reduction(node: Node) -> Any:
    """A reduction of integers in float64, rounded towards zero, or of each number alone."""
    x, axes, keep = node[0], node.axes, bool(node.attributes.get("keepdims", 1))
    elementwise = not axes and bool(node.attributes.get("noop_with_empty_axes"))
    by_fractions = _is_integer(x) and node.op_type not in _INTEGER_REDUCTIONS
    sums_powers = node.op_type == "ReduceLogSumExp"
    if node.op_type in _IDENTITY_REDUCTIONS if elementwise else not (by_fractions or sums_powers):
        return NotImplemented
    wide = node.emit(op.astype(x, "float64")) if by_fractions else x
    if elementwise:
        # Without axes, each number is reduced over an axis of extent 1.
        axes, keep = [len(shape_of(x))], False
        wide = node.emit(op.expand_dims(wide, axes))
    if sums_powers:
        reduced = node.emit(_log_sum_exp(node, wide, axes or None, keep))
    else:
        reduced = node.emit(_REDUCTIONS[node.op_type](wide, axes or None, keep))
    return op.astype(reduced, dtype_of(x)) if by_fractions else reduced


def _gemm(node: Node) -> Any:
    """``Gemm``; refuses fractional factors of integers, which TVM's importer would round."""
    factors = (float(node.attributes[name]) for name in ("alpha", "beta"))
    if _is_integer(node[0]) and not all(factor.is_integer() for factor in factors):
        raise NodeError("it multiplies whole numbers by a fraction")
    return NotImplemented


def _variadic_extremum(node: Node) -> Any:
    """``Max`` and ``Min`` of several operands, which TVM's importer would first concatenate."""
    combine = op.maximum if node.op_type == "Max" else op.minimum
    return reduce(combine, node.inputs)


def _cumulative(node: Node) -> Any:
    """``CumProd``, and ``CumSum`` if it has the axis, which TVM's importer does not check."""
    x = node[0]
    axis = nodes.normalize_axis(node.integers(1)[0], len(shape_of(x)))
    if node.op_type == "CumSum":
        return NotImplemented
    reverse = bool(node.attributes.get("reverse"))
    if reverse:
        x = node.emit(op.flip(x, axis))
    exclusive = bool(node.attributes.get("exclusive"))
    product = op.cumprod(x, axis, dtype_of(x), exclusive)
    return op.flip(product, axis) if reverse else product


def _determinant(node: Node) -> Any:
    """``Det`` by Gaussian elimination, with the largest number of each column as its pivot."""
    x = node[0]
    *batch, size, _ = shape_of(x)
    rows = node.emit(op.reshape(x, [math.prod(batch), size, size]))
    product: Any = constant_of(np.ones([math.prod(batch)], dtype_of(x)))
    for step in range(size):
        rows, product = _eliminate(node, rows, product, size - step)
    return op.reshape(product, batch)


def _eliminate(node: Node, rows: Any, product: Any, size: int) -> tuple[Any, Any]:
    """A step of elimination: the matrix without its first row and column; the product so far."""
    emit, count = node.emit, shape_of(rows)[0]
    column = emit(op.strided_slice(rows, [2], [0], [1]))
    sizes = op.reshape(op.abs(column), [count, size])
    positions = relax.const(np.arange(size)[None], "int64")
    pivot = emit(op.equal(positions, op.expand_dims(op.argmax(sizes, 1), 1)))
    chosen = op.expand_dims(op.astype(pivot, dtype_of(rows)), 2)
    row = emit(op.sum(chosen * rows, [1], True))
    head = emit(op.strided_slice(row, [2], [0], [1]))
    first = op.strided_slice(pivot, [1], [0], [1])
    sign = op.where(first, scalar(1, rows), scalar(-1, rows))
    product = emit(product * op.reshape(sign, [count]) * op.reshape(head, [count]))
    if size == 1:
        return rows, product
    # The first row and the pivot's row are exchanged.
    top = op.strided_slice(rows, [1], [0], [1])
    swapped = op.where(op.expand_dims(pivot, 2), top, rows)
    below = emit(op.strided_slice(swapped, [1, 2], [1, 0], [size, size]))
    divisor = op.where(op.equal(head, scalar(0, rows)), scalar(1, rows), head)
    rest = below - op.strided_slice(below, [2], [0], [1]) / divisor * row
    return emit(op.strided_slice(rest, [2], [1], [size])), product


def _bit_cast(node: Node) -> Any:
    """``BitCast``: the bits of numbers, read as another dtype."""
    dtype = nodes.dtype_name(node.attributes["to"])
    x = node[0]
    if (
        any(node.emulated_dtypes)
        or dtype not in KERNEL_DTYPES - {"bool"}
        or dtype_of(x) not in KERNEL_DTYPES
    ):
        raise NodeError(f"it reads {node.emulated_dtypes[0] or dtype_of(x)} as {dtype}")
    if dtype_of(x) == "bool" or dtype_of(x) == dtype:
        return op.astype(x, dtype)
    return map_elements(node.builder, lambda number: tirx.reinterpret(dtype, number), x, "bits")


def _prelu(node: Node) -> Any:
    """``PRelu``; before version 7 of the standard, a vector of slopes had one for each channel."""
    x, slope = node[0], node[1]
    rank = len(shape_of(x))
    per_channel = node.opset < 7 and len(shape_of(slope)) == 1  # noqa: PLR2004 - version 7 changed it
    if per_channel and shape_of(slope) != [1]:
        slope = op.reshape(slope, [1, -1, *[1] * (rank - 2)])
    return op.where(x < scalar(0, x), x * slope, x)


def _sign(node: Node) -> Any:
    """``Sign``: NaN for NaN. TVM's importer would compare unsigned integers with -1."""
    x = node[0]
    kind = np.dtype(dtype_of(x)).kind
    if kind == "u":
        return op.minimum(x, scalar(1, x))
    return op.where(op.isnan(x), x, op.sign(x)) if kind == "f" else NotImplemented


def _clip(node: Node) -> Any:
    """``Clip`` with bounds as attributes; without them, infinity becomes the largest number."""
    if node.opset < 6 or node.opset > 10:  # noqa: PLR2004 - versions with such attributes
        return NotImplemented
    return op.clip(node[0], _float_attribute(node, "min"), _float_attribute(node, "max"))


def _thresholded_relu(node: Node) -> Any:
    """``ThresholdedRelu``; TVM's importer multiplies infinities by zero."""
    x, alpha = node[0], scalar(float(node.attributes["alpha"]), node[0])
    return op.where(x > alpha, x, scalar(0, x))


def _elu(node: Node) -> Any:
    """``Elu``, ``Selu`` and ``Celu``; TVM's importer subtracts 1, which loses a small x."""
    x, alpha = node[0], float(node.attributes["alpha"])
    below = op.minimum(x, scalar(0, x)) / scalar(alpha if node.op_type == "Celu" else 1, x)
    less_one = op.tanh(below * scalar(0.5, x)) * (op.exp(below) + scalar(1, x))
    result = op.where(x < scalar(0, x), scalar(alpha, x) * less_one, x)
    return result * scalar(float(node.attributes["gamma"]), x) if node.op_type == "Selu" else result


def _softplus(node: Node) -> Any:
    """``Softplus`` and ``Mish``; TVM's importer adds 1 to a power, which loses a small one."""
    x, is_mish = node[0], node.op_type == "Mish"
    size = x if is_mish else op.negative(op.abs(x))
    rest = log1p(node.emit, node.emit(op.exp(size)), signed=False)
    return x * op.tanh(rest) if is_mish else op.maximum(x, scalar(0, x)) + rest


def _root_mean_square_norm(node: Node) -> Any:
    """``RMSNormalization``; leaves forms that TVM misreads to the standard's function."""
    x = node[0]
    axis = nodes.normalize_axis(int(node.attributes["axis"]), len(shape_of(x)))
    if axis == 0 or dtype_of(x) == "float64" or shape_of(node[1]) != shape_of(x)[axis:]:
        raise NodeError("the compiler normalises other numbers")
    return NotImplemented


def _layer_norm(node: Node) -> Any:
    """``LayerNormalization`` in the forms that TVM misreads.

    The standard's function computes the variance as E[x²] - E[x]², which a large mean makes wrong.
    """
    x, scale, bias = node[0], node[1], node[2]
    axis = nodes.normalize_axis(int(node.attributes["axis"]), len(shape_of(x)))
    if node.outputs == 1 and dtype_of(x) != "float64" and shape_of(scale) == shape_of(x)[axis:]:
        return NotImplemented
    axes, epsilon = list(range(axis, len(shape_of(x)))), float(node.attributes["epsilon"])
    y, *statistics = _normalized(node, x, scale, axes, epsilon)
    stored = "float32" if node.attributes["stash_type"] == 1 else dtype_of(x)
    statistics = [op.astype(each, stored) for each in statistics]
    return [y if bias is None else y + bias, *statistics][: node.outputs]


def _normalized(  # noqa: PLR0917 - the numbers of a normalization
    node: Node, x: Any, scale: Any, axes: list[int], epsilon: float, centre: bool = True
) -> tuple[Any, Any, Any]:
    """Scaled numbers of variance 1, and the mean and the factor that were taken from them."""
    wide = x if dtype_of(x) == "float64" else node.emit(op.astype(x, "float32"))
    mean = node.emit(op.mean(wide, axes, True))
    centred = node.emit(wide - mean) if centre else wide
    variance = node.emit(op.mean(centred * centred, axes, True))
    inverse = node.emit(scalar(1, variance) / op.sqrt(variance + scalar(epsilon, variance)))
    return op.astype(node.emit(centred * inverse), dtype_of(x)) * scale, mean, inverse


def _norm_of_sum(node: Node) -> list[Any]:
    """ONNX Runtime's ``SkipLayerNormalization`` of a sum, which is the last output."""
    is_simplified = node.op_type == "SkipSimplifiedLayerNormalization"
    bias, added = (None, node[3]) if is_simplified else (node[3], node[4])
    total = node.emit(node[0] + node[1])
    if added is not None:
        total = node.emit(total + added)
    axes, epsilon = [len(shape_of(total)) - 1], float(node.attributes.get("epsilon", 1e-12))
    y, *statistics = _normalized(node, total, node[2], axes, epsilon, not is_simplified)
    return [y if bias is None else y + bias, *statistics, total][: node.outputs]


def _quick_gelu(node: Node) -> Any:
    x = node[0]
    return x * op.sigmoid(scalar(float(node.attributes.get("alpha", 1.702)), x) * x)


def _fused_matmul(node: Node) -> Any:
    """ONNX Runtime's product of matrices, of which each may be transposed."""
    if node.attributes.get("transBatchA") or node.attributes.get("transBatchB"):
        raise NodeError("it exchanges an axis of the batch")
    operands = []
    for x, name in zip(node.inputs, ("transA", "transB"), strict=True):
        *batch, last = range(len(shape_of(x)))
        swapped = node.attributes.get(name) and batch
        operands.append(op.permute_dims(x, [*batch[:-1], last, batch[-1]]) if swapped else x)
    product = node.emit(op.matmul(*operands))
    return scalar(float(node.attributes.get("alpha", 1)), product) * product


def _rotary_embedding(node: Node) -> Any:
    """ONNX Runtime's ``RotaryEmbedding``; that of the standard is a function."""
    options = node.attributes
    if node.opset >= 23:  # noqa: PLR2004 - the version that brought the standard's
        raise NodeError("the standard has a function for it")
    if options.get("is_packed_batching") or options.get("scale", 1) != 1:
        raise NodeError("it packs sequences, or scales them")
    x, positions, cosines, sines = node.inputs
    shape, by_heads = shape_of(x), len(shape_of(x)) > 3  # noqa: PLR2004 - else heads are joined
    turned = int(options.get("rotary_embedding_dim", 0)) or 2 * shape_of(cosines)[1]
    if by_heads:
        x = node.emit(op.permute_dims(x, [0, 2, 1, 3]))
    batch, rows = shape_of(x)[:2]
    heads = int(options.get("num_heads", 0)) or shape[-1] // turned
    width = shape[-1] if by_heads else shape[-1] // heads
    x = node.emit(op.reshape(x, [batch, rows, -1, width]))
    if len(shape_of(positions)) == 1:  # of the first row
        positions = op.reshape(positions, [1, 1]) + constant_of(np.arange(rows)[None])
    cosine, sine = (
        node.emit(op.expand_dims(op.take(table, node.emit(positions), 0), 2))
        for table in (cosines, sines)
    )
    # Pairs are neighbours, or lie half of the numbers apart.
    step, half = (2, 1) if options.get("interleaved") else (1, turned // 2)
    first, second = (
        node.emit(op.strided_slice(x, [3], [start], [start + (turned // 2 - 1) * step + 1], [step]))
        for start in (0, half)
    )
    parts = [first * cosine - second * sine, first * sine + second * cosine]
    parts = [node.emit(op.expand_dims(part, 4)) for part in parts]
    joined = node.emit(op.concat(parts, 4))
    if step == 1:
        joined = node.emit(op.permute_dims(joined, [0, 1, 2, 4, 3]))
    joined = node.emit(op.reshape(joined, [batch, rows, -1, turned]))
    if turned < width:
        rest = node.emit(op.strided_slice(x, [3], [turned], [width]))
        joined = node.emit(op.concat([joined, rest], 3))
    if by_heads:
        joined = node.emit(op.permute_dims(joined, [0, 2, 1, 3]))
    return op.reshape(joined, shape)


def _batch_norm(node: Node) -> Any:
    """``BatchNormalization`` in training mode: normalizes by the batch, updates running means."""
    if not node.attributes.get("training_mode"):
        return NotImplemented
    x, scale, bias, *running = node.inputs
    shape = shape_of(x)
    axes = [axis for axis in range(len(shape)) if axis != 1]
    column = [1, -1, *[1] * (len(shape) - 2)]
    mean = node.emit(op.mean(x, axes))
    centred = node.emit(x - op.reshape(mean, column))
    variance = node.emit(op.mean(centred * centred, axes))
    epsilon = scalar(float(node.attributes["epsilon"]), variance)
    factor = node.emit(scale / op.sqrt(variance + epsilon))
    momentum = float(node.attributes["momentum"])
    new_running = [
        old * scalar(momentum, old) + new * scalar(1 - momentum, new)
        for old, new in zip(running, (mean, variance), strict=True)
    ]
    return [centred * op.reshape(factor, column) + op.reshape(bias, column), *new_running]


def _lp_normalization(node: Node) -> Any:
    """``LpNormalization``; a vector whose norm is zero stays as it is."""
    x, axis = node[0], int(node.attributes["axis"])
    if int(node.attributes["p"]) == 1:
        norm = op.sum(op.abs(x), [axis], True)
    else:
        norm = op.sqrt(op.sum(x * x, [axis], True))
    norm = node.emit(norm)
    return x / op.where(op.equal(norm, scalar(0, norm)), scalar(1, norm), norm)


def _mean_variance_normalization(node: Node) -> Any:
    """``MeanVarianceNormalization``; the standard's variance, a difference, may be negative."""
    x, axes = node[0], list(node.attributes["axes"])
    centred = node.emit(x - op.mean(x, axes, True))
    return centred / (op.sqrt(op.mean(centred * centred, axes, True)) + scalar(1e-9, x))


def _lrn(node: Node) -> Any:
    """``LRN`` over nearby channels; TVM's importer supports only odd windows and float32 images."""
    x, size = node[0], int(node.attributes["size"])
    shape = shape_of(x)
    if dtype_of(x) == "float32" and size % 2 and len(shape) in _LRN_RANKS:
        return NotImplemented
    before = (size - 1) // 2
    widths = [0, 0, before, size - 1 - before, *[0] * (2 * len(shape) - 4)]
    padded = node.emit(op.nn.pad(x * x, widths))
    parts = [op.strided_slice(padded, [1], [n], [n + shape[1]]) for n in range(size)]
    total = reduce(op.add, parts)
    alpha, beta, bias = (float(node.attributes[name]) for name in ("alpha", "beta", "bias"))
    return x / op.power(total * scalar(alpha / size, x) + scalar(bias, x), scalar(beta, x))


_LRN_RANKS = (3, 4)
"""Axes of a tensor, batch and channels included."""

ARITHMETIC: Mapping[str, Callable[[Node], Any]] = {
    "Pow": _power,
    "Mod": _modulo,
    "BitShift": _shift,
    "BitCast": _bit_cast,
    "IsInf": _is_infinite,
    **dict.fromkeys((*_REDUCTIONS, "ReduceLogSumExp"), _reduction),
    "ReduceMax": _reduce_extremum,
    "ReduceMin": _reduce_extremum,
    "Gemm": _gemm,
    "Max": _variadic_extremum,
    "Min": _variadic_extremum,
    **dict.fromkeys(("CumProd", "CumSum"), _cumulative),
    "Det": _determinant,
    "PRelu": _prelu,
    "Sign": _sign,
    **dict.fromkeys(("Elu", "Selu", "Celu"), _elu),
    **dict.fromkeys(("Softplus", "Mish"), _softplus),
    "ThresholdedRelu": _thresholded_relu,
    "LayerNormalization": _layer_norm,
    "Clip": _clip,
    "FusedMatMul": _fused_matmul,
    "QuickGelu": _quick_gelu,
    "RMSNormalization": _root_mean_square_norm,
    "RotaryEmbedding": _rotary_embedding,
    **dict.fromkeys(("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"), _norm_of_sum),
    "BatchNormalization": _batch_norm,
    "LpNormalization": _lp_normalization,
    "LRN": _lrn,
    "MeanVarianceNormalization": _mean_variance_normalization,
}
"""Converters by operator. If one returns ``NotImplemented``, TVM converts the node."""


def _float_attribute(node: Node, name: str) -> float:
    return float(node.attributes[name])


def _moving_average(node: Node, old_weight: float, state: Any, change: Any) -> Any:
    """A moving average. The weight of the old value is ``old_weight``."""
    return node.emit(scalar(old_weight, state) * state + scalar(1 - old_weight, state) * change)


def _for_all_tensors(step: _Step, states: int) -> Callable[[Node], list[Any]]:
    """A converter that applies an optimizer's step to tensors, gradients and states."""

    def convert(node: Node) -> list[Any]:
        rate, iteration, *tensors = node.inputs
        iteration = node.emit(op.astype(iteration, "float32"))
        count, results = len(tensors) // (2 + states), []
        for index in range(count):
            tensor, gradient, *old = tensors[index::count]
            weight = scalar(_float_attribute(node, "norm_coefficient"), tensor)
            gradient = node.emit(weight * tensor + gradient)
            results.append(step(node, rate, iteration, tensor, gradient, *old))
        return [part for parts in zip(*results, strict=True) for part in parts]

    return convert


def _adagrad(  # noqa: PLR0917 - the operator's inputs
    node: Node, rate: Any, iteration: Any, tensor: Any, gradient: Any, squares: Any
) -> list[Any]:
    decay = scalar(_float_attribute(node, "decay_factor"), iteration) * iteration
    squares = node.emit(squares + gradient * gradient)
    root = scalar(_float_attribute(node, "epsilon"), tensor) + op.sqrt(squares)
    return [tensor - rate / (scalar(1.0, iteration) + decay) * gradient / root, squares]


def _adam(  # noqa: PLR0917 - the operator's inputs
    node: Node, rate: Any, iteration: Any, tensor: Any, gradient: Any, mean: Any, squares: Any
) -> list[Any]:
    alpha, beta = _float_attribute(node, "alpha"), _float_attribute(node, "beta")
    mean = _moving_average(node, alpha, mean, gradient)
    squares = _moving_average(node, beta, squares, gradient * gradient)
    root = scalar(_float_attribute(node, "epsilon"), tensor) + op.sqrt(squares)
    first, second = (
        scalar(1.0, iteration) - op.power(scalar(old_weight, iteration), iteration)
        for old_weight in (alpha, beta)
    )
    rate = op.where(iteration > scalar(0.0, iteration), rate * op.sqrt(second) / first, rate)
    decay = scalar(1.0 - _float_attribute(node, "norm_coefficient_post"), tensor)
    return [decay * (tensor - rate * mean / root), mean, squares]


def _momentum(  # noqa: PLR0917 - the operator's inputs
    node: Node, rate: Any, iteration: Any, tensor: Any, gradient: Any, speed: Any
) -> list[Any]:
    alpha, beta = (
        scalar(_float_attribute(node, "alpha"), speed),
        scalar(_float_attribute(node, "beta"), iteration),
    )
    old_weight = op.where(iteration > scalar(0.0, iteration), beta, scalar(1.0, iteration))
    change = speed = node.emit(alpha * speed + old_weight * gradient)
    if node.attributes["mode"] == "nesterov":
        change = gradient + alpha * speed
    return [tensor - rate * change, speed]


TRAINING: Mapping[str, Callable[[Node], Any]] = {
    "Adagrad": _for_all_tensors(_adagrad, 1),
    "Adam": _for_all_tensors(_adam, 2),
    "Momentum": _for_all_tensors(_momentum, 1),
}
"""Converters of operators with which optimizers update tensors by gradients, by operator."""
