"""Converts JSON values to named numbers, for the tokens of tasks and devices."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from chameleon_core.plugin_api import Knob

_LONGEST_SYMBOL = 32
"""The longest string that is used. Longer strings, such as programs, are different in each task."""

_DIGEST = re.compile(r"[0-9a-f]{12,}")
"""Digests, which are left out since they are different in each task."""


def named_numbers(name: str, value: Any) -> dict[str, float]:
    """Convert a JSON value to numbers with names."""
    return dict(_pairs(name, value))


def sizes(name: str, value: Any) -> dict[str, float]:
    """The numbers in a JSON value without scaling, with names as in ``named_numbers``."""
    return {key: number for key, number in _leaves(name, value) if isinstance(number, float)}


def is_symbol(column: str) -> bool:
    """Whether a named number stands for a string: 1 if the value has this string, else 0."""
    return "=" in column


def _pairs(name: str, value: Any) -> Iterator[tuple[str, float]]:
    for key, leaf in _leaves(name, value):
        if isinstance(leaf, str):
            yield f"{key}={leaf}", 1.0
        else:
            yield key, float(Knob.magnitude(np.asarray(leaf)))


def _leaves(name: str, value: Any) -> Iterator[tuple[str, float | str]]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _leaves(f"{name}.{key}", part)
    elif isinstance(value, list | tuple):
        for index, part in enumerate(value):
            # Strings are a set, such as instructions of a CPU; numbers have places, as in a shape.
            yield from _leaves(name if isinstance(part, str) else f"{name}.{index}", part)
    elif isinstance(value, str):
        if len(value) <= _LONGEST_SYMBOL and not _DIGEST.fullmatch(value):
            yield name, value
    elif isinstance(value, bool | int | float) and np.isfinite(value):
        yield name, float(value)
