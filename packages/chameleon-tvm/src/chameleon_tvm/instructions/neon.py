"""Groups of four 8-bit integers multiplied and added up: ARM's Advanced SIMD."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from chameleon_tvm.instructions.base import Expr, IntegerDot
from chameleon_tvm.instructions.emission import intrinsic
from chameleon_tvm.quick_tvm import tirx


class Sdot(IntegerDot):
    """Signed bytes, exact in sums of 32 bits that wrap around.

    (Arm Architecture Reference Manual for A-profile.)
    """

    name: ClassVar[str] = "sdot"
    mnemonics: ClassVar[tuple[str, ...]] = ("sdot",)
    data: ClassVar[str] = "int8"
    weights: ClassVar[str] = "int8"
    depth: ClassVar[int] = 4
    vectors: ClassVar[Mapping[int, frozenset[str]]] = {16: frozenset()}

    def emit(self, sums: Expr, data: Expr, weights: Expr, lanes: int) -> Expr:
        groups = tirx.reinterpret(f"{self.data}x{4 * lanes}", data)
        name = f"llvm.aarch64.neon.{self.name}.v{lanes}i32.v{4 * lanes}i8"
        return intrinsic(f"int32x{lanes}", name, sums, groups, weights)


class Usdot(Sdot):
    """Unsigned by signed bytes."""

    name: ClassVar[str] = "usdot"
    mnemonics: ClassVar[tuple[str, ...]] = ("usdot",)
    data: ClassVar[str] = "uint8"
