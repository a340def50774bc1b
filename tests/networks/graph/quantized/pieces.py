"""Pieces of quantized networks, NCHW, and what networks mean, computed by NumPy.

The scales are powers of two and the numbers small, so that sums of float32 are exact, and all that
compute the network by its meaning agree in every bit.
"""

from typing import Any

import attrs
import numpy as np
from chameleon_networks._graph.constants import array_of
from chameleon_networks._graph.relax_utils import axes_of, relax, shape_of, tvm
from chameleon_tvm._operators.convolution import from_layout, to_layout
from numpy.typing import NDArray

op = relax.op
Array = NDArray[Any]


@attrs.frozen(kw_only=True)
class Affine:
    """A scale and a zero point of a whole tensor."""

    scale: float
    zero_point: int
    dtype: str = "uint8"

    def pair(self, emit, x):
        """A tensor quantized, and dequantized."""
        scale, zero = relax.const(self.scale, "float32"), relax.const(self.zero_point, self.dtype)
        axis = min(1, len(shape_of(x)) - 1)
        numbers = emit(op.quantize(x, scale, zero, axis=axis, out_dtype=self.dtype))
        return emit(op.dequantize(numbers, scale, zero, axis=axis))


def dequantized(emit, numbers, scale, zero, axis):
    """A constant as a network of a framework has it."""
    constants = (relax.const(array) for array in (numbers, scale, zero))
    return emit(op.dequantize(*constants, axis=axis))


def weights_of(emit, rng, shape, axis, exponent=-6, *, largest=127):
    """Weights with a scale for each output channel, and the scales."""
    scale = (2.0 ** rng.integers(exponent - 1, exponent + 1, shape[axis])).astype(np.float32)
    least = -128 if largest == 127 else -largest
    numbers = rng.integers(least, largest, shape, endpoint=True).astype(np.int8)
    return dequantized(emit, numbers, scale, np.zeros(shape[axis], np.int8), axis), scale


def bias_of(emit, rng, scale, data, rank):
    """A bias in units of the sums, in the shape that is added to an NCHW tensor."""
    numbers = rng.integers(-3000, 3000, scale.shape).astype(np.int32)
    bias = dequantized(emit, numbers, scale * np.float32(data), np.zeros(len(scale), np.int32), 0)
    return emit(op.reshape(bias, [1, len(scale), *[1] * (rank - 2)]))


def convolution(emit, x, filters, size, data, *, rng, groups=1, bias=True, largest=127, **more):
    """A convolution of any rank with quantized weights."""
    channels, rank = shape_of(x)[1], len(shape_of(x))
    shape = (filters, channels // groups, *[size] * (rank - 2))
    weights, scale = weights_of(emit, rng, shape, 0, largest=largest)
    result = emit(getattr(op.nn, f"conv{rank - 2}d")(x, weights, groups=groups, **more))
    return emit(op.add(result, bias_of(emit, rng, scale, data, rank))) if bias else result


def dense(emit, x, units, data, *, rng, largest=127):
    """A matrix product with quantized weights, and a bias."""
    weights, scale = weights_of(emit, rng, (shape_of(x)[-1], units), 1, largest=largest)
    sums = emit(op.matmul(x, weights))
    numbers = rng.integers(-3000, 3000, (units,)).astype(np.int32)
    units_of_sums, zeros = scale * np.float32(data), np.zeros(units, np.int32)
    return emit(op.add(sums, dequantized(emit, numbers, units_of_sums, zeros, 0)))


def evaluated(module, *inputs):
    """What a module's ``main`` means, in float64 but for what is quantized: an array or several."""
    function = module["main"]
    known = dict(zip(function.params, inputs, strict=True))

    def value(part):
        if isinstance(part, tvm.ir.GenericConst):
            return array_of(part)
        if isinstance(part, relax.Tuple):
            return [value(field) for field in part.fields]
        return known[part] if isinstance(part, relax.Var) else part

    for block in function.body.blocks:
        for binding in block.bindings:
            call = binding.value
            if isinstance(call, relax.Call):
                name = str(call.op.name).removeprefix("relax.")
                known[binding.var] = MEANINGS[name](call, *map(value, call.args))
            else:
                known[binding.var] = value(call)
    return known[function.body.body]


def _along(call, x, numbers):
    shape = [1] * x.ndim
    if numbers.size > 1:
        shape[int(call.attrs.axis)] = -1
    return numbers.reshape(shape).astype(np.float64)


def _quantize(call, x, scale, zero):
    limits = np.iinfo(str(call.ty.dtype))
    numbers = np.rint(x / _along(call, x, scale)) + _along(call, x, zero)
    return np.clip(numbers, limits.min, limits.max)


def _dequantize(call, x, scale, zero):
    return (x - _along(call, x, zero)) * _along(call, x, scale)


def _windows(call, x, size, dilation, fill):
    """All windows of an NC... tensor: (N, C, places, taps)."""
    rank = x.ndim - 2
    pads = [int(number) for number in call.attrs.padding]
    widths = [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)]
    x = np.pad(x.astype(np.float64), widths, constant_values=fill)
    reach = [(int(k) - 1) * int(d) + 1 for k, d in zip(size, dilation, strict=True)]
    seen = np.lib.stride_tricks.sliding_window_view(x, reach, tuple(range(2, x.ndim)))
    steps = tuple(slice(None, None, int(number)) for number in call.attrs.strides)
    taps = tuple(slice(None, None, int(number)) for number in dilation)
    return seen[(slice(None), slice(None), *steps, *taps)]


