"""Groups of four 8-bit integers multiplied and added up: ARM's Advanced SIMD."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from chameleon_tvm.instructions.base import Dot, Expr
from chameleon_tvm.instructions.emission import intrinsic
from chameleon_tvm.quick_tvm import tirx
from chameleon_tvm.types import INT8, UINT8


class Sdot(Dot):
    """Signed bytes, exact in sums of 32 bits that wrap around.

    (Arm Architecture Reference Manual for A-profile.)
    """

    name: ClassVar[str] = "sdot"
    summary: ClassVar[str] = "groups of four signed bytes, sums of 32 bits"
    architecture: ClassVar[str] = "aarch64"
    features: ClassVar[frozenset[str]] = frozenset({"dotprod"})
    mnemonics: ClassVar[tuple[str, ...]] = ("sdot",)
    data: ClassVar[str] = INT8
    weights: ClassVar[str] = INT8
    sums: ClassVar[str] = "int32"
    depth: ClassVar[int] = 4
    vectors: ClassVar[Mapping[int, frozenset[str]]] = {16: frozenset()}

    def meaning(
        self, sums: NDArray[Any], data: NDArray[Any], weights: NDArray[Any]
    ) -> NDArray[Any]:
        made = sums.copy()
        for lane in range(len(sums)):
            for k in range(self.depth):
                made[lane] += np.int32(data[k]) * np.int32(weights[lane, k])
        return made

    def emit(self, sums: Expr, data: Expr, weights: Expr, lanes: int) -> Expr:
        groups = tirx.reinterpret(f"{self.data}x{4 * lanes}", data)
        name = f"llvm.aarch64.neon.{self.name}.v{lanes}i32.v{4 * lanes}i8"
        return intrinsic(f"int32x{lanes}", name, sums, groups, weights)


class Usdot(Sdot):
    """Unsigned by signed bytes."""

    name: ClassVar[str] = "usdot"
    summary: ClassVar[str] = "groups of four bytes, unsigned by signed, sums of 32 bits"
    features: ClassVar[frozenset[str]] = frozenset({"i8mm"})
    mnemonics: ClassVar[tuple[str, ...]] = ("usdot",)
    data: ClassVar[str] = UINT8
