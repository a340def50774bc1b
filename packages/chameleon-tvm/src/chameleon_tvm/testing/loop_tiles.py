"""Computes tile products by loops, to test kernels on CPUs without the tile instruction."""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from chameleon_tvm import _emit as emit
from chameleon_tvm._emit import Buffer, Expr, Stmt
from chameleon_tvm._instructions.base import BFLOAT16_BITS
from chameleon_tvm._instructions.tiles import Register, TileProduct
from chameleon_tvm._quick_tvm import tirx
from chameleon_tvm._types import BFLOAT16, STORAGE


class LoopTiles(TileProduct):
    """Computes a tile product with loops instead of the instruction, with its shapes and dtypes."""

    name = "loops"
    summary = "a tile product as loops"
    mnemonics = ()

    def __init__(self, product: TileProduct) -> None:
        self._product = product
        shape = ("rows", "columns", "depth", "pack", "shorter", "registers")
        for name in ("data", "weights", "sums", "cost", *shape):
            setattr(self, name, getattr(product, name))

    def meaning(
        self, sums: NDArray[Any], data: NDArray[Any], weights: NDArray[Any]
    ) -> NDArray[Any]:
        return self._product.meaning(sums, data, weights)

    def register(self, number: int, holds: str, rows: int = 0, depth: int = 0) -> Register:
        tile = super().register(number, holds, rows, depth)
        shape = [tile.rows * tile.width]
        return attrs.evolve(tile, buffer=tirx.decl_buffer(shape, self.element(holds), f"t{number}"))

    def zero(self, register: Register) -> Stmt:
        zero = tirx.const(0, self.element(register.holds))
        count = register.rows * register.width
        return emit.loop("i", count, lambda at: emit.store(register.buffer, [at], zero))

    def load(self, register: Register, source: Buffer, start: Expr, stride: Expr) -> Stmt:
        def element(row: Expr, at: Expr) -> Stmt:
            value = emit.load(source, [start + row * stride + at])
            return emit.store(register.buffer, [row * register.width + at], value)

        return emit.loops({"row": register.rows, "at": register.width}, element)

    def product(self, sums: Register, data: Register, weights: Register) -> Stmt:
        def add(row: Expr, column: Expr, group: Expr, k: int) -> Stmt:
            index = [row * self.columns + column]
            left = emit.load(data.buffer, [row * data.width + group * self.pack + k])
            at = (group * self.columns + column) * self.pack + k
            right = emit.load(weights.buffer, [at])
            product = self._widen(left, self.data) * self._widen(right, self.weights)
            return emit.store(sums.buffer, index, emit.load(sums.buffer, index) + product)

        def adds(row: Expr, group: Expr, column: Expr) -> Stmt:
            return emit.sequence([add(row, column, group, k) for k in range(self.pack)])

        groups = data.width // self.pack
        return emit.loops({"row": sums.rows, "group": groups, "column": self.columns}, adds)

    def store(self, register: Register, target: Buffer, start: Expr, stride: Expr) -> Stmt:
        def element(row: Expr, at: Expr) -> Stmt:
            value = emit.load(register.buffer, [row * register.width + at])
            return emit.store(target, [start + row * stride + at], value)

        return emit.loops({"row": register.rows, "at": register.width}, element)

    def _widen(self, value: Expr, dtype: str) -> Expr:
        if dtype == BFLOAT16_BITS and np.dtype(self.sums).kind == "f":
            return emit.widening(STORAGE[BFLOAT16], value)
        return tirx.Cast(self.sums, value)
