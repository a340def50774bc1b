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
from chameleon_tvm._device.cpus.features import cpu_features
from chameleon_tvm._device.targets import target_info
from chameleon_tvm._emit import Expr
from chameleon_tvm._instructions.base import Dot
from chameleon_tvm._instructions.multiply_add import IntegerMultiplyAdd, MultiplyAdd
from chameleon_tvm._instructions.selection import (
    SHIFTS,
    dots_of,
    integer_dots_of,
    narrow_weights_pay,
    tile_products_of,
)
from chameleon_tvm._instructions.tiles import TileProduct
from chameleon_tvm._late_tvm import tirx
from chameleon_tvm._operators.attention_specs import AttentionSpec
from chameleon_tvm._operators.epilogues import Quantization
from chameleon_tvm._operators.matmul_specs import BatchMatmulSpec
from chameleon_tvm._operators.spec import FusedSpec
from chameleon_tvm._spaces.template.epilogues import pack_bias
from chameleon_tvm._spaces.template.estimates import FLOAT_BYTES
from chameleon_tvm._types import COMPUTE, FLOATING_IN, HALVES, LARGEST_PRODUCT, STORAGE, StorageType

_VECTORS = ("avx512f", "avx2", "avx", "sse2", "neon")
"""Features of vector instructions that templates use, widest first."""
EXACT_FLOAT = 2**24
"""Sums of integers up to this magnitude are exact in float32."""


@attrs.frozen(kw_only=True)
class Arithmetic:
    """The instruction ``dot`` of a template's inner loop, and the storage type of its input."""

    dot: Dot = attrs.field(factory=MultiplyAdd)
    data: StorageType = STORAGE["float32"]

    @property
    def input_dtype(self) -> str:
        """Dtype of the input elements that the instruction reads."""
        return self.dot.data

    @property
    def weight_dtype(self) -> str:
        """Dtype in which weights are stored."""
        return self.dot.weights

    @property
    def quantized(self) -> bool:
        """Whether the data are integers with a zero point."""
        return self.data.whole

    @property
    def reads_storage_dtype(self) -> bool:
        """Whether the instruction reads the input in its storage dtype, without a conversion."""
        return self.data.storage_dtype == self.input_dtype

    @property
    def data_bytes(self) -> int:
        """Bytes of an input element in the inner loop."""
        return np.dtype(self.input_dtype).itemsize

    @property
    def weight_bytes(self) -> int:
        """Bytes of a stored weight."""
        return np.dtype(self.weight_dtype).itemsize

    def weights(self, logical: NDArray[Any]) -> NDArray[Any]:
        """Round logical weights to their dtype, before they are packed.

        Raises:
            ChameleonError: An integer weight is too large for the instruction to multiply exactly.
        """
        if self.quantized:
            self.dot.check_weights(logical)
            return logical
        return self.data.rounded(logical)

    def store_weights(self, packed: NDArray[Any]) -> NDArray[Any]:
        """Convert packed weights to their storage dtype."""
        kind = FLOATING_IN.get(self.weight_dtype)
        return packed.astype(self.weight_dtype, copy=False) if kind is None else kind.stored(packed)

    @property
    def _subtracts_zero_point(self) -> bool:
        return self.quantized and self.input_dtype not in SHIFTS

    def convert(self, value: Expr, zero_point: Expr | None, lanes: int = 1) -> Expr:
        """Convert input elements to the dtype of the copy; some instructions need them centred."""
        if not self.quantized:
            return value if self.reads_storage_dtype else emit.widening(self.data, value)
        if self._subtracts_zero_point:
            zero = emit.splat(emit.cast(self.input_dtype, zero_point), lanes)
            return emit.cast(self.input_dtype, value) - zero
        shift = SHIFTS.get(self.input_dtype, 0)
        if shift:
            return tirx.Cast(self.input_dtype, tirx.Cast("int32", value) - shift)
        return value

    def convert_right(self, value: Expr, zero_point: Expr | None) -> Expr:
        """Convert an element of a right-hand matrix that is computed at run time."""
        if not self.quantized:
            same = self.weight_dtype == self.data.storage_dtype
            return value if same else emit.widening(self.data, value)
        if zero_point is None:
            return value
        return emit.cast(self.weight_dtype, value) - emit.cast(self.weight_dtype, zero_point)

    def padding(self, zero_point: Expr | None) -> Expr:
        """The number in the padding of the input's copy, which counts as zero."""
        if self.quantized and not self._subtracts_zero_point:
            shift = SHIFTS[self.input_dtype]
            return tirx.Cast(self.input_dtype, tirx.Cast("int32", zero_point) - shift)
        return tirx.const(0, self.input_dtype)

    def bias(self, bias: NDArray[Any], weights: NDArray[Any], numbers: NDArray[Any]) -> Any:
        """The bias in the dtype of the sums, corrected for a zero point that the copy contains.

        A float32 bias of more than 24 bits is rounded, as the sum that contains it would be.

        Args:
            bias: Bias of int32, shape (O,).
            weights: Weights of int8, shape (O, ...).
            numbers: The fields of the operator's ``Quantization``, shape (5,).
        """
        if self._subtracts_zero_point:
            return bias.astype(self.dot.sums)
        zero = int(Quantization.of(numbers).data_zero_point) - SHIFTS[self.input_dtype]
        sums = weights.reshape(len(weights), -1).sum(axis=1, dtype=np.int64)
        # Partial sums may overflow and wrap around; the final sum fits into 32 bits again.
        return (bias - zero * sums).astype(np.int32)


