"""Instructions of x86 CPUs that multiply and add pairs or groups of 8-bit and 16-bit numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from chameleon_tvm._instructions.base import BFLOAT16_BITS, Array, Dot, Expr, IntegerDot
from chameleon_tvm._instructions.emission import call_function, fence, intrinsic
from chameleon_tvm._late_tvm import tirx
from chameleon_tvm._types import BFLOAT16, INT8, STORAGE, UINT8


class Vpdpbusd(IntegerDot):
    """The dot product of four unsigned by four signed bytes per lane, exact modulo 2**32.

    (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2.)
    """

    name: ClassVar[str] = "vpdpbusd"
    mnemonics: ClassVar[tuple[str, ...]] = ("vpdpbusd",)
    data: ClassVar[str] = UINT8
    weights: ClassVar[str] = INT8
    depth: ClassVar[int] = 4
    vectors: ClassVar[Mapping[int, frozenset[str]]] = {32: frozenset({"avx512vl"}), 64: frozenset()}

    def emit(self, sums: Expr, data: Expr, weights: Expr, lanes: int) -> Expr:
        # Vectors of bytes since LLVM 22, of 32-bit words before.
        groups = tirx.reinterpret(f"{UINT8}x{4 * lanes}", data)
        name = f"llvm.x86.avx512.vpdpbusd.{32 * lanes}"
        return intrinsic(f"int32x{lanes}", name, sums, groups, weights)


class VexVpdpbusd(Vpdpbusd):
    """``vpdpbusd`` for CPUs without AVX-512, such as Intel's since Alder Lake."""

    name: ClassVar[str] = "vpdpbusd-vex"
    vectors: ClassVar[Mapping[int, frozenset[str]]] = {32: frozenset()}


class Vpmaddwd(IntegerDot):
    """Dot product of 16-bit integers, exact in 32-bit sums.

    LLVM combines the product and its addition into one ``vpdpwssd`` if the CPU has VNNI.
    """

    name: ClassVar[str] = "vpmaddwd"
    mnemonics: ClassVar[tuple[str, ...]] = ("vpmaddwd", "vpdpwssd")
    data: ClassVar[str] = "int16"
    weights: ClassVar[str] = "int16"
    depth: ClassVar[int] = 2
    cost: ClassVar[float] = 4.0 / 3.0
    """Product and addition are two instructions. Three units run them on Zen 2 and 3, where a loop
    of only products runs 1.5 times as fast as in float32. On Intel's cores, ports 0, 1 and 5 do."""
    vectors: ClassVar[Mapping[int, frozenset[str]]] = {32: frozenset(), 64: frozenset({"avx512bw"})}
    temporaries: ClassVar[int] = 1

    def emit(self, sums: Expr, data: Expr, weights: Expr, lanes: int) -> Expr:
        pairs = tirx.reinterpret(f"int16x{2 * lanes}", data)
        name = {8: "llvm.x86.avx2.pmadd.wd", 16: "llvm.x86.avx512.pmaddw.d.512"}[lanes]
        return fence(sums + intrinsic(f"int32x{lanes}", name, pairs, weights), lanes)


_PAIR = 2


class Vpmaddubsw(IntegerDot):
    """The dot product of unsigned by signed bytes with AVX2, for weights of 7 bits.

    (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2.) Sums of two products
    saturate at 16 bits, which weights between -64 and 64 cannot reach: 2 * 255 * 64 = 32640.
    """

    name: ClassVar[str] = "vpmaddubsw"
    mnemonics: ClassVar[tuple[str, ...]] = ("vpmaddubsw",)
    data: ClassVar[str] = UINT8
    weights: ClassVar[str] = INT8
    depth: ClassVar[int] = 4
    largest_weight: ClassVar[int | None] = 64
    cost: ClassVar[float] = 2.0
    """Two multiplications share the two units that a multiply-add also uses. The addition has a
    third unit, on Zen 2 and 3 and on Intel's cores."""
    vectors: ClassVar[Mapping[int, frozenset[str]]] = {32: frozenset(), 64: frozenset({"avx512bw"})}
    temporaries: ClassVar[int] = 2

    def meaning(self, sums: Array, data: Array, weights: Array) -> Array:
        result, limits = sums.copy(), np.iinfo(np.int16)
        for lane in range(len(sums)):
            for first in range(0, self.depth, _PAIR):
                pair = sum(
                    int(data[k]) * int(weights[lane, k]) for k in range(first, first + _PAIR)
                )
                result[lane] += np.int32(min(max(pair, limits.min), limits.max))
        return result

    def emit(self, sums: Expr, data: Expr, weights: Expr, lanes: int) -> Expr:
        groups = tirx.reinterpret(f"{UINT8}x{self.depth * lanes}", data)
        ones = tirx.Broadcast(tirx.const(1, "int16"), _PAIR * lanes)
        bytes_name, words_name = {
            8: ("llvm.x86.avx2.pmadd.ub.sw", "llvm.x86.avx2.pmadd.wd"),
            16: ("llvm.x86.avx512.pmaddubs.w.512", "llvm.x86.avx512.pmaddw.d.512"),
        }[lanes]
        pairs = intrinsic(f"int16x{_PAIR * lanes}", bytes_name, groups, weights)
        return fence(sums + intrinsic(f"int32x{lanes}", words_name, pairs, ones), lanes)


_DPBF16_FUNCTION = """
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

    The odd product is added first. Each addition is rounded to nearest, and denormals count as
    zeros (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2).
    """

    name: ClassVar[str] = "vdpbf16ps"
    mnemonics: ClassVar[tuple[str, ...]] = ("vdpbf16ps",)
    prelude: ClassVar[str] = "".join(
        _DPBF16_FUNCTION.format(lanes=lanes, pairs=2 * lanes, bits=32 * lanes) for lanes in (8, 16)
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
        return call_function(
            f"float32x{lanes}", f"chameleon_vdpbf16ps_{lanes}", sums, data, weights
        )
