"""Tile products as loops over memory, to run kernels on CPUs without the instruction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from chameleon_tvm.instructions.base import BFLOAT16_BITS, Expr
from chameleon_tvm.instructions.conversions import widening
from chameleon_tvm.instructions.tiles import Buffer, Register, Stmt, TileProduct
from chameleon_tvm.quick_tvm import tirx
from chameleon_tvm.types import BFLOAT16, STORAGE


class LoopTiles(TileProduct):
    """Computes a tile product with loops instead of the instruction, with its shapes and dtypes.

    Args:
        product: The instruction to imitate.
    """

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
        return _loop(count, lambda at: tirx.BufferStore(register.buffer, zero, [at]))

    def load(self, register: Register, source: Buffer, start: Expr, stride: Expr) -> Stmt:
        def element(row: Expr, at: Expr) -> Stmt:
            value = tirx.BufferLoad(source, [start + row * stride + at])
            return tirx.BufferStore(register.buffer, value, [row * register.width + at])

        return _each(register, element)

    def product(self, sums: Register, data: Register, weights: Register) -> Stmt:
        def add(row: Expr, column: Expr, group: Expr, k: int) -> Stmt:
            index = row * self.columns + column
            left = tirx.BufferLoad(data.buffer, [row * data.width + group * self.pack + k])
            at = (group * self.columns + column) * self.pack + k
            right = tirx.BufferLoad(weights.buffer, [at])
            product = self._widened(left, self.data) * self._widened(right, self.weights)
            total = tirx.BufferLoad(sums.buffer, [index]) + product
            return tirx.BufferStore(sums.buffer, total, [index])

        def adds(row: Expr, column: Expr, group: Expr) -> Stmt:
            return tirx.SeqStmt([add(row, column, group, k) for k in range(self.pack)])

        return _loop(
            sums.rows,
            lambda row: _loop(
                data.width // self.pack,
                lambda group: _loop(self.columns, lambda column: adds(row, column, group)),
            ),
        )

    def store(self, register: Register, target: Buffer, start: Expr, stride: Expr) -> Stmt:
        def element(row: Expr, at: Expr) -> Stmt:
            value = tirx.BufferLoad(register.buffer, [row * register.width + at])
            return tirx.BufferStore(target, value, [start + row * stride + at])

        return _each(register, element)

    def _widened(self, value: Expr, dtype: str) -> Expr:
        if dtype == BFLOAT16_BITS and np.dtype(self.sums).kind == "f":
            return widening(STORAGE[BFLOAT16], value)
        return tirx.Cast(self.sums, value)


def _each(register: Register, element: Callable[[Expr, Expr], Stmt]) -> Stmt:
    """A loop that runs a statement for each element of a register, by row and column."""
    return _loop(register.rows, lambda row: _loop(register.width, lambda at: element(row, at)))


def _loop(extent: int, body: Any) -> Stmt:
    variable = tirx.Var("i", "int32")
    first, count = tirx.IntImm("int32", 0), tirx.IntImm("int32", extent)
    return tirx.For(variable, first, count, tirx.ForKind.SERIAL, body(variable))
