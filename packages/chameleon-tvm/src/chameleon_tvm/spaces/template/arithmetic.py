"""The products of a register-tiled template, and how data become their operands."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
from chameleon_core.errors import ConfigError
from chameleon_core.stages import Arrays
from numpy.typing import NDArray

from chameleon_tvm.device.targets import target_info
from chameleon_tvm.instructions.base import Dot
from chameleon_tvm.instructions.choosing import SHIFTS, dots_of, integer_dots_of
from chameleon_tvm.instructions.conversions import widening
from chameleon_tvm.instructions.multiply_add import IntegerMultiplyAdd, MultiplyAdd
from chameleon_tvm.instructions.tiles import TileProduct
from chameleon_tvm.operators.quantized import Quantization
from chameleon_tvm.operators.specs import AttentionSpec, BatchMatmulSpec, FusedSpec
from chameleon_tvm.quick_tvm import tirx
from chameleon_tvm.spaces.template import emit
from chameleon_tvm.spaces.template.emit import Expr
from chameleon_tvm.spaces.template.estimates import FLOAT_BYTES
from chameleon_tvm.spaces.template.vector_epilogue import pack_bias
from chameleon_tvm.types import COMPUTE, FLOATING_IN, HALVES, LARGEST_PRODUCT, STORAGE, StorageType

EXACT_FLOAT = 2**24
"""Sums of whole numbers up to here are exact in float32."""


@attrs.frozen(kw_only=True)
class Arithmetic:
    """The types of a template's inner loop.

    Attributes:
        dot: what it multiplies with.
        data: type of the input.
    """

    dot: Dot = attrs.field(factory=MultiplyAdd)
    data: StorageType = STORAGE["float32"]

    @property
    def read(self) -> str:
        """Dtype of the input as the inner loop reads it."""
        return self.dot.data

    @property
    def multiplied(self) -> str:
        """Dtype of the weights as they are stored."""
        return self.dot.weights

    @property
    def quantized(self) -> bool:
        """Whether data have a zero point."""
        return self.data.whole

    @property
    def as_they_are(self) -> bool:
        """Whether the inner loop may read the input where it is."""
        return self.data.storage_dtype == self.read

    @property
    def data_bytes(self) -> int:
        """Bytes of an element that the inner loop reads."""
        return np.dtype(self.read).itemsize

    @property
    def weight_bytes(self) -> int:
        """Bytes of a weight."""
        return np.dtype(self.multiplied).itemsize

    def weights(self, logical: NDArray[Any]) -> NDArray[Any]:
        """Weights as numbers of their tensor's type, before they are packed.

        Raises:
            ChameleonError: the instruction does not multiply such weights exactly.
        """
        if self.quantized:
            self.dot.check_weights(logical)
            return logical
        return self.data.rounded(logical)

    def stored(self, packed: NDArray[Any]) -> NDArray[Any]:
        """Packed weights in the type that they are stored in."""
        kind = FLOATING_IN.get(self.multiplied)
        return packed.astype(self.multiplied, copy=False) if kind is None else kind.stored(packed)

    @property
    def _centred(self) -> bool:
        return self.quantized and self.read not in SHIFTS

    def converted(self, value: Expr, zero_point: Expr | None, lanes: int = 1) -> Expr:
        """Elements of the input as they are multiplied, and as a copy holds them.

        Args:
            value: one element, or a vector of ``lanes``.
            zero_point: of the data, in float32; None if they have none.
            lanes: of the vector.
        """
        if not self.quantized:
            return value if self.as_they_are else widening(self.data, value, lanes)
        if self._centred:
            zero = emit.splat(emit.cast(self.read, zero_point), lanes)
            return emit.cast(self.read, value) - zero
        shift = SHIFTS.get(self.read, 0)
        if shift:
            return tirx.Cast(self.read, tirx.Cast("int32", value) - shift)
        return value

    def varying(self, value: Expr, zero_point: Expr | None) -> Expr:
        """An element of a right side that is no constant, as it is multiplied.

        Args:
            value: of the input's type.
            zero_point: of the right side, in float32; None if it has none.
        """
        if not self.quantized:
            same = self.multiplied == self.data.storage_dtype
            return value if same else widening(self.data, value)
        if zero_point is None:
            return value
        return emit.cast(self.multiplied, value) - emit.cast(self.multiplied, zero_point)

    def blank(self, zero_point: Expr | None) -> Expr:
        """The value of the copy in the padding: zero, or what stands for it.

        Args:
            zero_point: of the data, in float32; None if they have none.
        """
        if self.quantized and not self._centred:
            shift = SHIFTS[self.read]
            return tirx.Cast(self.read, tirx.Cast("int32", zero_point) - shift)
        return tirx.const(0, self.read)

    def bias(self, bias: NDArray[Any], weights: NDArray[Any], numbers: NDArray[Any]) -> Any:
        """A bias of the sums' type, which makes up for a zero point that the copy still has.

        In float32 one that takes more than 24 bits is rounded, as its sum would be.

        Args:
            bias: of int32, shape (O,).
            weights: of int8, shape (O, ...).
            numbers: those of ``Quantization``.
        """
        if self._centred:
            return bias.astype(self.dot.sums)
        zero = int(Quantization.of(numbers).data_zero_point) - SHIFTS[self.read]
        sums = weights.reshape(len(weights), -1).sum(axis=1, dtype=np.int64)
        # Sums wrap around and come back: what is added up in the end fits into 32 bits.
        return (bias - zero * sums).astype(np.int32)


@attrs.frozen(kw_only=True)
class TileArithmetic(Arithmetic):
    """That of a template that multiplies tiles, and vectors nowhere.

    Attributes:
        product: what it multiplies with.
    """

    product: TileProduct

    @property
    def read(self) -> str:
        return self.product.data

    @property
    def multiplied(self) -> str:
        return self.product.weights


FLOAT32 = Arithmetic()
"""That of operators of float32."""


def finishing_constants(
    weights: NDArray[Any], rest: Arrays, groups: int, channels: int, arithmetic: Arithmetic
) -> Arrays:
    """An operator's constants beside its weights, each group's channels padded.

    Args:
        weights: (O, ...), before they are packed.
        rest: a bias if there is one; of an int8 operator its scale, bias and quantization.
        groups: groups.
        channels: of a group, padded.
        arithmetic: what it is computed with.
    """
    if not arithmetic.quantized:
        return [pack_bias(arithmetic.data.real(bias), groups, channels) for bias in rest]
    scale, bias, numbers = rest
    made_up = arithmetic.bias(bias, weights, numbers)
    return [*(pack_bias(constant, groups, channels) for constant in (scale, made_up)), numbers]


def arithmetic_of(spec: FusedSpec, target: str, *, skipping: bool = False) -> Arithmetic:
    """The arithmetic of an operator whose sums run over channels.

    Args:
        spec: the operator.
        target: the canonical target.
        skipping: whether products in the padding are left out even of a copied input, so that
            zero has to be zero.
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
    """The arithmetic of products neither side of which is constant.

    Both zero points of quantized sides are subtracted before numbers are multiplied, so that sums
    are those of the operator whatever the zero points.

    Args:
        spec: the operator.
        target: the canonical target.
    """
    kind = COMPUTE[spec.dtype]
    if kind.name in HALVES:
        return Arithmetic(dot=half_dots(kind.name, target)[0], data=kind.data)
    if not kind.quantized:
        return FLOAT32
    dot = _integer_dot(target, kind.weights.name, skipping=True)
    return Arithmetic(dot=dot, data=kind.data)


