"""Scalars of a pipeline file, strictly: ``"3"`` and ``true`` are no integers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, get_args

from chameleon_core.pipeline.key_path import KeyPath
from chameleon_core.pipeline.nodes import Node
from chameleon_core.words import did_you_mean, listing

NAMES = {int: "an integer", float: "a number", str: "a text", bool: "true or false"}
"""What a scalar type is called in an error."""


class Scalars(KeyPath):
    """Structure hooks of scalar types, in the form that cattrs calls them."""

    def integer(self, node: Node, _: Any) -> int:
        """An integer; ``true`` and ``3.0`` are none."""
        if isinstance(node.value, int) and not isinstance(node.value, bool):
            return node.value
        raise self._wrong(node, NAMES[int])

    def number(self, node: Node, _: Any) -> float:
        """A number; not-a-number and what overflows are none."""
        value = node.value
        if isinstance(value, int | float) and not isinstance(value, bool):
            try:
                number = float(value)
            except OverflowError:
                number = math.nan
            if not math.isnan(number):
                return number
        raise self._wrong(node, NAMES[float])

    def text(self, node: Node, _: Any) -> str:
        """A text; numbers and dates have to be quoted."""
        if isinstance(node.value, str):
            return node.value
        scalar = not node.is_mapping and not node.is_sequence and node.value is not None
        raise self._wrong(node, NAMES[str], "; put it in quotes" if scalar else "")

    def flag(self, node: Node, _: Any) -> bool:
        """``true`` or ``false``."""
        if isinstance(node.value, bool):
            return node.value
        raise self._wrong(node, NAMES[bool])

    def literal(self, node: Node, kind: Any) -> Any:
        """One of a ``Literal``'s values."""
        return self._choice(node, {choice: choice for choice in get_args(kind)})

    def enum(self, node: Node, kind: Any) -> Any:
        """The member of an enumeration that has the value."""
        return self._choice(node, {member.value: member for member in kind})

    def _choice(self, node: Node, choices: Mapping[Any, Any]) -> Any:
        for choice, chosen in choices.items():
            if type(choice) is type(node.value) and choice == node.value:
                return chosen
        guess = did_you_mean(node.value, [one for one in choices if isinstance(one, str)])
        raise self._wrong(node, listing([str(choice) for choice in choices]), guess)
