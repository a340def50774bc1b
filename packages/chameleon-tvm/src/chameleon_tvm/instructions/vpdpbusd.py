"""Instructions of AVX-512 VNNI and AVX-VNNI that multiply and add groups of four bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from chameleon_tvm.instructions.base import Expr, IntegerDot
from chameleon_tvm.instructions.emission import intrinsic
from chameleon_tvm.late_tvm import tirx
from chameleon_tvm.types import INT8, UINT8


class Vpdpbusd(IntegerDot):
    """The dot product of four unsigned by four signed bytes per lane.

    The 32-bit sums are exact modulo 2**32. The instruction ``vpdpbusds``, which saturates, is not
    used (Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2).
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
