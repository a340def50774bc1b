"""Finds how one packed form of an operator's weights is made of another packed form.

A network that is delivered with tile kernels also has vector kernels, which read the same weights
in another order. The weight file holds the order of the tile kernels alone, and ``repack.c`` makes
the other order where the vector kernels run.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import Any

import attrs
import numpy as np
from chameleon_tvm.api import BFLOAT16, STORAGE
from numpy.typing import NDArray

Pack = Callable[[NDArray[Any]], NDArray[Any]]
"""Packs logical weights of one shape and dtype."""

Places = NDArray[np.int64]

_BASE = 62
"""Numbers from 1 to this one have the same value in all dtypes of weights, 7-bit ones included."""


@attrs.frozen(kw_only=True, eq=False)
class Order:
    """The elements that packed weights have for each row (output channel) and column of weights.

    Attributes:
        rows: Logical row of each packed row, shape (R,). A row may be packed twice.
        row_places: Offset of each packed row, shape (R,).
        column_places: Offset of each column, shape (C,). The sum of both is an element's place.
        parts: Offsets of the parts of a number from its first part, which is at 0.
    """

    rows: Places
    row_places: Places
    column_places: Places
    parts: tuple[int, ...]


@attrs.frozen(kw_only=True, eq=False)
class Repacking:
    """How a constant is made of another one, which is in the weight file.

    Attributes:
        source: The other constant.
        parts: Number of bfloat16 parts of a float32 number of the constant. 0 if elements are
            copied as they are.
        stride: Number of elements from one part of a number to the next.
        rows: Offsets of the constant's rows, and of the other one's, shape (2, rows).
        columns: Offsets of the constant's columns, and of the other one's, shape (2, columns).
    """

    source: NDArray[Any]
    parts: int
    stride: int
    rows: Places
    columns: Places

    def constant(self, like: NDArray[Any]) -> NDArray[Any]:
        """The constant that the C runtime makes, of the shape and dtype of another one."""
        made = np.zeros(like.size, like.dtype)
        (rows, from_rows), (columns, from_columns) = self.rows, self.columns
        source = self.source.reshape(-1)
        places = from_rows[:, None] + from_columns
        if self.parts:
            kind = STORAGE[BFLOAT16]
            values: Any = np.float32(0.0)
            for part in reversed(range(self.parts)):
                values = values + kind.real(source[places + part * self.stride].view(np.uint16))
        else:
            values = source[places]
        made[rows[:, None] + columns] = values
        return made.reshape(like.shape)


def digest_of(constant: NDArray[Any]) -> bytes:
    """A digest of a constant's bytes."""
    data = np.ascontiguousarray(constant).reshape(-1).view(np.uint8).data
    return hashlib.blake2b(data).digest()


def order_of(pack: Pack, shape: tuple[int, ...], dtype: Any) -> Order | None:
    """Find the order in which a function packs weights; None if it is no such order.

    Args:
        pack: The function. Its results have zeros where they hold no weight.
        shape: The shape of logical weights, output channels first.
        dtype: Their dtype.
    """
    count = math.prod(shape)
    numbers = np.arange(count)
    packed: Any = None
    known: Any = None
    for digit in range(max(1, math.ceil(math.log(count, _BASE)))):
        digits = pack((numbers // _BASE**digit % _BASE + 1).astype(dtype).reshape(shape))
        values = _real(digits.reshape(-1)).astype(np.int64)
        known = values > 0 if packed is None else known
        packed = (values - 1) * _BASE**digit + (0 if packed is None else packed)
    held = np.flatnonzero(known)
    numbers = packed[held]
    columns = count // shape[0]
    first = numbers % columns == 0
    if not first.any():
        return None
    row_places, rows = held[first], numbers[first] // columns
    one = np.flatnonzero(numbers // columns == rows[0])
    # A row that is packed twice has its first places first.
    _, index = np.unique(numbers[one] % columns, return_index=True)
    column_places = held[one[index]] - row_places[0]
    if len(column_places) != columns:
        return None
    expected = np.full(packed.size, -1)
    places = (row_places[:, None] + column_places).reshape(-1)
    if places.min() < 0 or places.max() >= packed.size:
        return None
    expected[places] = (rows[:, None] * columns + np.arange(columns)).reshape(-1)
    if not np.array_equal(np.where(known, packed, -1), expected):
        return None
    return Order(
        rows=rows,
        row_places=row_places,
        column_places=column_places,
        parts=_parts(pack, shape, dtype, int(row_places[0] + column_places[0])),
    )


def _parts(pack: Pack, shape: tuple[int, ...], dtype: Any, place: int) -> tuple[int, ...]:
    """The offsets of the parts of the first weight, which has as many parts as there can be."""
    one = np.zeros(math.prod(shape), dtype)
    one[0] = 1.0 + 2.0**-9 + 2.0**-18 if np.issubdtype(dtype, np.floating) else 1
    return tuple((np.flatnonzero(pack(one.reshape(shape)).reshape(-1)) - place).tolist())


def _real(packed: NDArray[Any]) -> NDArray[Any]:
    """The numbers of packed weights, of which bfloat16 ones are stored as integers."""
    return STORAGE[BFLOAT16].real(packed) if packed.dtype == np.uint16 else packed


def repacking_of(
    source: NDArray[Any], source_order: Order, constant: NDArray[Any], order: Order
) -> Repacking | None:
    """How a constant is made of another one; None if its numbers would not be nearly the same."""
    parts = source_order.parts
    stride = parts[1] if len(parts) > 1 else 0
    if len(order.parts) > 1 or parts != tuple(stride * part for part in range(len(parts))):
        return None
    places = dict(zip(source_order.rows.tolist(), source_order.row_places.tolist(), strict=True))
    widened = source.dtype == np.uint16 and constant.dtype == np.float32
    if not widened and (source.dtype != constant.dtype or len(parts) > 1):
        return None
    made = Repacking(
        source=source,
        parts=len(parts) if widened else 0,
        stride=stride,
        rows=np.array([order.row_places, [places[row] for row in order.rows.tolist()]]),
        columns=np.array([order.column_places, source_order.column_places]),
    )
    rounding = STORAGE[BFLOAT16].rounding ** len(parts) if widened else 0.0
    again = made.constant(constant)
    near = np.abs(again - constant) <= rounding * np.abs(constant) if widened else again == constant
    return made if near.all() else None
