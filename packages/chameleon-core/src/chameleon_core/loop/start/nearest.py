"""Which known tasks are most like another one, and what of their configurations suits it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from chameleon_core.space import DesignSpace

OF_OTHERS = 2
"""Other tasks, the most similar ones, of which the best configuration is suggested."""

_TYPE = "dtype"
"""How the names of arguments end that are types of elements."""

Known = TypeVar("Known")


def nearest(
    arguments: Mapping[str, Any],
    known: Iterable[Known],
    arguments_of: Callable[[Known], Mapping[str, Any]],
) -> list[Known]:
    """The known tasks that are most like one of the same operator, the most similar first.

    Those with most arguments in common; of several with as many, those with the nearest shapes.

    Args:
        arguments: of the task.
        known: others.
        arguments_of: gives the arguments of one of them.
    """

    def order(one: Known) -> tuple[int, float]:
        others = arguments_of(one)
        common = sum(others.get(name) == value for name, value in arguments.items())
        return -common, distance(arguments, others)

    return sorted(known, key=order)[:OF_OTHERS]


def distance(one: Any, other: Any) -> float:
    """How far shapes are apart: the sum of the logarithms of all extents' ratios."""
    mine, theirs = dict(_numbers(one)), dict(_numbers(other))
    both = mine.keys() & theirs.keys()
    missing = len(mine.keys() ^ theirs.keys())
    return missing + sum(abs(_log(mine[place]) - _log(theirs[place])) for place in both)


def same_types(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether all arguments that are types of elements are the same."""
    names = {name for name in {*one, *other} if name.endswith(_TYPE)}
    return all(one.get(name) == other.get(name) for name in names)


def encoded(space: DesignSpace, decoded: Mapping[str, Any]) -> tuple[int, ...] | None:
    """The knob indices behind decoded values, or None where the space has no such legal point."""
    if decoded.keys() != {knob.name for knob in space.knobs}:
        return None
    config = []
    for knob in space.knobs:
        choices = (i for i in range(knob.cardinality) if knob.decode(i) == decoded[knob.name])
        index = next(choices, None)
        if index is None:
            return None
        config.append(index)
    return tuple(config) if space.legal(np.array([config], np.int32))[0] else None


def _numbers(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], float]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _numbers(inner, (*place, name))
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _numbers(inner, (*place, index))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield place, float(value)


def _log(value: float) -> float:
    """Paddings may be 0, offsets below: the logarithm of what is one more, with its sign."""
    return math.copysign(math.log1p(abs(value)), value)


__all__ = ["OF_OTHERS", "distance", "encoded", "nearest", "same_types"]