def _convolution(call, x, weights):
    layout = str(call.attrs.data_layout)
    x, weights = (from_layout(array, layout) for array in (x, weights))
    groups, rank = int(call.attrs.groups), x.ndim - 2
    seen = _windows(call, x, weights.shape[2:], call.attrs.dilation, 0.0)
    n, c, *rest = seen.shape
    seen = seen.reshape(n, groups, c // groups, *rest)
    filters = weights.reshape(groups, -1, *weights.shape[1:])
    letters = "xyz"[:rank]
    sums = np.einsum(f"ngc{letters}...,gfc...->ngf{letters}...", seen, filters)
    if rank:
        sums = sums.sum(axis=tuple(range(sums.ndim - rank, sums.ndim)))
    return to_layout(sums.reshape(n, -1, *sums.shape[3:]), layout)


def _largest(call, x):
    seen = _windows(call, x, call.attrs.pool_size, call.attrs.dilation, -np.inf)
    return seen.max(axis=tuple(range(x.ndim, seen.ndim)))


def _sliced(call, x, *places):
    axes, begins, ends = ([int(field.value) for field in part.fields] for part in call.args[1:4])
    parts = [slice(None)] * x.ndim
    for axis, begin, end in zip(axes, begins, ends, strict=True):
        parts[axis] = slice(begin, end)
    return x[tuple(parts)]


MEANINGS = {
    "quantize": _quantize,
    "dequantize": _dequantize,
    **{f"nn.conv{rank}d": _convolution for rank in (1, 2, 3)},
    **{f"nn.max_pool{rank}d": _largest for rank in (1, 2, 3)},
    "matmul": lambda _, a, b: a.astype(np.float64) @ b.astype(np.float64),
    "add": lambda _, a, b: a.astype(np.float64) + b,
    "nn.relu": lambda _, x: np.maximum(x, 0.0),
    "clip": lambda call, x, *_: np.clip(x, *(float(part.value) for part in call.args[1:])),
    "nn.leakyrelu": lambda call, x: np.where(x < 0, float(call.attrs.alpha) * x, x),
    "sigmoid": lambda _, x: 1.0 / (1.0 + np.exp(-x)),
    "mean": lambda call, x: x.mean(
        axis=tuple(int(number) for number in call.attrs.axis), keepdims=bool(call.attrs.keepdims)
    ),
    "reshape": lambda call, x, *_: x.reshape([int(number) for number in call.ty.shape]),
    "permute_dims": lambda call, x: x.transpose(axes_of(call)),
    "strided_slice": _sliced,
    "concat": lambda call, xs: np.concatenate(xs, axis=int(call.attrs.axis)),
}
"""What a call computes, given it and its arguments."""
