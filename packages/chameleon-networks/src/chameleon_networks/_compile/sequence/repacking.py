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
from numpy.typing import NDArray

Pack = Callable[[NDArray[Any]], NDArray[Any]]
"""Packs logical weights of one shape and dtype."""

Places = NDArray[np.int64]

_BASE = 62
"""Numbers up to this one have the same value in all dtypes of weights, 7-bit ones included."""
_HALF = np.dtype("uint16")
"""The dtype of packed weights that are the upper halves of float32 numbers."""
_ROUNDING = 2.0**-8
"""Largest relative error of rounding a float32 number to its upper half."""


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

    @property
    def end(self) -> int:
        """The place after the last element."""
        return int(self.row_places.max() + self.column_places.max()) + self.parts[-1] + 1


@attrs.frozen(kw_only=True, eq=False)
class Repacking:
    """How a constant is made of another constant, which is in the weight file.

    Attributes:
        source: The other constant.
        parts: Number of elements of the source whose sum is an element of the constant. They are
            the upper halves of float32 numbers. 0 if elements are copied as they are.
        stride: Number of elements from one part of a sum to the next.
        rows: Offsets of the rows of the constant and of the source, shape (2, rows).
        columns: Offsets of the columns of the constant and of the source, shape (2, columns).
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
            values: Any = np.float32(0.0)
            for part in reversed(range(self.parts)):
                values = values + _widened(source[places + part * self.stride])
        else:
            values = source[places]
        made[rows[:, None] + columns] = values
        return made.reshape(like.shape)


def digest_of(constant: NDArray[Any]) -> bytes:
    """A digest of a constant's bytes."""
    data = np.ascontiguousarray(constant).reshape(-1).view(np.ubyte).data
    return hashlib.blake2b(data).digest()


def order_of(pack: Pack, shape: tuple[int, ...], dtype: Any) -> Order | None:
    """Find the order in which a function packs weights; None if it is no such order.

    The order is right if the packed places are sums of a row's and a column's offset, which
    ``repacking_of`` checks.

    Args:
        pack: The function. Its results have zeros where they hold no weight.
        shape: The shape of logical weights, output channels first.
        dtype: Their dtype.
    """
    extents = shape[0], math.prod(shape[1:])
    # Rows are packed as positive numbers in the first column, and columns as negative ones in the
    # first row, digit by digit.
    numbers: Any = 0
    places: Any = None
    digit = 0
    while digit == 0 or _BASE**digit < max(extents):
        weights = np.zeros(extents)
        for axis, sign in ((0, 1), (1, -1)):
            own = np.arange(extents[axis]) // _BASE**digit % _BASE + 1
            weights[(slice(None), 0) if axis == 0 else (0, slice(None))] = sign * own
        weights[0, 0] = 0
        packed = _real(pack(weights.astype(dtype).reshape(shape)).reshape(-1))
        places = np.flatnonzero(packed) if places is None else places
        values = packed[places].astype(np.int64)
        numbers = numbers + (np.abs(values) - 1) * _BASE**digit
        digit += 1
    first = _parts(pack, shape, dtype)
    if len(first) == 0:
        return None
    place, signs = int(first[0]), np.sign(values)
    # Another row may be packed twice, but not the first one.
    rows, columns = numbers[signs > 0], numbers[signs < 0]
    every = np.array_equal(np.unique(rows), np.arange(1, extents[0]))
    if not every or not np.array_equal(np.sort(columns), np.arange(1, extents[1])):
        return None
    return Order(
        rows=np.append(0, rows),
        row_places=np.append(place, places[signs > 0]),
        column_places=np.append(0, places[signs < 0][np.argsort(columns)] - place),
        parts=tuple((first - place).tolist()),
    )


def _parts(pack: Pack, shape: tuple[int, ...], dtype: Any) -> Places:
    """The places of the parts of the first weight, which has as many parts as there can be."""
    one = np.zeros(math.prod(shape), dtype)
    one[0] = 1.0 + 2.0**-9 + 2.0**-18 if np.issubdtype(dtype, np.floating) else 1
    return np.flatnonzero(pack(one.reshape(shape)).reshape(-1))


def _real(packed: NDArray[Any]) -> NDArray[Any]:
    """The numbers of packed weights, of which bfloat16 ones are stored as integers."""
    return _widened(packed) if packed.dtype == _HALF else packed


def _widened(bits: NDArray[Any]) -> NDArray[np.float32]:
    """The float32 numbers whose upper halves are given."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def repacking_of(
    source: NDArray[Any],
    source_order: Order | None,
    constant: NDArray[Any],
    order: Order | None,
) -> Repacking | None:
    """How a constant is made of another one; None if its numbers would not be nearly the same."""
    if order is None or source_order is None:
        return None
    parts = source_order.parts
    largest = [
        order.row_places.max() + order.column_places.max() for order in (order, source_order)
    ]
    if largest[0] >= constant.size or largest[1] + parts[-1] >= source.size:
        return None
    stride = parts[1] if len(parts) > 1 else 0
    if len(order.parts) > 1 or parts != tuple(stride * part for part in range(len(parts))):
        return None
    places = dict(zip(source_order.rows.tolist(), source_order.row_places.tolist(), strict=True))
    widened = source.dtype == _HALF and constant.dtype == np.float32
    if not widened and (source.dtype != constant.dtype or len(parts) > 1):
        return None
    # Both orders are mostly that of memory then.
    by_place = np.argsort(order.column_places)
    made = Repacking(
        source=source,
        parts=len(parts) if widened else 0,
        stride=stride,
        rows=np.array([order.row_places, [places[row] for row in order.rows.tolist()]]),
        columns=np.array([order.column_places, source_order.column_places])[:, by_place],
    )
    again = made.constant(constant)
    rounding = _ROUNDING ** len(parts) if widened else 0.0
    near = np.abs(again - constant) <= rounding * np.abs(constant) if widened else again == constant
    return made if near.all() else None
