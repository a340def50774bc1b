"""Random inputs and attributes of operators, for ``attribute_cases.py``.

Functions of ``attribute_layers.py``, ``attribute_arrays.py`` and ``attribute_numbers.py`` draw the
inputs and the attributes of an operator. They may draw what the standard does not take, which is
then drawn again. Extents are small, and numbers of quantization are powers of two, so that no
rounding decides on an answer.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import ml_dtypes  # noqa: F401 - NumPy knows bfloat16 and types of eight bits by it
import numpy as np
from onnx import helper

FLOATS = ("float32", "float32", "float32", "float32", "float64", "float16")


WHOLES = ("int64", "int32", "int8", "uint8", "int16", "uint16", "uint32", "uint64")


@attrs.frozen
class Known:
    """An input that is a constant of the model; in versions that have it so, an attribute."""

    value: Any
    name: str = ""
    kind: str = "int64"


@attrs.define
class Operator:
    """An operator that was drawn.

    Attributes:
        inputs: arrays, ``Known`` ones, or None for what is left out.
        attributes: by name; None for what is left out.
        outputs: how many are named.
    """

    inputs: Sequence[Any]
    attributes: Mapping[str, Any] = attrs.field(factory=dict)
    outputs: int = 1


class Draw:
    """Draws values of a case."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def one(self, *values: Any) -> Any:
        """One of some values."""
        return values[self.rng.integers(len(values))]

    def yes(self, share: float = 0.5) -> bool:
        """Whether something happens."""
        return bool(self.rng.random() < share)

    def some(self, value: Any, share: float = 0.5) -> Any:
        """A value, or None."""
        return value if self.yes(share) else None

    def whole(self, low: int, high: int) -> int:
        """A whole number; both bounds are possible."""
        return int(self.rng.integers(low, high + 1))

    def wholes(self, count: int, low: int, high: int) -> list[int]:
        """Several of them."""
        return [self.whole(low, high) for _ in range(count)]

    def given(self, text: str, share: float = 0.5) -> dict[str, Any]:
        """Attributes, each left out at random: ``name=low:high``, or ``name=a|b`` for one of some.

        Args:
            text: the attributes; ``@0.3`` after one is how likely the case has it.
            share: how likely that is for others.
        """
        made = {}
        for word in text.split():
            name, _, values = word.partition("=")
            values, _, likely = values.partition("@")
            low, _, high = values.partition(":")
            of = values.split("|")
            value = self.whole(int(low), int(high)) if high else _plain(self.one(*of))
            made[name] = self.some(value, float(likely or share))
        return made

    def shape(self, low: int = 1, high: int = 4) -> list[int]:
        """A shape of some axes, rarely an empty one."""
        shape = self.wholes(self.whole(low, high), 1, 5)
        return [0 if self.yes(0.02) else extent for extent in shape]

    def axis(self, shape: Sequence[int], more: int = 0) -> int:
        """An axis, often counted from the end."""
        return self.whole(-len(shape) - more, len(shape) - 1 + more)

    def axes(self, shape: Sequence[int]) -> list[int]:
        """Several axes, some of them counted from the end."""
        axes = self.rng.permutation(len(shape))[: self.whole(1, len(shape))]
        return [int(axis) - len(shape) * self.yes(0.4) for axis in axes]

    def real(self, shape: Sequence[int], kind: str = "float32") -> Any:
        """Numbers about zero; of whole types those that all such have."""
        if kind == "bool":
            return self.rng.integers(0, 2, shape).astype(kind)
        if np.dtype(kind).kind in "iu":
            return self.rng.integers(0 if kind[0] == "u" else -9, 10, shape).astype(kind)
        return np.asarray(self.rng.normal(size=shape)).astype(kind)

    def number(self, *more: str) -> str:
        """A dtype that most operators take."""
        return str(self.one(*FLOATS, *more))

    def places(self, extent: int, shape: Sequence[int], *, negative: bool = True) -> Any:
        """Indices of an axis."""
        low = -extent if negative and self.yes() else 0
        return self.rng.integers(low, extent, shape).astype(self.one("int64", "int32"))

    def part(self, shape: Sequence[int]) -> list[int]:
        """A shape that is broadcast to another one."""
        kept = shape[self.whole(0, len(shape)) :]
        return [self.one(1, extent, extent) for extent in kept]

    def scales(self, shape: Sequence[int]) -> Any:
        """Powers of two."""
        return (2.0 ** self.rng.integers(-5, -1, shape)).astype(np.float32)


def _plain(word: str) -> Any:
    try:
        return ast.literal_eval(word)
    except ValueError:
        return word


def onnx_type(name: str) -> int:
    """ONNX's number of a dtype."""
    return helper.np_dtype_to_tensor_dtype(np.dtype(name))


Families = Mapping[str, Mapping[str, Callable[[Draw], Operator]]]
"""A function that draws an operator's inputs and attributes, by family and operator."""
