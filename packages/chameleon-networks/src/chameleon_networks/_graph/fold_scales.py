"""Folds scales and shifts of channels into weights, like TVM's ``FoldScaleAxis``.

Examples are a normalization after a convolution with bias, and a layer scale after a matrix
product.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from chameleon_networks._graph.constants import array_of, exact_dtype, per_channel
from chameleon_networks._graph.matching_products import convolution_of
from chameleon_networks._graph.relax_utils import (
    emit_like,
    mutate,
    operator_name,
    relax,
    shape_of,
    tvm,
    users_of,
    values_of,
    with_args,
)

_STEPS = frozenset(f"relax.{name}" for name in ("add", "subtract", "multiply", "divide"))
_BATCH_NORM = "relax.nn.batch_norm"
_HALF = 0.5
"""The mantissa of a power of two, as NumPy's ``frexp`` returns it."""
_CANCELLED = 2.0**-12
"""A sum of shifts that is this much smaller than they are is the trace of a deliberate rounding."""


@attrs.frozen(kw_only=True, eq=False)
class AffineChain:
    """A chain of operators that scale and shift channels by constants, to fold into weights.

    Attributes:
        base: The variable that the sequence begins with.
        axis: The axis of the channels, at least 0. None if all channels have the same scale and
            shift.
        scale: The factor of each channel, or one factor for all, in float64.
        shift: The number that is added to each channel after scaling, or one number for all
            channels.
        steps: Number of operators in the sequence.
    """

    base: Any
    axis: int | None
    scale: NDArray[np.float64]
    shift: NDArray[np.float64]
    steps: int


def scale_batch_norms(module: Any) -> Any:
    """Replace batch normalizations by a scale of the distance from the mean, and a shift."""
    return mutate(module, _BatchNormScaler(module))


@relax.expr_functor.mutator
class _BatchNormScaler(relax.PyExprMutator):
    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        if operator_name(call) != _BATCH_NORM:
            return call
        emit, op, known, kind = self.builder_.emit, relax.op, call.attrs, str(call.args[0].ty.dtype)
        exact = "float32" if "16" in kind else kind
        x, gamma, beta, mean, variance = (
            value if exact == kind else emit(op.astype(value, exact)) for value in call.args
        )
        wanted = [1] * len(shape_of(x))
        wanted[int(known.axis)] = shape_of(gamma)[0]
        deviation = emit(op.sqrt(emit(variance + relax.const(float(known.epsilon), exact))))
        scale = emit((gamma if known.scale else relax.const(1.0, exact)) / deviation)
        # Beside a small variance, the product of the mean and the scale would lose small distances.
        distance = emit(x + emit(op.reshape(emit(op.negative(mean)), wanted)))
        result = emit(distance * emit(op.reshape(scale, wanted)))
        if known.center:
            result = emit(result + emit(op.reshape(beta, wanted)))
        result = result if exact == kind else emit(op.astype(result, kind))
        return relax.Tuple([result, *call.args[3:]])


def fold_scales(module: Any) -> Any:
    """Fold scales and shifts of channels into the weights before them."""
    function = module["main"]
    chains = _find_chains(function)
    if not chains:
        return module
    return mutate(module, _AffineFolder(module, chains))


def _find_chains(function: Any) -> dict[Any, AffineChain]:
    """The longest chains of scales and shifts, by the variable at their end."""
    users = users_of(function)
    values = values_of(function)
    chains: dict[Any, AffineChain] = {}
    for variable, value in values.items():
        chain = _single_operator_chain(value, values)
        if chain is None:
            continue
        before = chains.get(chain.base)
        if (
            before is not None
            and len(users[chain.base]) == 1
            and not _shifts_uniformly(chain)
            and (None in {before.axis, chain.axis} or before.axis == chain.axis)
            and not _cancels(chain.scale * before.shift, chain.shift)
        ):
            del chains[chain.base]
            chain = AffineChain(
                base=before.base,
                axis=before.axis if chain.axis is None else chain.axis,
                scale=chain.scale * before.scale,
                shift=chain.scale * before.shift + chain.shift,
                steps=before.steps + 1,
            )
        chains[variable] = chain
    return {
        last: chain
        for last, chain in chains.items()
        if _channel_axis(values.get(chain.base)) is not None
        and len(users[chain.base]) == 1
        and _changes_more_than_bias(chain)
        and _keeps_exact_weights(values[chain.base], chain)
    }


def _cancels(first: NDArray[np.float64], second: NDArray[np.float64]) -> bool:
    """Whether two shifts cancel in all channels, as those by which networks round numbers."""
    largest = np.maximum(np.abs(first), np.abs(second))
    return bool((largest > 0).all() and (np.abs(first + second) <= _CANCELLED * largest).all())


def _shifts_uniformly(chain: AffineChain) -> bool:
    """Whether one number is added to all channels, as at the beginning of a hard sigmoid."""
    same = chain.shift.size == 1 and bool(chain.shift.any())
    return same and bool((chain.scale == 1.0).all())


