"""The AVX2 instruction that multiplies pairs of bytes, and adds them up in 16 bits.

Such sums may saturate: they stop at the largest 16-bit number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from chameleon_tvm.instructions.base import Array, Expr, IntegerDot
from chameleon_tvm.instructions.emission import fenced, intrinsic
from chameleon_tvm.late_tvm import tirx
from chameleon_tvm.types import INT8, UINT8

_PAIR = 2


class Vpmaddubsw(IntegerDot):
    """The dot product of unsigned by signed bytes with AVX2, for weights of 7 bits.

    (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2.) Sums of two products
    saturate at 16 bits. ``vpmaddwd`` by ones then adds up the two 16-bit sums of a lane in 32 bits.
    With weights between -64 and 64, a sum of two products is at most 2 * 255 * 64 = 32640, so that
    nothing saturates.
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
        return fenced(sums + intrinsic(f"int32x{lanes}", words_name, pairs, ones), lanes)
