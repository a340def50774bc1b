"""Instructions that multiply two small matrices: what a template knows of them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import attrs
import numpy as np

from chameleon_tvm.instructions.base import Array, Expr, Instruction
from chameleon_tvm.quick_tvm import tirx

Stmt = Any
Buffer = Any

SUMS, DATA, WEIGHTS = "sums", "data", "weights"
"""What a register may hold."""


@attrs.frozen(kw_only=True, eq=False)
class Register:
    """One register of a kernel.

    Attributes:
        number: which one it is, from 0.
        holds: ``SUMS``, ``DATA`` or ``WEIGHTS``.
        rows: of it that are used; tiles of data and sums at an edge have fewer than others.
        width: elements of a row that are used.
        buffer: what stands for it in TensorIR, if the instruction's operands are vectors.
    """

    number: int
    holds: str
    rows: int
    width: int
    buffer: Buffer = None


class TileProduct(Instruction):
    """``sums[r, c] += sum over k of data[r, k] * weights[k, c]``, all three in registers.

    ``pack`` neighbouring values of ``k`` are next to each other in the weights, which have the
    shape (depth / pack, columns, pack). A row of a register of weights is one of the first.

    A kernel makes its registers with ``register`` and puts ``around`` about the code that uses
    them, inside each parallel body. Some systems keep what it sets up for every thread. It writes
    that code with ``zero``, ``load``, ``product`` and ``store``.

    Attributes:
        data: dtype of the left side.
        weights: dtype of the right side.
        sums: dtype of the sums.
        rows: of a whole tile of sums and of data.
        columns: of a tile of sums.
        depth: of the product.
        pack: see above; divides the depth.
        shorter: whether registers of data and weights may hold less of the depth, whole packs.
        registers: how many there are of all kinds together.
        cost: how long one takes, in time of a multiply-add of the widest float32 vectors.
    """

    data: ClassVar[str]
    weights: ClassVar[str]
    sums: ClassVar[str]
    rows: ClassVar[int]
    columns: ClassVar[int]
    depth: ClassVar[int]
    pack: ClassVar[int]
    shorter: ClassVar[bool] = False
    registers: ClassVar[int]
    cost: ClassVar[float] = 1.0

    @abstractmethod
    def meaning(self, sums: Array, data: Array, weights: Array) -> Array:
        """Its meaning, as loops over arrays.

        Args:
            sums: shape (rows, columns), of a whole tile or fewer rows.
            data: shape (rows, depth).
            weights: shape (depth / pack, columns, pack), as stored.

        Returns:
            The new sums, shape (rows, columns).
        """

    def element(self, holds: str) -> str:
        """Dtype of a register's contents."""
        return {SUMS: self.sums, DATA: self.data, WEIGHTS: self.weights}[holds]

    def register(self, number: int, holds: str, rows: int = 0, depth: int = 0) -> Register:
        """One register.

        Args:
            number: below ``registers``, each once in a kernel.
            holds: ``SUMS``, ``DATA`` or ``WEIGHTS``.
            rows: of data and sums that are used; 0 for all.
            depth: of the product, if it is ``shorter``; 0 for all.
        """
        depth = depth or self.depth
        whole = depth // self.pack if holds == WEIGHTS else self.rows
        width = {SUMS: self.columns, DATA: depth, WEIGHTS: self.columns * self.pack}[holds]
        return Register(number=number, holds=holds, rows=rows or whole, width=width)

    def around(self, registers: Sequence[Register], body: Stmt) -> Stmt:
        """A statement that may use registers: they are set up before it and released after it.

        Args:
            registers: all that it uses.
            body: the statement.
        """
        buffers = [tirx.AllocBuffer(tile.buffer) for tile in registers if tile.buffer is not None]
        return in_turn([*buffers, body])

    @abstractmethod
    def zero(self, register: Register) -> Stmt:
        """Set all elements to zero."""

    @abstractmethod
    def load(self, register: Register, source: Buffer, start: Expr, stride: Expr) -> Stmt:
        """Fill the rows of a register.

        Args:
            register: of any kind.
            source: a buffer of one axis, of the register's dtype.
            start: index of the first element of the first row.
            stride: elements from row to row.
        """

    @abstractmethod
    def product(self, sums: Register, data: Register, weights: Register) -> Stmt:
        """Add the product of two registers to a third one."""

    @abstractmethod
    def store(self, register: Register, target: Buffer, start: Expr, stride: Expr) -> Stmt:
        """Write the rows of a register of sums; as for ``load``."""


def in_turn(statements: Sequence[Stmt]) -> Stmt:
    """Statements one after the other."""
    return statements[0] if len(statements) == 1 else tirx.SeqStmt(list(statements))


def added_products(sums: Array, data: Array, weights: Array) -> Array:
    """The meaning of most tile products, on values that their sums' type can multiply.

    Args:
        sums: shape (rows, columns).
        data: shape (rows, depth).
        weights: shape (depth / pack, columns, pack).

    Returns:
        The new sums: products are exact, and each sum is rounded to the type of ``sums``.
    """
    exact = np.float64 if sums.dtype.kind == "f" else np.int32
    groups, _, pack = weights.shape
    result = sums.copy()
    for k in range(groups * pack):
        left = data[:, k].astype(exact)
        right = weights[k // pack, :, k % pack].astype(exact)
        result = (result + np.multiply.outer(left, right)).astype(sums.dtype)
    return result
