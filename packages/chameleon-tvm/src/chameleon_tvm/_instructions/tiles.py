"""The base class of instructions that multiply two small matrices (tiles), for templates."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import attrs
import numpy as np

from chameleon_tvm import _emit as emit
from chameleon_tvm._emit import Buffer, Expr, Stmt
from chameleon_tvm._instructions.base import BFLOAT16_BITS, Array, Instruction
from chameleon_tvm._late_tvm import tirx
from chameleon_tvm._types import BFLOAT16, STORAGE

SUMS, DATA, WEIGHTS = "sums", "data", "weights"
"""The possible contents of a register."""


@attrs.frozen(kw_only=True, eq=False)
class Register:
    """A register of a kernel that holds a tile.

    Attributes:
        number: Number of the register, from 0.
        holds: The contents of the register: ``SUMS``, ``DATA`` or ``WEIGHTS``.
        rows: Number of rows in use. Tiles of data and sums at an edge of the tensor have fewer rows
            than other tiles.
        width: Number of elements in use in each row.
        buffer: The TensorIR buffer that represents the register, if the instruction's operands are
            vectors; else None.
    """

    number: int
    holds: str
    rows: int
    width: int
    buffer: Buffer = None


class TileProduct(Instruction):
    """``sums[r, c] += sum over k of data[r, k] * weights[k, c]``, all three in registers.

    In the weights, ``pack`` neighbouring values of ``k`` are next to each other. So weights have
    the shape (depth / pack, columns, pack), and a row of a register of weights is a slice along the
    first axis.

    A kernel makes its registers with ``register`` and writes the code that uses them with ``zero``,
    ``load``, ``product`` and ``store``. It wraps this code in ``around``, inside each parallel
    body, because some CPUs keep the tile configuration separately for every thread.

    Attributes:
        data: Dtype of the left side.
        weights: Dtype of the right side.
        sums: Dtype of the sums.
        rows: Number of rows of a whole tile of sums or data.
        columns: Number of columns of a tile of sums.
        depth: Number of products that are added to each sum.
        pack: Number of neighbouring values of ``k`` that are next to each other in the weights;
            divides ``depth``.
        shorter: Whether registers of data and weights may hold less than ``depth``, in multiples of
            ``pack``.
        registers: Number of registers of all kinds together.
        cost: Cycles of a core that one instruction takes.
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

    def meaning(self, sums: Array, data: Array, weights: Array) -> Array:
        """The sums after the instruction, for tests. Each addition is rounded to ``self.sums``.

        Args:
            sums: The sums before the instruction, shape (rows, columns). The number of rows may be
                smaller than the attribute ``rows``, for a tile that is not full.
            data: The left side, shape (rows, depth).
            weights: The right side as it is stored, shape (depth / pack, columns, pack).

        Returns:
            The new sums. Products are exact, and each sum is rounded to the dtype of ``sums``.
        """
        if self.data == BFLOAT16_BITS:
            data, weights = (STORAGE[BFLOAT16].real(side) for side in (data, weights))
        exact = np.float64 if sums.dtype.kind == "f" else np.int32
        groups, _, pack = weights.shape
        result = sums.copy()
        for k in range(groups * pack):
            left = data[:, k].astype(exact)
            right = weights[k // pack, :, k % pack].astype(exact)
            result = (result + np.multiply.outer(left, right)).astype(sums.dtype)
        return result

    def element(self, holds: str) -> str:
        """The dtype of the elements of a register.

        Args:
            holds: The contents of the register: ``SUMS``, ``DATA`` or ``WEIGHTS``.
        """
        return {SUMS: self.sums, DATA: self.data, WEIGHTS: self.weights}[holds]

    def register(self, number: int, holds: str, rows: int = 0, depth: int = 0) -> Register:
        """Describe a register of a kernel.

        Args:
            number: Number of the register, below ``self.registers``. A kernel uses each number
                once.
            holds: The contents of the register: ``SUMS``, ``DATA`` or ``WEIGHTS``.
            rows: Number of rows in use of a register of data or sums; 0 for all rows.
            depth: Number of products that are added to each sum; 0 for ``self.depth``. Only if
                ``self.shorter`` is True, it may be smaller than ``self.depth``.
        """
        depth = depth or self.depth
        all_rows = depth // self.pack if holds == WEIGHTS else self.rows
        width = {SUMS: self.columns, DATA: depth, WEIGHTS: self.columns * self.pack}[holds]
        return Register(number=number, holds=holds, rows=rows or all_rows, width=width)

    def around(self, registers: Sequence[Register], body: Stmt) -> Stmt:
        """Wrap a statement in code that sets registers up before it and releases them after it.

        Args:
            registers: All registers that the statement uses.
            body: The statement.
        """
        buffers = [tirx.AllocBuffer(tile.buffer) for tile in registers if tile.buffer is not None]
        return emit.sequence([*buffers, body])

    @abstractmethod
    def zero(self, register: Register) -> Stmt:
        """Return the statement that sets all elements of a register of sums to zero."""

    @abstractmethod
    def load(self, register: Register, source: Buffer, start: Expr, stride: Expr) -> Stmt:
        """Return the statement that fills the rows of a register from a buffer.

        Args:
            register: A register of sums, data or weights.
            source: A one-dimensional buffer with the register's dtype.
            start: Index in ``source`` of the first element of the first row.
            stride: Number of elements from the start of a row to the start of the next row.
        """

    @abstractmethod
    def product(self, sums: Register, data: Register, weights: Register) -> Stmt:
        """Return the statement that adds the product of ``data`` and ``weights`` to ``sums``."""

    @abstractmethod
    def store(self, register: Register, target: Buffer, start: Expr, stride: Expr) -> Stmt:
        """Return the statement that writes a register of sums to a buffer.

        Args:
            register: A register of sums.
            target: A one-dimensional buffer with the register's dtype.
            start: Index in ``target`` of the first element of the first row.
            stride: Number of elements from the start of a row to the start of the next row.
        """
