"""Pairs of 16-bit integers multiplied and added up: AVX2, and every CPU since."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from chameleon_tvm.instructions.base import Dot, Expr
from chameleon_tvm.quick_tvm import tirx


class Vpmaddwd(Dot):
    """Products of 16-bit integers, exact in sums of 32 bits.

    8-bit integers are widened to it: ``vpmaddubsw``, which multiplies them as they are, saturates
    its sums of two at 16 bits (Intel 64 and IA-32 Architectures Software Developer's Manual, volume
    2), and takes as many multiplications.
    """

    name: ClassVar[str] = "vpmaddwd"
    summary: ClassVar[str] = "pairs of 16-bit integers, sums of 32 bits"
    features: ClassVar[frozenset[str]] = frozenset({"avx2"})
    mnemonics: ClassVar[tuple[str, ...]] = ("vpmaddwd",)
    data: ClassVar[str] = "int16"
    weights: ClassVar[str] = "int16"
    sums: ClassVar[str] = "int32"
    depth: ClassVar[int] = 2
    cost: ClassVar[float] = 4.0 / 3.0
    """With its addition it is two, for which there are three units on Zen 2 and 3 (the loop of
    products alone runs at half as much again as float32) and ports 0, 1 and 5 on Intel's cores."""
    temporaries: ClassVar[int] = 1

    def meaning(
        self, sums: NDArray[Any], data: NDArray[Any], weights: NDArray[Any]
    ) -> NDArray[Any]:
        made = sums.copy()
        for lane in range(len(sums)):
            for k in range(self.depth):
                made[lane] += np.int32(data[k]) * np.int32(weights[lane, k])
        return made

    def emit(self, sums: Expr, data: Expr, weights: Expr, lanes: int) -> Expr:
        pairs = tirx.reinterpret(f"int16x{2 * lanes}", data)
        name = {8: "llvm.x86.avx2.pmadd.wd", 16: "llvm.x86.avx512.pmaddw.d.512"}[lanes]
        total = sums + tirx.call_llvm_pure_intrin(f"int32x{lanes}", name, pairs, weights)
        floats, integers = f"float32x{lanes}", f"int32x{lanes}"
        # Without it LLVM adds up products of neighbouring iterations before it adds them to the
        # sum, for which there are no registers. It is no instruction.
        fenced = tirx.call_llvm_pure_intrin(
            floats, "llvm.arithmetic.fence", tirx.reinterpret(floats, total)
        )
        return tirx.reinterpret(integers, fenced)
