"""Tokens of loops and buffers that differ from each other, of many configurations."""

from __future__ import annotations

from typing import Self

import attrs
import numpy as np
from numpy.typing import NDArray


@attrs.frozen(kw_only=True, eq=False)
class Distinct:
    """The different tokens of n configurations, m in all.

    Attributes:
        values: their numbers, shape (m, numbers).
        groups: which of the groups each belongs to, shape (m,).
        rows: which of them each configuration has, shape (n, groups).
    """

    values: NDArray[np.float32]
    groups: NDArray[np.intp]
    rows: NDArray[np.int64]

    @classmethod
    def of(cls, structure: NDArray[np.float32]) -> Self:
        """The different ones among these.

        Args:
            structure: shape (n, groups, numbers).
        """
        count, groups, numbers = structure.shape
        rows = np.zeros((count, groups), np.int64)
        values, place, begin = [np.zeros((0, numbers), np.float32)], [np.zeros(0, np.intp)], 0
        keys = _keys(structure)
        for group in range(groups):
            own = structure[:, group]
            _, first, inverse = np.unique(keys[:, group], return_index=True, return_inverse=True)
            found = own[first]
            if not np.array_equal(found[inverse], own, equal_nan=True):
                found, inverse = np.unique(own, axis=0, return_inverse=True)
            values.append(found)
            place.append(np.full(len(found), group))
            rows[:, group] = begin + inverse.reshape(-1)
            begin += len(found)
        return cls(values=np.concatenate(values), groups=np.concatenate(place), rows=rows)


def _keys(structure: NDArray[np.float32]) -> NDArray[np.uint64]:
    """A number for each token, shape (n, groups), that others hardly share.

    Numbers are sorted faster than rows are; whoever takes the keys checks them.
    """
    bits = np.ascontiguousarray(structure).view(np.uint32).astype(np.uint64)
    factors = np.random.default_rng(0).integers(1 << 63, size=bits.shape[-1], dtype=np.uint64)
    keys: NDArray[np.uint64] = (bits * (2 * factors + 1)).sum(axis=-1, dtype=np.uint64)
    return keys


__all__ = ["Distinct"]
