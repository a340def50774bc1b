"""The instructions with which templates multiply, and the conversion of data for them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
from chameleon_core.plugin_api import Arrays, ConfigError
from numpy.typing import NDArray

from chameleon_tvm import _emit as emit
from chameleon_tvm._device.cpus.features import features_named
from chameleon_tvm._device.targets import target_info
from chameleon_tvm._emit import Expr
from chameleon_tvm._instructions.base import Dot
from chameleon_tvm._instructions.choosing import (
    SHIFTS,
    dots_of,
    integer_dots_of,
    narrow_weights_pay,
    tile_products_of,
)
from chameleon_tvm._instructions.multiply_add import IntegerMultiplyAdd, MultiplyAdd
from chameleon_tvm._instructions.tiles import TileProduct
from chameleon_tvm._late_tvm import tirx
from chameleon_tvm._operators.epilogues import Quantization
from chameleon_tvm._operators.specs import AttentionSpec, BatchMatmulSpec, FusedSpec
from chameleon_tvm._spaces.template.epilogues import pack_bias
from chameleon_tvm._spaces.template.estimates import FLOAT_BYTES
from chameleon_tvm._types import COMPUTE, FLOATING_IN, HALVES, LARGEST_PRODUCT, STORAGE, StorageType

_VECTORS = ("avx512f", "avx2", "avx", "sse2", "neon")
"""Features of vector instructions that templates use, widest first."""
EXACT_FLOAT = 2**24
"""Sums of integers up to this magnitude are exact in float32."""


@attrs.frozen(kw_only=True)
class Arithmetic:
    """The instruction of a template's inner loop, and the dtype of its input.

    Attributes:
        dot: The instruction that multiplies.
        data: Storage type of the input.
    """

    dot: Dot = attrs.field(factory=MultiplyAdd)
    data: StorageType = STORAGE["float32"]

    @property
    def read(self) -> str:
        """Dtype of the input elements that the inner loop reads."""
        return self.dot.data

    @property
    def multiplied(self) -> str:
        """Dtype of the weights as they are stored."""
        return self.dot.weights

    @property
    def quantized(self) -> bool:
        """Whether the data are integers with a zero point."""
        return self.data.whole

    @property
    def as_they_are(self) -> bool:
        """Whether the inner loop can multiply the input as it is stored, without converting it."""
        return self.data.storage_dtype == self.read

    @property
    def data_bytes(self) -> int:
        """Bytes of an input element that the inner loop reads."""
        return np.dtype(self.read).itemsize

    @property
    def weight_bytes(self) -> int:
        """Bytes of a stored weight."""
        return np.dtype(self.multiplied).itemsize

    def weights(self, logical: NDArray[Any]) -> NDArray[Any]:
        """Convert logical weights to the dtype in which they are stored, before they are packed.

        Raises:
            ChameleonError: An integer weight is too large for the instruction to multiply exactly.
        """
        if self.quantized:
            self.dot.check_weights(logical)
            return logical
        return self.data.rounded(logical)

    def stored(self, packed: NDArray[Any]) -> NDArray[Any]:
        """Convert packed weights to the dtype in which they are stored."""
        kind = FLOATING_IN.get(self.multiplied)
        return packed.astype(self.multiplied, copy=False) if kind is None else kind.stored(packed)

    @property
    def _centred(self) -> bool:
        return self.quantized and self.read not in SHIFTS

    def converted(self, value: Expr, zero_point: Expr | None, lanes: int = 1) -> Expr:
        """Convert elements of the input to the dtype in which a kernel copies and multiplies them.

        Some instructions need the difference from the zero point instead of the element itself.

        Args:
            value: An element, or a vector of ``lanes`` elements.
            zero_point: Zero point of the data, a float32 expression; None if the data have none.
        """
        if not self.quantized:
            return value if self.as_they_are else emit.widening(self.data, value)
        if self._centred:
            zero = emit.splat(emit.cast(self.read, zero_point), lanes)
            return emit.cast(self.read, value) - zero
        shift = SHIFTS.get(self.read, 0)
        if shift:
            return tirx.Cast(self.read, tirx.Cast("int32", value) - shift)
        return value

    def varying(self, value: Expr, zero_point: Expr | None) -> Expr:
        """Convert an element of the right-hand matrix to the dtype that the instruction reads.

        This is for products of two matrices that the network computes. A constant right-hand
        matrix, such as weights, is converted before the kernel runs (``weights``, ``stored``).

        Args:
            zero_point: Zero point of the right-hand matrix in float32; None if the matrix has no
                zero point.
        """
        if not self.quantized:
            same = self.multiplied == self.data.storage_dtype
            return value if same else emit.widening(self.data, value)
        if zero_point is None:
            return value
        return emit.cast(self.multiplied, value) - emit.cast(self.multiplied, zero_point)

    def blank(self, zero_point: Expr | None) -> Expr:
        """The number that the copy of the input has in its padding, so that it counts as zero.

        Args:
            zero_point: Zero point of the data in float32; None if the data have none.
        """
        if self.quantized and not self._centred:
            shift = SHIFTS[self.read]
            return tirx.Cast(self.read, tirx.Cast("int32", zero_point) - shift)
        return tirx.const(0, self.read)

    def bias(self, bias: NDArray[Any], weights: NDArray[Any], numbers: NDArray[Any]) -> Any:
        """The bias in the dtype of the sums, with a correction for the data's zero point.

        If the data are copied as 8-bit integers, the copy still contains the zero point. The bias
        then subtracts the zero point's part of the sums. A copy in a wider dtype needs no
        correction, because the zero point is subtracted while the data are copied.

        If the sums are float32, a bias of more than 24 bits is rounded. This is no additional
        error, because a float32 sum that contains the bias would be rounded too.

        Args:
            bias: Bias of int32, shape (O,).
            weights: Weights of int8, shape (O, ...).
            numbers: The fields of the operator's ``Quantization``, shape (5,).
        """
        if self._centred:
            return bias.astype(self.dot.sums)
        zero = int(Quantization.of(numbers).data_zero_point) - SHIFTS[self.read]
        sums = weights.reshape(len(weights), -1).sum(axis=1, dtype=np.int64)
        # Sums wrap around and come back: what is added up in the end fits into 32 bits.
        return (bias - zero * sums).astype(np.int32)


@attrs.frozen(kw_only=True)
class TileArithmetic(Arithmetic):
    """The instruction of a template that multiplies tiles (small matrices), and its dtypes.

    Attributes:
        product: The instruction that multiplies two tiles.
        parts: Number of parts of which numbers are sums, each in the dtype of the instruction.
    """

    product: TileProduct
    parts: int = 1

    @property
    def read(self) -> str:
        return self.product.data

    @property
    def multiplied(self) -> str:
        return self.product.weights


FLOAT32 = Arithmetic()
"""The arithmetic of float32 operators."""


def finishing_constants(
    weights: NDArray[Any], rest: Arrays, groups: int, channels: int, arithmetic: Arithmetic
) -> Arrays:
    """The constants of an operator except its weights, with padded channels."""
    if not arithmetic.quantized:
        return [pack_bias(arithmetic.data.real(bias), groups, channels) for bias in rest]
    scale, bias, numbers = rest
    made_up = arithmetic.bias(bias, weights, numbers)
    return [*(pack_bias(constant, groups, channels) for constant in (scale, made_up)), numbers]


def arithmetic_of(spec: FusedSpec, target: str, *, skipping: bool = False) -> Arithmetic:
    """The instruction and dtypes of an operator whose sums run over input channels.

    Args:
        skipping: Whether the kernel may leave out products with padding. Such a product must then
            be 0. Instructions that read their data with an offset are ruled out, because their
            padding is not 0.
    """
    kind = COMPUTE[spec.dtype]
    if kind.name in HALVES:
        return Arithmetic(dot=_half_dot(spec, target), data=kind.data)
    if kind.quantized:
        dot = _integer_dot(target, kind.weights.name, skipping=skipping)
        return Arithmetic(dot=dot, data=kind.data)
    if kind.weights != kind.data:
        raise ConfigError(
            f"no template multiplies {kind.data.name} by weights of {kind.weights.name}",
            hint="Use `space: sketch`.",
        )
    return FLOAT32


def product_arithmetic(spec: BatchMatmulSpec, target: str) -> Arithmetic:
    """The instruction and dtypes for products of two matrices, neither of which is constant.

    Both zero points of quantized sides are subtracted before the multiplication, so that the sums
    need no correction.
    """
    kind = COMPUTE[spec.dtype]
    if kind.name in HALVES:
        return Arithmetic(dot=half_dots(kind.name, target)[0], data=kind.data)
    if not kind.quantized:
        return FLOAT32
    dot = _integer_dot(target, kind.weights.name, skipping=True)
    return Arithmetic(dot=dot, data=kind.data)


def scores_dot(spec: AttentionSpec, target: str) -> Dot:
    """The instruction for attention's products of queries and keys."""
    kind = COMPUTE[spec.dtype]
    if kind.name not in HALVES:
        return MultiplyAdd()
    dot = half_dots(kind.name, target)[0]
    as_held = dot.data == dot.weights == kind.data.storage_dtype
    return dot if as_held and spec.query[3] % dot.depth == 0 else MultiplyAdd()


