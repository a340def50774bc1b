"""Instructions of ARM's Advanced SIMD: dot products, and products of two rows and two columns."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import attrs
import numpy as np

from chameleon_tvm import _emit as emit
from chameleon_tvm._emit import Buffer, Expr, Stmt
from chameleon_tvm._instructions.base import BFLOAT16_BITS, IntegerDot
from chameleon_tvm._instructions.emission import call_function, intrinsic
from chameleon_tvm._instructions.tiles import Register, TileProduct
from chameleon_tvm._late_tvm import tirx
from chameleon_tvm._types import INT8, UINT8


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


_BYTES = 16


class NeonTiles(TileProduct):
    """ARM's tile products: one vector register holds all rows of a tile, columns of weights.

    (Arm Architecture Reference Manual for A-profile.)
    """

    rows: ClassVar[int] = 2
    columns: ClassVar[int] = 2
    registers: ClassVar[int] = 32

    def register(self, number: int, holds: str, rows: int = 0, depth: int = 0) -> Register:
        dtype = self.element(holds)
        elements = _BYTES // np.dtype(dtype).itemsize
        buffer = tirx.decl_buffer([elements], dtype, f"{holds}{number}")
        return attrs.evolve(super().register(number, holds, rows, depth), buffer=buffer)

    def zero(self, register: Register) -> Stmt:
        zero = tirx.const(0, self.element(register.holds))
        return emit.assign(register.buffer, emit.splat(zero, int(register.buffer.shape[0])))

    def load(self, register: Register, source: Buffer, start: Expr, stride: Expr) -> Stmt:
        width = register.width
        rows = range(register.rows)
        vectors = [emit.load(source, [start + row * stride], width) for row in rows]
        return emit.sequence(
            [emit.store(register.buffer, [row * width], vectors[row], width) for row in rows]
        )

    def product(self, sums: Register, data: Register, weights: Register) -> Stmt:
        operands = [emit.read(register.buffer) for register in (sums, data, weights)]
        return emit.assign(sums.buffer, self.multiply(*operands))

    @abstractmethod
    def multiply(self, sums: Expr, data: Expr, weights: Expr) -> Expr:
        """The expression of the instruction, with whole vectors as operands."""

    def store(self, register: Register, target: Buffer, start: Expr, stride: Expr) -> Stmt:
        width = register.width
        rows = range(register.rows)
        vectors = [emit.load(register.buffer, [row * width], width) for row in rows]
        return emit.sequence(
            [emit.store(target, [start + row * stride], vectors[row], width) for row in rows]
        )


class Bfmmla(NeonTiles):
    """ARM's product of tiles of bfloat16, added to float32 sums.

    It adds two products to each other first. Denormal numbers count as zero.
    """

    name: ClassVar[str] = "bfmmla"
    mnemonics: ClassVar[tuple[str, ...]] = ("bfmmla",)
    flushes: ClassVar[bool] = True
    prelude: ClassVar[str] = """
declare <4 x float> @llvm.aarch64.neon.bfmmla(<4 x float>, <8 x bfloat>, <8 x bfloat>)
define <4 x float> @chameleon_bfmmla(<4 x float> %sums, <8 x i16> %data, <8 x i16> %weights) {
  %left = bitcast <8 x i16> %data to <8 x bfloat>
  %right = bitcast <8 x i16> %weights to <8 x bfloat>
  %made = call <4 x float> @llvm.aarch64.neon.bfmmla(
    <4 x float> %sums, <8 x bfloat> %left, <8 x bfloat> %right)
  ret <4 x float> %made
}
"""
    data: ClassVar[str] = BFLOAT16_BITS
    weights: ClassVar[str] = BFLOAT16_BITS
    sums: ClassVar[str] = "float32"
    depth: ClassVar[int] = 4
    pack: ClassVar[int] = 4

    def multiply(self, sums: Expr, data: Expr, weights: Expr) -> Expr:
        return call_function("float32x4", "chameleon_bfmmla", sums, data, weights)


class Smmla(NeonTiles):
    """ARM's product of tiles of signed bytes, added to 32-bit sums modulo 2**32."""

    name: ClassVar[str] = "smmla"
    mnemonics: ClassVar[tuple[str, ...]] = ("smmla",)
    data: ClassVar[str] = "int8"
    weights: ClassVar[str] = "int8"
    sums: ClassVar[str] = "int32"
    depth: ClassVar[int] = 8
    pack: ClassVar[int] = 8

    def multiply(self, sums: Expr, data: Expr, weights: Expr) -> Expr:
        name = f"llvm.aarch64.neon.{self.name}.v4i32.v16i8"
        return intrinsic("int32x4", name, sums, data, weights)
