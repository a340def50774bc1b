"""Knobs: the named, finite choices of a design space, and their features for cost models."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from chameleon_core._errors import ConfigError

_SHOWN = 8
"""Number of a knob's values that an error message names."""

Scalar = bool | int | float | str


@attrs.frozen(kw_only=True)
class Knob(ABC):
    """A knob: a finite, ordered list of values.

    Attributes:
        name: the name of the knob, unique in its space, such as ``tile_f`` or ``unroll``.
        when: the condition under which the knob applies, as a pair ``(knob, indices)``. The knob
            applies only if the named earlier knob applies and has one of these indices; otherwise
            its index is 0. None for a knob that always applies.
    """

    name: str
    when: tuple[str, tuple[int, ...]] | None = None

    @property
    def cardinality(self) -> int:
        """Number of values, at least 1."""
        return len(self.values)

    @abstractmethod
    def decode(self, index: int) -> Any:
        """The value of the knob at an index, as a plain Python value that JSON can hold.

        Args:
            index: the index of the value.
        """

    def encode(self, value: Any) -> int:
        """The index of a value.

        Args:
            value: a value, in the form that ``decode`` returns. A list counts as a tuple.

        Raises:
            ConfigError: the knob has no such value.
        """
        wanted = _plain(value)
        for index in range(self.cardinality):
            if self.decode(index) == wanted:
                return index
        known = [repr(self.decode(index)) for index in range(min(self.cardinality, _SHOWN))]
        more = f" and {self.cardinality - _SHOWN} more" if self.cardinality > _SHOWN else ""
        raise ConfigError(
            f"knob '{self.name}' has no value {value!r}",
            hint=f"its values are {', '.join(known)}{more}",
        )

    @staticmethod
    def magnitude(values: NDArray[Any]) -> NDArray[np.float32]:
        """Convert numbers to features ``sign(x) * log2(1 + |x|)``.

        Powers of two, such as tile sizes, are then evenly spaced.

        Args:
            values: numbers, in an array of any shape.
        """
        values = np.asarray(values).astype(np.float32)
        spread: NDArray[np.float32] = np.sign(values) * np.log2(1 + np.abs(values))
        return spread

    @property
    @abstractmethod
    def values(self) -> NDArray[Any]:
        """All values as an array of shape (cardinality,) or (cardinality, parts)."""

    @property
    @abstractmethod
    def feature_names(self) -> tuple[str, ...]:
        """The name of each column of ``feature_table``."""

    @property
    @abstractmethod
    def feature_table(self) -> NDArray[np.float32]:
        """Numbers that describe each value to cost models, shape (cardinality, features)."""


def _scalars(options: Iterable[Scalar]) -> tuple[Scalar, ...]:
    return tuple(options)


@attrs.frozen(kw_only=True)
class Choice(Knob):
    """A knob with listed values: numbers or strings, in the order of the list."""

    options: tuple[Scalar, ...] = attrs.field(converter=_scalars)

    @options.validator
    def _check(self, _attribute: object, options: tuple[Scalar, ...]) -> None:
        if not options:
            raise ValueError(f"knob {self.name!r} has no options")
        if len(set(options)) != len(options):
            raise ValueError(f"knob {self.name!r} has an option twice")
        if len({isinstance(option, str) for option in options}) > 1:
            raise ValueError(f"knob {self.name!r} mixes numbers and strings")

    @property
    def cardinality(self) -> int:
        return len(self.options)

    def decode(self, index: int) -> Scalar:
        return self.options[index]

    @property
    def values(self) -> NDArray[Any]:
        return np.asarray(self.options)

    @property
    def _symbolic(self) -> bool:
        return any(isinstance(option, str) for option in self.options)

    @property
    def _aligned_unevenly(self) -> bool:
        """Whether larger values are neither always more nor always less divisible by 2."""
        values = self.values
        if not np.issubdtype(values.dtype, np.integer):
            return False
        rises = np.diff(alignment(values[np.argsort(values)]))
        return bool((rises > 0).any() and (rises < 0).any())

    @property
    def feature_names(self) -> tuple[str, ...]:
        if self._symbolic:
            return tuple(f"{self.name}={option}" for option in self.options)
        if self._aligned_unevenly:
            return (self.name, aligned(self.name))
        return (self.name,)

    @property
    def feature_table(self) -> NDArray[np.float32]:
        if self._symbolic:
            return np.eye(len(self.options), dtype=np.float32)
        if self._aligned_unevenly:
            return np.stack([self.magnitude(self.values), alignment(self.values)], axis=1)
        return self.magnitude(self.values)[:, None]


def aligned(name: str) -> str:
    """The name of the feature column that holds the ``alignment`` of a knob's values.

    Args:
        name: the name of the knob.
    """
    return f"{name}.alignment"


