"""Multiply-adds of 32-bit integers, for targets that have no instruction for shorter ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from chameleon_tvm.instructions.base import Dot, Expr


class IntegerMultiplyAdd(Dot):
    """Product and sum of 32-bit integers, which wrap around; what a template falls back to."""

    name: ClassVar[str] = "integer-multiply-add"
    summary: ClassVar[str] = "32-bit integers, on every CPU"
    mnemonics: ClassVar[tuple[str, ...]] = ("vpmulld", "pmulld", "pmuludq", "mla")
    data: ClassVar[str] = "int32"
    weights: ClassVar[str] = "int32"
    sums: ClassVar[str] = "int32"
    depth: ClassVar[int] = 1
    vectors: ClassVar[Mapping[int, frozenset[str]]] = {
        16: frozenset(),
        32: frozenset(),
        64: frozenset(),
    }
    cost: ClassVar[float] = 2.0

    def meaning(
        self, sums: NDArray[Any], data: NDArray[Any], weights: NDArray[Any]
    ) -> NDArray[Any]:
        made = sums.copy()
        for lane in range(len(sums)):
            made[lane] += np.int32(data[0]) * np.int32(weights[lane, 0])
        return made

    def emit(self, sums: Expr, data: Expr, weights: Expr, lanes: int) -> Expr:
        del lanes  # of vectors that are there already
        return sums + data * weights
