"""Products of blocks of packed tiles, whose sums stay in registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from chameleon_tvm import _emit as emit
from chameleon_tvm._emit import Buffer, Expr, Stmt
from chameleon_tvm._instructions.tiles import DATA, SUMS, WEIGHTS, Register, TileProduct
from chameleon_tvm._spaces.template.tile_packing import STEP

PART_LOADS: dict[int, Sequence[tuple[int | None, int | None]]] = {
    2: [(1, 0), (0, None), (None, 1)],
    3: [(2, 0), (1, None), (0, None), (None, 2), (None, 1), (1, None)],
}
"""For each number of parts, the products in the order of the fewest loads. A product is the part of
the weights and the part of the data to load before; None for a part that is in registers."""

Place = Callable[[int, int], Expr]
"""The place of a tile in its buffer: takes the part and the number of the tile in the block."""


class TileBlocks:
    """The registers of blocks of ``rows`` x ``columns`` tiles of sums, and their products."""

    def __init__(self, product: TileProduct, rows: int, columns: int, parts: int) -> None:
        self.product = product
        self.rows = rows
        self.columns = columns
        self.parts = parts
        counts = {SUMS: rows * columns, DATA: rows, WEIGHTS: columns}
        contents = [(holds, at) for holds, count in counts.items() for at in range(count)]
        self._registers = {
            key: product.register(number, key[0]) for number, key in enumerate(contents)
        }

    @property
    def registers(self) -> Sequence[Register]:
        """All registers of a block."""
        return [*self._registers.values()]

    def sums(self, row: int, column: int) -> Register:
        """The register of a tile of sums."""
        return self._registers[SUMS, row * self.columns + column]

    def multiply(
        self, data: tuple[Buffer, Place], weights: tuple[Buffer, Place], rows: int, columns: int
    ) -> Stmt:
        """Add the products of a step to the sums of a block, which may be smaller."""
        statements: list[Stmt] = []
        for weights_part, data_part in PART_LOADS[self.parts]:
            if weights_part is not None:
                statements += self._load(WEIGHTS, weights, weights_part, columns)
            if data_part is not None:
                statements += self._load(DATA, data, data_part, rows)
            statements += [
                self.product.product(
                    self.sums(r, c), self._registers[DATA, r], self._registers[WEIGHTS, c]
                )
                for r in range(rows)
                for c in range(columns)
            ]
        return emit.sequence(statements)

    def _load(
        self, holds: str, source: tuple[Buffer, Place], part: int, count: int
    ) -> Sequence[Stmt]:
        buffer, place = source
        return [
            self.product.load(self._registers[holds, at], buffer, place(part, at), STEP)
            for at in range(count)
        ]
