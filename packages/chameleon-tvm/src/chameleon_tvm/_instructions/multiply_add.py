"""Multiply-add instructions: of floats, of weights stored in 16 bits, and of 32-bit integers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from chameleon_tvm._emit import widening
from chameleon_tvm._instructions.base import BFLOAT16_BITS, Array, Dot, Expr, IntegerDot
from chameleon_tvm._instructions.emission import intrinsic
from chameleon_tvm._types import FLOATING_IN


class MultiplyAdd(Dot):
    """A multiply-add of float32, rounded once if the CPU has a fused multiply-add."""

    name: ClassVar[str] = "multiply-add"
    mnemonics: ClassVar[tuple[str, ...]] = (
        *("vfmadd132ps", "vfmadd213ps", "vfmadd231ps", "fmla"),
        *("vmulps", "mulps"),
    )
    data: ClassVar[str] = "float32"
    weights: ClassVar[str] = "float32"
    sums: ClassVar[str] = "float32"
    depth: ClassVar[int] = 1
    vectors: ClassVar[Mapping[int, frozenset[str]]] = {
        16: frozenset(),
        32: frozenset({"avx"}),
        64: frozenset({"avx512f"}),
    }

    def meaning(self, sums: Array, data: Array, weights: Array) -> Array:
        out, weights = sums.copy(), FLOATING_IN[self.weights].real(weights)
        for lane in range(len(sums)):
            out[lane] = np.float64(sums[lane]) + np.float64(data[0]) * np.float64(weights[lane, 0])
        return out

    def emit(self, sums: Expr, data: Expr, weights: Expr, lanes: int) -> Expr:
        del lanes  # the operands are vectors already
        return sums + data * widening(FLOATING_IN[self.weights], weights)


class Bfloat16Weights(MultiplyAdd):
    """A float32 multiply-add with bfloat16 weights, which a shift widens to float32."""

    name: ClassVar[str] = "multiply-add-bfloat16-weights"
    mnemonics: ClassVar[tuple[str, ...]] = (
        *("vpmovzxwd", "vpslld", "pmovzxwd", "punpcklwd"),
        *("shll", "ushll"),
    )
    weights: ClassVar[str] = BFLOAT16_BITS
    cost: ClassVar[float] = 2.0
    temporaries: ClassVar[int] = 1


class Float16Weights(MultiplyAdd):
    """A float32 multiply-add with float16 weights, which the CPU converts to float32."""

    name: ClassVar[str] = "multiply-add-float16-weights"
    mnemonics: ClassVar[tuple[str, ...]] = ("vcvtph2ps",)
    weights: ClassVar[str] = "float16"
    cost: ClassVar[float] = 2.0
    temporaries: ClassVar[int] = 1


class Float16MultiplyAdd(MultiplyAdd):
    """A multiply-add with data, weights and sums in float16."""

    name: ClassVar[str] = "vfmadd231ph"
    mnemonics: ClassVar[tuple[str, ...]] = ("vfmadd132ph", "vfmadd213ph", "vfmadd231ph")
    data: ClassVar[str] = "float16"
    weights: ClassVar[str] = "float16"
    sums: ClassVar[str] = "float16"
    vectors: ClassVar[Mapping[int, frozenset[str]]] = {32: frozenset({"avx512vl"}), 64: frozenset()}

    def emit(self, sums: Expr, data: Expr, weights: Expr, lanes: int) -> Expr:
        return intrinsic(f"float16x{lanes}", "llvm.fma", data, weights, sums)


class IntegerMultiplyAdd(IntegerDot):
    """A multiply-add of 32-bit integers modulo 2**32, for CPUs without a better product."""

    name: ClassVar[str] = "integer-multiply-add"
    summary: ClassVar[str] = "32-bit integers, on every CPU"
    mnemonics: ClassVar[tuple[str, ...]] = ("vpmulld", "pmulld", "pmuludq", "mla")
    data: ClassVar[str] = "int32"
    weights: ClassVar[str] = "int32"
    depth: ClassVar[int] = 1
    vectors: ClassVar[Mapping[int, frozenset[str]]] = {
        16: frozenset(),
        32: frozenset(),
        64: frozenset(),
    }
    cost: ClassVar[float] = 2.0

    def emit(self, sums: Expr, data: Expr, weights: Expr, lanes: int) -> Expr:
        del lanes  # the operands are vectors already
        return sums + data * weights
