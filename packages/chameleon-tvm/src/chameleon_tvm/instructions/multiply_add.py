"""Multiply-adds of whole vectors as every CPU has them: what a compiler makes of ``a + b * c``."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from chameleon_tvm.instructions.base import Dot, Expr


class MultiplyAdd(Dot):
    """Products of float32, which are rounded with their sum where the target has FMA."""

    name: ClassVar[str] = "multiply-add"
    summary: ClassVar[str] = "products of float32, one of every lane"
    mnemonics: ClassVar[tuple[str, ...]] = ("vfmadd", "mulps", "fmla")
    data: ClassVar[str] = "float32"
    weights: ClassVar[str] = "float32"
    sums: ClassVar[str] = "float32"
    depth: ClassVar[int] = 1

    def meaning(
        self, sums: NDArray[Any], data: NDArray[Any], weights: NDArray[Any]
    ) -> NDArray[Any]:
        made = sums.copy()
        for lane in range(len(sums)):
            made[lane] += data[0] * weights[lane, 0]
        return made

    def emit(self, sums: Expr, data: Expr, weights: Expr, lanes: int) -> Expr:
        del lanes
        return sums + data * weights


class IntegerMultiplyAdd(MultiplyAdd):
    """Products of 32-bit integers, for targets that have no instruction for shorter ones."""

    name: ClassVar[str] = "integer multiply-add"
    summary: ClassVar[str] = "products of 32-bit integers, one of every lane"
    mnemonics: ClassVar[tuple[str, ...]] = ("pmulld", "mla", "pmuludq")
    data: ClassVar[str] = "int32"
    weights: ClassVar[str] = "int32"
    sums: ClassVar[str] = "int32"
    cost: ClassVar[float] = 2.0

    def meaning(
        self, sums: NDArray[Any], data: NDArray[Any], weights: NDArray[Any]
    ) -> NDArray[Any]:
        return super().meaning(sums, data.astype(np.int32), weights.astype(np.int32))
