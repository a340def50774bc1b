"""Products of tiles of 16 rows of 64 bytes: Intel's Advanced Matrix Extensions (AMX).

(Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, chapter 18, and volume 2.)
Each parallel body loads the tile configuration at its start and releases it at its end. Between
bodies, other code of the process can use the tiles.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from chameleon_system.api import AMX

from chameleon_tvm._emit import Buffer, Expr, Stmt
from chameleon_tvm._instructions.base import BFLOAT16_BITS
from chameleon_tvm._instructions.tiles import Register, TileProduct
from chameleon_tvm._late_tvm import tirx

_TILES = 8
_PALETTE = 1


class Amx(TileProduct):
    """The common parts of AMX's tile products for all dtypes."""

    permission: ClassVar[str] = AMX
    sums: ClassVar[str] = "float32"
    rows: ClassVar[int] = 16
    columns: ClassVar[int] = 16
    shorter: ClassVar[bool] = True
    registers: ClassVar[int] = _TILES
    cost: ClassVar[float] = 16.0

    def configuration(self, registers: Sequence[Register]) -> bytes:
        """The 64 bytes of ``ldtilecfg``: the palette, and each tile's row bytes and rows."""
        row_bytes, rows = [0] * 16, [0] * 16
        for register in registers:
            size = np.dtype(self.element(register.holds)).itemsize
            row_bytes[register.number] = register.width * size
            rows[register.number] = register.rows
        return struct.pack("<BB14x16H16B", _PALETTE, 0, *row_bytes, *rows)

    def around(self, registers: Sequence[Register], body: Stmt) -> Stmt:
        words = np.frombuffer(self.configuration(registers), np.int64)
        memory = tirx.decl_buffer([len(words)], "int64", "tile_configuration")
        stores = [
            tirx.BufferStore(memory, tirx.IntImm("int64", int(word)), [index])
            for index, word in enumerate(words)
        ]
        return tirx.SeqStmt(
            [
                tirx.AllocBuffer(memory),
                *stores,
                _call("ldtilecfg", _address(memory, 0)),
                body,
                _call("tilerelease"),
            ]
        )

    def zero(self, register: Register) -> Stmt:
        return _call("tilezero", _number(register))

    def load(self, register: Register, source: Buffer, start: Expr, stride: Expr) -> Stmt:
        return _call("tileloadd64", *_strided(register, source, start, stride))

    def product(self, sums: Register, data: Register, weights: Register) -> Stmt:
        return _call(self.name, _number(sums), _number(data), _number(weights))

    def store(self, register: Register, target: Buffer, start: Expr, stride: Expr) -> Stmt:
        return _call("tilestored64", *_strided(register, target, start, stride))


class AmxBfloat16(Amx):
    """AMX's product of bfloat16 tiles, with float32 sums that are rounded to nearest.

    Denormal numbers count as zero.
    """

    name: ClassVar[str] = "tdpbf16ps"
    mnemonics: ClassVar[tuple[str, ...]] = ("tdpbf16ps",)
    flushes: ClassVar[bool] = True
    data: ClassVar[str] = BFLOAT16_BITS
    weights: ClassVar[str] = BFLOAT16_BITS
    depth: ClassVar[int] = 32
    pack: ClassVar[int] = 2


class AmxFloat16(Amx):
    """AMX's product of float16 tiles, with float32 sums that are rounded to nearest.

    Denormal sums count as zero.
    """

    name: ClassVar[str] = "tdpfp16ps"
    mnemonics: ClassVar[tuple[str, ...]] = ("tdpfp16ps",)
    flushes: ClassVar[bool] = True
    data: ClassVar[str] = "float16"
    weights: ClassVar[str] = "float16"
    depth: ClassVar[int] = 32
    pack: ClassVar[int] = 2


class AmxInt8(Amx):
    """AMX's product of a tile of unsigned bytes and a tile of signed bytes.

    The 32-bit sums are exact modulo 2**32.
    """

    name: ClassVar[str] = "tdpbusd"
    mnemonics: ClassVar[tuple[str, ...]] = ("tdpbusd",)
    data: ClassVar[str] = "uint8"
    weights: ClassVar[str] = "int8"
    sums: ClassVar[str] = "int32"
    depth: ClassVar[int] = 64
    pack: ClassVar[int] = 4


def _call(name: str, *arguments: Expr) -> Stmt:
    return tirx.Evaluate(tirx.call_llvm_intrin("void", f"llvm.x86.{name}", *arguments))


def _number(register: Register) -> Expr:
    return tirx.IntImm("int8", register.number)


def _address(buffer: Buffer, index: Expr) -> Expr:
    return tirx.address_of(tirx.BufferLoad(buffer, [index]))


def _strided(register: Register, buffer: Buffer, start: Expr, stride: Expr) -> tuple[Expr, ...]:
    """The arguments of a load or store: tile number, first address, bytes from row to row."""
    size = np.dtype(str(buffer.dtype)).itemsize
    step = tirx.IntImm("int64", stride * size) if isinstance(stride, int) else stride * size
    return _number(register), _address(buffer, start), step