def scores_dot(spec: AttentionSpec, target: str) -> Dot:
    """The arithmetic of attention's products of queries and keys.

    Args:
        spec: the operator.
        target: the canonical target.
    """
    kind = COMPUTE[spec.dtype]
    if kind.name not in HALVES:
        return MultiplyAdd()
    dot = half_dots(kind.name, target)[0]
    as_held = dot.data == dot.weights == kind.data.storage_dtype
    return dot if as_held and spec.query[3] % dot.depth == 0 else MultiplyAdd()


def lanewise(spec: FusedSpec) -> Arithmetic:
    """The arithmetic of an operator each of whose lanes has an input of its own.

    Args:
        spec: the operator.
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
    """A multiply-add of float32 by weights that are stored in a type; None if there is none.

    Args:
        dtype: ``bfloat16`` or ``float16``.
        target: the canonical target.
    """
    storage = STORAGE[dtype].storage_dtype
    dots = dots_of(target, data="float32", weights=dtype)
    return next((dot for dot in dots if dot.weights == storage), None)


def half_dots(dtype: str, target: str) -> Sequence[Dot]:
    """The dot products of two tensors of a type of two bytes, fastest first.

    Those whose sums are such numbers themselves are left out. Each of
    their roundings may be off by half of a last place (Higham, Accuracy and Stability of Numerical
    Algorithms, section 3.1).
    From five products on, that is more than the accepted error of an operator's output, and sums
    may be infinite if the output is not.

    Args:
        dtype: the type.
        target: the canonical target.
    """
    dots = dots_of(target, data=dtype, weights=dtype)
    return [dot for dot in dots if dot.sums == "float32"]


def _half_dot(spec: FusedSpec, target: str) -> Dot:
    """The fastest, or one that widens weights as it goes if those are waited for."""
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
    """The fastest for bytes; signed ones are data that are shifted while they are copied."""
    dots = list(integer_dots_of(target, weights))
    if skipping:
        dots = [dot for dot in dots if dot.data not in SHIFTS]
    if not dots:
        return IntegerMultiplyAdd()
    return min(dots, key=lambda dot: dot.cost / dot.depth)