def lanewise(spec: FusedSpec) -> Arithmetic:
    """The instruction and dtypes of an operator in which each vector lane has its own input.

    A depthwise convolution is such an operator.
    """
    kind = COMPUTE[spec.dtype]
    if not kind.quantized:
        return Arithmetic(data=kind.data)
    # Multiply-adds of whole numbers in float32 are exact as long as their sums are small, and a
    # vector of them is one instruction; few targets multiply 32-bit integers as fast.
    largest = spec.reduced * LARGEST_PRODUCT
    dot: Dot = MultiplyAdd() if largest <= EXACT_FLOAT else IntegerMultiplyAdd()
    return Arithmetic(dot=dot, data=kind.data)


def stored_weights(dtype: str, target: str) -> Dot | None:
    """The multiply-add of float32 data with weights stored in 16 bits, or None.

    None means that the target has no such instruction.

    Args:
        dtype: ``bfloat16`` or ``float16``.
    """
    storage = STORAGE[dtype].storage_dtype
    dots = dots_of(target, data="float32", weights=dtype)
    return next((dot for dot in dots if dot.weights == storage), None)


def half_dots(dtype: str, target: str) -> Sequence[Dot]:
    """The dot products of two tensors of a 16-bit dtype with float32 sums, fastest first.

    Instructions with 16-bit sums are left out. Each of their roundings may be off by half a unit in
    the last place (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1). From five
    products on, the error would exceed the tolerance of the operator's output, and sums could
    overflow although the output does not.
    """
    dots = dots_of(target, data=dtype, weights=dtype)
    return [dot for dot in dots if dot.sums == "float32"]


