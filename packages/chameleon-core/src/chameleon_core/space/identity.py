"""Identity of configurations: a mixed-radix integer each, and which program each becomes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

_WORD_LIMIT = 2**63
"""A word holds index vectors of fewer combinations than this, so that it fits an int64."""

_BITMAP_LIMIT = 1 << 20
"""Spaces of at most this many index vectors keep one flag for each, which is fastest to ask."""


class MixedRadix:
    """Numbers index vectors in lexicographic order, the first column most significant.

    Neighbouring columns are packed into int64 words. One word is enough for almost every design
    space; larger ones need Python integers, but only one operation per word, not per column.

    Args:
        cardinalities: choices per column, each at least 1.
    """

    def __init__(self, cardinalities: Sequence[int]) -> None:
        self.cardinalities = tuple(int(c) for c in cardinalities)
        self._words = tuple(self._pack())

    def _pack(self) -> Iterator[tuple[slice, NDArray[np.int64], int]]:
        """Columns, the weight of each column and the radix of every word."""
        start = 0
        while start < len(self.cardinalities):
            stop, radix = start, 1
            while stop < len(self.cardinalities) and radix * self.cardinalities[stop] < _WORD_LIMIT:
                radix *= self.cardinalities[stop]
                stop += 1
            weights = np.ones(stop - start, np.int64)
            weights[:-1] = np.cumprod(self.cardinalities[start + 1 : stop][::-1])[::-1]
            yield slice(start, stop), weights, radix
            start = stop

    def words(self, configs: NDArray[np.integer[Any]]) -> list[NDArray[np.int64]]:
        """The words of every configuration, most significant first, each of shape (n,)."""
        return [configs[:, columns] @ weights for columns, weights, _ in self._words]

    def encode(self, configs: NDArray[np.integer[Any]]) -> NDArray[Any]:
        """Identities, shape (n,): int64, or Python ints where one word is not enough."""
        keys: NDArray[Any]
        keys, *rest = self.words(configs)
        if rest:
            keys = keys.astype(object)
            for word, (_, _, radix) in zip(rest, self._words[1:], strict=True):
                keys = keys * radix + word.astype(object)
        return keys

    def decode(self, keys: NDArray[Any]) -> NDArray[np.int32]:
        """The index vectors behind identities, shape (n, columns)."""
        rest = np.asarray(keys)
        configs = np.empty((len(rest), len(self.cardinalities)), np.int32)
        for columns, weights, radix in reversed(self._words):
            word = (rest % radix).astype(np.int64)
            rest = rest // radix
            configs[:, columns] = word[:, None] // weights % self.cardinalities[columns]
        return configs

    def first_of_each(self, configs: NDArray[np.integer[Any]]) -> NDArray[np.intp]:
        """Rows that hold a configuration for the first time, in ascending order."""
        if not len(configs):
            return np.empty(0, np.intp)
        words = self.words(configs)
        # Stable, so the first row among equal ones is the one that came first.
        order = np.lexsort(words[::-1])
        fresh = np.ones(len(order), np.bool_)
        fresh[1:] = np.any([word[order][1:] != word[order][:-1] for word in words], axis=0)
        return np.sort(order[fresh])


class ConfigSet:
    """A set of configurations that is asked for membership many rows at a time.

    Args:
        radix: numbers the configurations.
        size: how many numbers there are.
        configs: the members, shape (m, columns), in range.

    Attributes:
        keys: identities of the members, ascending and distinct, shape (m,).

    Raises:
        ValueError: there is no member.
    """

    def __init__(self, radix: MixedRadix, size: int, configs: NDArray[np.integer[Any]]) -> None:
        if not len(configs):
            raise ValueError("a space that lists its configurations needs at least one")
        self.keys = np.unique(radix.encode(np.asarray(configs)))
        self._flags: NDArray[np.bool_] | None = None
        if size <= _BITMAP_LIMIT:
            self._flags = np.zeros(size, np.bool_)
            self._flags[self.keys] = True

    @property
    def digest(self) -> str:
        """A digest of the members."""
        return hashlib.sha256(",".join(map(str, self.keys.tolist())).encode()).hexdigest()[:16]

    def holds(self, keys: NDArray[Any]) -> NDArray[np.bool_]:
        """Which identities are members', shape (n,)."""
        found: NDArray[np.bool_]
        if self._flags is not None:
            found = self._flags[keys]
        else:
            place = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
            found = np.asarray(self.keys[place] == keys, np.bool_)
        return found


Resolve = Callable[[tuple[int, ...]], Sequence[int] | None]
"""What a legal configuration becomes when its program is made: itself, another one that the
compiler takes in its place, or None if there is no such program. It may take milliseconds, so only
configurations that are about to be measured are asked about."""


def resolved(resolve: Resolve | None, configs: NDArray[np.int32]) -> NDArray[np.int32]:
    """What legal configurations become when their programs are made, shape (n, knobs).

    Args:
        resolve: tells it of one; None if every configuration stays as it is.
        configs: legal ones.

    Returns:
        Rows of configurations without a program are -1, which is not legal.
    """
    if resolve is None:
        return configs
    made = [resolve(tuple(row)) for row in configs.tolist()]
    none = (-1,) * configs.shape[1]
    rows = [none if config is None else config for config in made]
    return np.array(rows, np.int32).reshape(configs.shape)
