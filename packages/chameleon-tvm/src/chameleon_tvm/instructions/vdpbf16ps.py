"""Pairs of bfloat16, multiplied and added up in float32: AVX512-BF16."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from chameleon_tvm.instructions.base import BFLOAT16_BITS, Array, Dot, Expr
from chameleon_tvm.instructions.emission import function
from chameleon_tvm.types import BFLOAT16, STORAGE

_FUNCTION = """
declare <{lanes} x float> @llvm.x86.avx512bf16.dpbf16ps.{bits}(
  <{lanes} x float>, <{pairs} x bfloat>, <{pairs} x bfloat>)
define <{lanes} x float> @chameleon_vdpbf16ps_{lanes}(
    <{lanes} x float> %sums, <{lanes} x i32> %data, <{pairs} x i16> %weights) {{
  %left = bitcast <{lanes} x i32> %data to <{pairs} x bfloat>
  %right = bitcast <{pairs} x i16> %weights to <{pairs} x bfloat>
  %made = call <{lanes} x float> @llvm.x86.avx512bf16.dpbf16ps.{bits}(
    <{lanes} x float> %sums, <{pairs} x bfloat> %left, <{pairs} x bfloat> %right)
  ret <{lanes} x float> %made
}}
"""


class Vdpbf16ps(Dot):
    """The dot product of two bfloat16 numbers per lane, with a float32 sum.

    The odd product is added before the even product. Each addition is rounded to nearest, and
    denormals count as zeros (Intel 64 and IA-32 Architectures Software Developer's Manual, volume
    2).
    """

    name: ClassVar[str] = "vdpbf16ps"
    mnemonics: ClassVar[tuple[str, ...]] = ("vdpbf16ps",)
    prelude: ClassVar[str] = "".join(
        _FUNCTION.format(lanes=lanes, pairs=2 * lanes, bits=32 * lanes) for lanes in (8, 16)
    )
    flushes: ClassVar[bool] = True
    data: ClassVar[str] = BFLOAT16_BITS
    weights: ClassVar[str] = BFLOAT16_BITS
    sums: ClassVar[str] = "float32"
    depth: ClassVar[int] = 2
    vectors: ClassVar[Mapping[int, frozenset[str]]] = {32: frozenset({"avx512vl"}), 64: frozenset()}

    def meaning(self, sums: Array, data: Array, weights: Array) -> Array:
        left, right = (STORAGE[BFLOAT16].real(side).astype(np.float64) for side in (data, weights))
        result = sums.copy()
        for lane in range(len(sums)):
            for k in (1, 0):
                result[lane] = result[lane] + left[k] * right[lane, k]
        return result

    def emit(self, sums: Expr, data: Expr, weights: Expr, lanes: int) -> Expr:
        return function(f"float32x{lanes}", f"chameleon_vdpbf16ps_{lanes}", sums, data, weights)