@attrs.frozen(kw_only=True)
class TileArithmetic(Arithmetic):
    """A tile product and its dtypes; each number is a sum of several numbers of its dtype.

    Attributes:
        parts: Number of numbers of a number of the data.
        weight_parts: The same of a weight.
    """

    product: TileProduct
    parts: int = 1
    weight_parts: int = attrs.field(default=attrs.Factory(lambda own: own.parts, takes_self=True))

    @property
    def input_dtype(self) -> str:
        return self.product.data

    @property
    def weight_dtype(self) -> str:
        return self.product.weights


FLOAT32_ARITHMETIC = Arithmetic()
"""The arithmetic of float32 operators."""


def epilogue_constants(
    weights: NDArray[Any], rest: Arrays, groups: int, channels: int, arithmetic: Arithmetic
) -> Arrays:
    """The constants of an operator except its weights, with padded channels."""
    if not arithmetic.quantized:
        return [pack_bias(arithmetic.data.real(bias), groups, channels) for bias in rest]
    scale, bias, numbers = rest
    corrected = arithmetic.bias(bias, weights, numbers)
    return [*(pack_bias(constant, groups, channels) for constant in (scale, corrected)), numbers]


def arithmetic_of(spec: FusedSpec, target: str, *, skipping: bool = False) -> Arithmetic:
    """The instruction and dtypes of an operator whose sums run over input channels.

    ``skipping`` says that the kernel leaves out products with padding. This rules out instructions
    that read their data with an offset, whose padding is not 0.
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
    return FLOAT32_ARITHMETIC


def product_arithmetic(spec: BatchMatmulSpec, target: str) -> Arithmetic:
    """The instruction and dtypes for products of two matrices, neither of which is constant.

    Both zero points are subtracted before the multiplication, so sums need no correction.
    """
    kind = COMPUTE[spec.dtype]
    if kind.name in HALVES:
        return Arithmetic(dot=half_dots(kind.name, target)[0], data=kind.data)
    if not kind.quantized:
        return FLOAT32_ARITHMETIC
    dot = _integer_dot(target, kind.weights.name, skipping=True)
    return Arithmetic(dot=dot, data=kind.data)


def scores_dot(spec: AttentionSpec, target: str) -> Dot:
    """The instruction for attention's products of queries and keys."""
    kind = COMPUTE[spec.dtype]
    if kind.name not in HALVES:
        return MultiplyAdd()
    dot = half_dots(kind.name, target)[0]
    reads_stored = dot.data == dot.weights == kind.data.storage_dtype
    return dot if reads_stored and spec.query[3] % dot.depth == 0 else MultiplyAdd()


def lanewise_arithmetic(spec: FusedSpec) -> Arithmetic:
    """The instruction and dtypes of an operator in which each vector lane has its own input."""
    kind = COMPUTE[spec.dtype]
    if not kind.quantized:
        return Arithmetic(data=kind.data)
    # Multiply-adds of integers in float32 are exact as long as their sums are small, and a vector
    # of them is one instruction. Few targets multiply 32-bit integers as fast.
    largest = spec.reduced * LARGEST_PRODUCT
    dot: Dot = MultiplyAdd() if largest <= EXACT_FLOAT else IntegerMultiplyAdd()
    return Arithmetic(dot=dot, data=kind.data)


def half_weights_dot(dtype: str, target: str) -> Dot | None:
    """The multiply-add of float32 data and 16-bit weights; None if the target has none."""
    storage = STORAGE[dtype].storage_dtype
    dots = dots_of(target, data="float32", weights=dtype)
    return next((dot for dot in dots if dot.weights == storage), None)


def half_dots(dtype: str, target: str) -> Sequence[Dot]:
    """The dot products of two tensors of a 16-bit dtype with float32 sums, fastest first.

    Instructions with 16-bit sums are left out. From five products on, their rounding errors would
    exceed the tolerance (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1).
    """
    dots = dots_of(target, data=dtype, weights=dtype)
    return [dot for dot in dots if dot.sums == "float32"]


def describe_arithmetic(target: str) -> dict[str, str]:
    """The instructions of templates on a CPU for each compute type, tile products first."""
    features = cpu_features(target)
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
        names_of_floats = {
            MultiplyAdd.name: plain,
            IntegerMultiplyAdd.name: f"{vectors} 32-bit integers",
        }
        names = [f"{tile.name} tiles" for tile in tiles[:1]]
        words[kind.name] = ", ".join([*names, names_of_floats.get(dot.name, dot.name)])
    return words


def _half_dot(spec: FusedSpec, target: str) -> Dot:
    """The fastest dot product, or one with 16-bit weights if reading weights is the bottleneck."""
    dots = half_dots(spec.dtype, target)
    info = target_info(target)
    weight_bytes = spec.output_channels * spec.reduced * FLOAT_BYTES
    uses = math.prod(spec.result_shape) / spec.output_channels
    # The cycles in which a vector of weights arrives from L3 are compared with those of its
    # multiplications.
    arrives = info.vector_bytes / info.l3_bytes_per_cycle
    if weight_bytes > info.l2_bytes and uses / info.fma_per_cycle < arrives:
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
