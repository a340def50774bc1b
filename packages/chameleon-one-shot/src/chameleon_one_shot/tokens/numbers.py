"""JSON values as named numbers: how a task and a device are told to a network."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from chameleon_core.space.knobs import magnitude

_LONGEST_SYMBOL = 32
"""Longer texts are programs: they say nothing that another task shares."""

_DIGEST = re.compile(r"[0-9a-f]{12,}")
"""Keys that name data, and say as little."""


def named_numbers(name: str, value: Any) -> dict[str, float]:
    """A JSON value as numbers under names.

    Args:
        name: of the value; parts of it get it as a prefix (``conv2d.input.1``).
        value: numbers, which come as ``magnitude`` spreads them, flags, words, and lists and
            mappings of these. A word ``w`` is a 1 under ``name=w``, and so is each word of a list.
    """
    return dict(_pairs(name, value))


def sizes(name: str, value: Any) -> dict[str, float]:
    """The numbers of a JSON value as they are, under the names of ``named_numbers``; no words."""
    return {key: number for key, number in _leaves(name, value) if isinstance(number, float)}


def is_symbol(column: str) -> bool:
    """Whether a column is 1 for one word and 0 for others, rather than a number."""
    return "=" in column


def _pairs(name: str, value: Any) -> Iterator[tuple[str, float]]:
    for key, leaf in _leaves(name, value):
        if isinstance(leaf, str):
            yield f"{key}={leaf}", 1.0
        else:
            yield key, float(magnitude(np.asarray(leaf)))


def _leaves(name: str, value: Any) -> Iterator[tuple[str, float | str]]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _leaves(f"{name}.{key}", part)
    elif isinstance(value, list | tuple):
        for index, part in enumerate(value):
            # A list of words is a set (instructions of a CPU), one of numbers has places (a shape).
            yield from _leaves(name if isinstance(part, str) else f"{name}.{index}", part)
    elif isinstance(value, str):
        if len(value) <= _LONGEST_SYMBOL and not _DIGEST.fullmatch(value):
            yield name, value
    elif isinstance(value, bool | int | float) and np.isfinite(value):
        yield name, float(value)