def _changes_more_than_bias(chain: AffineChain) -> bool:
    """Whether a chain does more than add a single bias."""
    return chain.steps > 1 or bool((chain.scale != 1.0).any())


def _keeps_exact_weights(product: Any, chain: AffineChain) -> bool:
    """Whether scaled weights of a matrix product fit the 16-bit dtype that holds them exactly.

    Kernels with such weights are faster than kernels with other weights by more than a scale takes.
    """
    if operator_name(product) != "relax.matmul":
        return True
    powers = (np.frexp(chain.scale)[0] == _HALF).all()  # they only change exponents
    return bool(powers) or not exact_dtype(array_of(product.args[1]))


def _single_operator_chain(value: Any, values: dict[Any, Any]) -> AffineChain | None:
    """A call that scales or shifts channels by a constant, as a chain of one, or None."""
    operands = _operands(value)
    if operands is None:
        return None
    base, constant, turned = operands
    name = str(value.op.name)
    shape = shape_of(base)
    if shape_of(value) != shape or (turned and name == "relax.divide"):
        return None
    axis = _channel_axis(values.get(base))
    if axis is None:
        axis = _varying_axis(constant, len(shape))
    channels = None
    if constant.size == 1:
        channels = constant.reshape(1)
    elif axis is not None:
        channels = per_channel(constant, rank=len(shape), axis=axis, channels=shape[axis])
    if channels is None:
        return None
    ones, zero = np.ones(1), np.zeros(1)
    scale, shift = {
        "relax.add": (ones, channels),
        "relax.subtract": (-ones, channels) if turned else (ones, -channels),
        "relax.multiply": (channels, zero),
        "relax.divide": (1.0 / np.where(channels == 0.0, np.nan, channels), zero),
    }[name]
    if not np.isfinite(scale).all():
        return None
    return AffineChain(base=base, axis=axis, scale=scale, shift=shift, steps=1)


def _operands(value: Any) -> tuple[Any, NDArray[np.float64], bool] | None:
    """The variable and the constant of an operator, and whether the constant comes first."""
    if operator_name(value) not in _STEPS or str(value.ty.dtype) != "float32":
        return None
    left, right = value.args
    if isinstance(right, tvm.ir.GenericConst) and isinstance(left, relax.Var):
        return left, array_of(right).astype(np.float64), False
    if isinstance(left, tvm.ir.GenericConst) and isinstance(right, relax.Var):
        return right, array_of(left).astype(np.float64), True
    return None


def _channel_axis(value: Any) -> int | None:
    """The channel axis of the output of a convolution or matrix product, or None."""
    conv = convolution_of(value)
    if conv is not None:
        return conv.channel_axis
    if operator_name(value) != "relax.matmul" or not isinstance(value.args[1], tvm.ir.GenericConst):
        return None
    weights = array_of(value.args[1])
    matrix = weights.ndim > 1 and weights.dtype == np.float32
    return len(shape_of(value)) - 1 if matrix else None


def _varying_axis(constant: NDArray[Any], rank: int) -> int | None:
    """The only axis along which a constant has several numbers, or None."""
    padded = (1,) * (rank - constant.ndim) + constant.shape
    axes = [axis for axis, extent in enumerate(padded) if extent > 1]
    return axes[0] if len(axes) == 1 else None


@relax.expr_functor.mutator
class _AffineFolder(relax.PyExprMutator):
    """Rewrites the end of each chain, so that nothing reads the operators before it."""

    def __init__(self, module: Any, chains: dict[Any, AffineChain]) -> None:
        super().__init__(module)
        self._chains = chains
        self._values = values_of(module["main"])

    def visit_var_binding_(self, binding: Any) -> None:
        chain = self._chains.get(binding.var)
        if chain is None:
            super().visit_var_binding_(binding)
            return
        shape = shape_of(binding.var)
        value = self._scaled_weights(self._values[chain.base], chain)
        call = value
        if (chain.shift != 0.0).any():
            call = relax.op.add(value, _constant(chain.shift, shape, chain.axis))
        self.set_var_remap(binding.var, emit_like(self.builder_, call, binding.var))

    def _scaled_weights(self, producer: Any, chain: AffineChain) -> Any:
        """The convolution or matrix product before a chain, with scaled weights."""
        conv = convolution_of(producer)
        if conv is not None:
            scaled = conv.scaled(np.broadcast_to(chain.scale, conv.output_channels)).args[1]
        else:
            scaled = relax.const((array_of(producer.args[1]) * chain.scale).astype(np.float32))
        return self.builder_.emit(with_args(producer, [self.visit_expr(producer.args[0]), scaled]))


def _constant(values: NDArray[np.float64], shape: tuple[int, ...], axis: int | None) -> Any:
    """A constant with one number for each channel, in a shape that broadcasts."""
    wanted = [1] * len(shape)
    if axis is not None:
        wanted[axis] = values.size
    return relax.const(values.reshape(wanted).astype(np.float32))
