"""What a check says where a contract is broken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


class ConformanceError(AssertionError):
    """A stage breaks its contract."""


def require(condition: object, sentence: str) -> None:
    """Raise with a sentence where a condition does not hold."""
    if not condition:
        raise ConformanceError(sentence)


class Unchanged:
    """Copies of arrays that a stage is given, to see that it leaves them as they are.

    Args:
        where: said first in the sentence of a failure.
        arrays: what it is given, by what a sentence calls it.
    """

    def __init__(self, where: str, arrays: Mapping[str, NDArray[Any]]) -> None:
        self._where = where
        self._given = dict(arrays)
        self._copies = {name: array.copy() for name, array in arrays.items()}

    def require(self) -> None:
        """Require that all of them are what they were.

        Raises:
            ConformanceError: with the first that is not.
        """
        for name, array in self._given.items():
            copy = self._copies[name]
            same = array.shape == copy.shape and np.array_equal(
                array, copy, equal_nan=array.dtype.kind == "f"
            )
            require(same, f"{self._where}: it changes the {name} it is given; work on a copy")