def arithmetic_in_words(target: str) -> dict[str, str]:
    """The instructions that templates multiply with on a CPU, in words for each compute type.

    Tile products come first. Operators that cannot use them use the dot product after them.
    Depthwise convolutions multiply as float32 does.
    """
    features = features_named(target)
    vectors = next((name for name in _VECTORS if name in features), "scalar")
    multiply_add = f"{vectors} {'FMA' if target_info(target).fma else 'multiply and add'}"
    words = {}
    for kind in COMPUTE.values():
        if kind.variant_of and not narrow_weights_pay(target):
            continue
        tiles = tile_products_of(target, data=kind.data.name, weights=kind.weights.name)
        if kind.quantized:
            dot = _integer_dot(target, kind.weights.name, skipping=False)
        else:
            dot = half_dots(kind.name, target)[0]
        plain = f"{multiply_add} of float32" if kind.name in HALVES else multiply_add
        special = {MultiplyAdd.name: plain, IntegerMultiplyAdd.name: f"{vectors} 32-bit integers"}
        names = [f"{tile.name} tiles" for tile in tiles[:1]]
        words[kind.name] = ", ".join([*names, special.get(dot.name, dot.name)])
    return words


def _half_dot(spec: FusedSpec, target: str) -> Dot:
    """The fastest dot product, or one with 16-bit weights if reading weights is the bottleneck."""
    dots = half_dots(spec.dtype, target)
    info = target_info(target)
    stored = spec.output_channels * spec.reduced * FLOAT_BYTES
    uses = math.prod(spec.result_shape) / spec.output_channels
    # A vector of weights takes so many cycles to arrive, and to be multiplied with.
    arrives = info.vector_bytes / info.l3_bytes_per_cycle
    if stored > info.l2_bytes and uses / info.fma_per_cycle < arrives:
        dots = [dot for dot in dots if dot.weights == STORAGE[spec.dtype].storage_dtype] or dots
    return dots[0]


def _integer_dot(target: str, weights: str, *, skipping: bool) -> Dot:
    """The fastest dot product of bytes. For signed bytes, the copy of the data is shifted."""
    dots = list(integer_dots_of(target, weights))
    if skipping:
        dots = [dot for dot in dots if dot.data not in SHIFTS]
    if not dots:
        return IntegerMultiplyAdd()
    return min(dots, key=lambda dot: dot.cost / dot.depth)
