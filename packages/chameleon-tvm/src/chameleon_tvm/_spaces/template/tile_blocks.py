"""Products of blocks of packed tiles, whose sums stay in registers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import attrs

from chameleon_tvm import _emit as emit
from chameleon_tvm._emit import Buffer, Expr, Stmt
from chameleon_tvm._instructions.tiles import DATA, SUMS, WEIGHTS, Register, TileProduct
from chameleon_tvm._spaces.template.tile_packing import STEP

PartProducts = Sequence[tuple[int | None, int | None]]

PART_LOADS: dict[int, PartProducts] = {
    2: [(1, 0), (0, None), (None, 1)],
    3: [(2, 0), (1, None), (0, None), (None, 2), (None, 1), (1, None)],
}
"""For each number of parts, the products in the order of the fewest loads. A product is the part of
the weights and the part of the data to load before; None for a part that is in registers."""

Place = Callable[[int, int], Expr]
"""The place of a tile in its buffer: takes the part and the number of the tile in the block."""


@attrs.frozen
class TurnOfProduct:
    """A product of a step, and what is loaded before it.

    Attributes:
        row: The tile of data.
        column: The tile of weights.
        weights: The part of the weights whose tile is loaded; None if the register holds it.
        data: The same for the data.
    """

    row: int
    column: int
    weights: int | None
    data: int | None


def turns_of_products(parts: PartProducts, rows: int, columns: int) -> Iterator[TurnOfProduct]:
    """Yield the products of a step in an order for one register of data and one of weights.

    Fewer registers hold numbers than with all tiles of a side loaded at once. This is faster if
    another program uses tiles on the same core.

    Args:
        parts: The pairs of parts to multiply. A part is None if it is that of the pair before.
        rows: Number of tiles of data.
        columns: Number of tiles of weights.
    """
    weights_part = data_part = 0
    weights = data = (-1, -1)
    for new_weights, new_data in parts:
        weights_part = weights_part if new_weights is None else new_weights
        data_part = data_part if new_data is None else new_data
        for column in range(columns):
            # Begin with the tile in the register.
            forward = data != (data_part, rows - 1)
            for row in range(rows) if forward else reversed(range(rows)):
                yield TurnOfProduct(
                    row=row,
                    column=column,
                    weights=None if weights == (weights_part, column) else weights_part,
                    data=None if data == (data_part, row) else data_part,
                )
                weights, data = (weights_part, column), (data_part, row)


class TileBlocks:
    """The registers of blocks of ``rows`` x ``columns`` tiles of sums, and their products."""

    def __init__(self, product: TileProduct, rows: int, columns: int, parts: int) -> None:
        self.product = product
        self.rows = rows
        self.columns = columns
        self.parts = parts
        contents = [*((SUMS, at) for at in range(rows * columns)), (DATA, 0), (WEIGHTS, 0)]
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
        for turn in turns_of_products(PART_LOADS[self.parts], rows, columns):
            if turn.weights is not None:
                statements.append(self._load(WEIGHTS, weights, turn.weights, turn.column))
            if turn.data is not None:
                statements.append(self._load(DATA, data, turn.data, turn.row))
            registers = self._registers[DATA, 0], self._registers[WEIGHTS, 0]
            statements.append(self.product.product(self.sums(turn.row, turn.column), *registers))
        return emit.sequence(statements)

    def _load(self, holds: str, source: tuple[Buffer, Place], part: int, at: int) -> Stmt:
        buffer, place = source
        return self.product.load(self._registers[holds, 0], buffer, place(part, at), STEP)
