"""Instructions of ARM's Advanced SIMD that multiply and add groups of four 8-bit integers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from chameleon_tvm.instructions.base import Expr, IntegerDot
from chameleon_tvm.instructions.emission import intrinsic
from chameleon_tvm.late_tvm import tirx
from chameleon_tvm.types import INT8, UINT8


class Sdot(IntegerDot):
    """ARM's dot product of four signed bytes per lane, added to 32-bit sums modulo 2**32.

    (Arm Architecture Reference Manual for A-profile.)
    """

    name: ClassVar[str] = "sdot"
    mnemonics: ClassVar[tuple[str, ...]] = ("sdot",)
    data: ClassVar[str] = INT8
    weights: ClassVar[str] = INT8
    depth: ClassVar[int] = 4
    vectors: ClassVar[Mapping[int, frozenset[str]]] = {16: frozenset()}

    def emit(self, sums: Expr, data: Expr, weights: Expr, lanes: int) -> Expr:
        groups = tirx.reinterpret(f"{self.data}x{4 * lanes}", data)
        name = f"llvm.aarch64.neon.{self.name}.v{lanes}i32.v{4 * lanes}i8"
        return intrinsic(f"int32x{lanes}", name, sums, groups, weights)


class Usdot(Sdot):
    """Dot product of unsigned bytes with signed weights."""

    name: ClassVar[str] = "usdot"
    mnemonics: ClassVar[tuple[str, ...]] = ("usdot",)
    data: ClassVar[str] = UINT8