def alignment(values: NDArray[Any]) -> NDArray[np.float32]:
    """How often each integer can be halved, as a feature for cost models; 0 for 0.

    Vectors, cache lines, banks and warps are powers of two, so 64 threads perform more like 128
    threads than like 65. A cost model cannot learn this from the magnitude of a number.

    Args:
        values: integers, in an array of any shape.
    """
    values = np.abs(np.asarray(values).astype(np.int64))
    lowest_bit = np.where(values == 0, 1, values & -values)
    exponents: NDArray[np.float32] = np.log2(lowest_bit).astype(np.float32)
    return exponents


def _plain(value: Any) -> Any:
    """A value in the form that ``Knob.decode`` returns."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    return tuple(value) if isinstance(value, list) else value


@attrs.frozen(kw_only=True)
class Factorization(Knob):
    """A knob that splits a loop: each value is ``parts`` factors whose product is ``extent``.

    The factorizations are in lexicographic order, so one index step is a small change of the tile.

    Attributes:
        extent: the number of the loop's iterations.
        parts: the number of factors, the outermost first.
        max_innermost: the largest allowed last factor, or None for no limit.
    """

    extent: int
    parts: int = 2
    max_innermost: int | None = None

    def __attrs_post_init__(self) -> None:
        if self.extent < 1 or self.parts < 1:
            raise ValueError(f"knob {self.name!r}: extent and parts must be at least 1")
        if not len(self.values):
            raise ValueError(
                f"knob {self.name!r}: {self.extent} has no factorisation into {self.parts} "
                f"parts with a last factor of at most {self.max_innermost}"
            )

    def decode(self, index: int) -> tuple[int, ...]:
        return tuple(int(factor) for factor in self.values[index])

    @property
    def values(self) -> NDArray[np.int64]:
        table = _factorizations(self.extent, self.parts)
        if self.max_innermost is not None:
            table = table[table[:, -1] <= self.max_innermost]
        return table

    def index_of(self, factors: tuple[int, ...]) -> int:
        """The index of a factorization.

        Args:
            factors: the factors, the outermost first.

        Raises:
            KeyError: the knob has no such factorization.
        """
        if len(factors) != self.parts:
            raise KeyError(factors)
        rows = np.flatnonzero((self.values == np.asarray(factors)).all(axis=1))
        if not len(rows):
            raise KeyError(factors)
        return int(rows[0])

    @staticmethod
    @cache
    def divisors(extent: int) -> tuple[int, ...]:
        """All divisors of a number, ascending."""
        small = [d for d in range(1, math.isqrt(extent) + 1) if extent % d == 0]
        return tuple(sorted({*small, *(extent // d for d in small)}))

    @property
    def feature_names(self) -> tuple[str, ...]:
        return tuple(f"{self.name}.{part}" for part in range(self.parts))

    @property
    def feature_table(self) -> NDArray[np.float32]:
        return np.log2(self.values).astype(np.float32)


@cache
def _factorizations(extent: int, parts: int) -> NDArray[np.int64]:
    """All ordered factorizations, shape (count, parts), in lexicographic order, read-only."""
    if parts == 1:
        rows = np.array([[extent]], dtype=np.int64)
    else:
        rows = np.concatenate(
            [
                np.insert(_factorizations(extent // first, parts - 1), 0, first, axis=1)
                for first in Factorization.divisors(extent)
            ]
        )
    rows.flags.writeable = False
    return rows


Values = Mapping[str, NDArray[Any]]
"""The values of each knob in n configurations, by knob name: shape (n,) or (n, parts)."""


def recorded_features(
    choices: Sequence[Mapping[str, Any]], names: Sequence[str] | None = None
) -> tuple[Sequence[str], NDArray[np.float32]]:
    """Features of recorded knob values (``DesignSpace.recorded_features``)."""
    if names is None:
        known_names = (
            name for decoded in choices for knob in decoded.items() for name, _ in _features(*knob)
        )
        names = tuple(dict.fromkeys(known_names))
    out = np.full((len(choices), len(names)), np.nan, np.float32)
    for row, decoded in enumerate(choices):
        known = {name: value for knob in decoded.items() for name, value in _features(*knob)}
        symbols = tuple(f"{knob}=" for knob, value in decoded.items() if isinstance(value, str))
        for column, name in enumerate(names):
            if name in known:
                out[row, column] = known[name]
            elif name.startswith(symbols):
                out[row, column] = 0.0
    return names, out


def _features(knob: str, value: Any) -> Iterator[tuple[str, float]]:
    """Names and values of the features of one knob's value.

    A string has only the feature of its own value; those of the knob's other values are 0.
    """
    if isinstance(value, str):
        yield f"{knob}={value}", 1.0
    elif isinstance(value, list | tuple):
        for part, factor in enumerate(value):
            yield f"{knob}.{part}", float(np.log2(np.float64(factor)))
    else:
        yield knob, float(Knob.magnitude(np.asarray(value)))
        if isinstance(value, int):
            yield aligned(knob), float(alignment(np.asarray(value)))
