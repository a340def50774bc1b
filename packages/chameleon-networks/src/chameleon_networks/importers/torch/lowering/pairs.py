"""Complex tensors as pairs of real tensors in a graph, with the arithmetic of complex numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import torch

_ATEN = torch.ops.aten

Part = Any
"""A ``torch.fx.Proxy`` of a real tensor, or a number. The number 0 stands for a missing part."""


@attrs.frozen
class Pair:
    """A complex tensor or a complex number, as a pair of real ones.

    Attributes:
        real: The real part.
        imaginary: The imaginary part. The number 0 if there is none.
    """

    real: Part
    imaginary: Part = 0

    @classmethod
    def of(cls, value: Any) -> Pair:
        """Convert a real tensor, or any number, to a pair. A pair is returned unchanged."""
        if isinstance(value, Pair):
            return value
        return cls(value.real, value.imag) if isinstance(value, complex) else cls(value)

    @classmethod
    def of_last_axis(cls, both: Any) -> Pair:
        """Read a complex tensor from a real tensor whose last axis holds both parts.

        Args:
            both: The real tensor, whose last axis has the real and the imaginary part.
        """
        return cls(_ATEN.select.int(both, -1, 0), _ATEN.select.int(both, -1, 1))

    @classmethod
    def of_polar(cls, size: Any, angle: Any) -> Pair:
        """The pair of an absolute value and an angle."""
        return cls(times(size, _ATEN.cos.default(angle)), times(size, _ATEN.sin.default(angle)))

    def tensors(self) -> tuple[Any, Any]:
        """The real and the imaginary part as tensors of one shape.

        At least one part must be a tensor; a part that is a number is then expanded.
        """
        if is_number(self.imaginary):
            return self.real, _ATEN.full_like.default(self.real, self.imaginary)
        if is_number(self.real):
            return _ATEN.full_like.default(self.imaginary, self.real), self.imaginary
        return self.real, self.imaginary

    def last_axis(self) -> Any:
        """Write the complex tensor as a real tensor whose last axis holds both parts."""
        return _ATEN.stack.default(list(self.tensors()), -1)

    def each(self, function: Callable[[Any], Any]) -> Pair:
        """Apply a linear function to the real and the imaginary part.

        A part that is the number 0 stays 0, without a call.

        Args:
            function: The function of one real tensor.
        """
        return Pair(
            *(one if is_zero(one) else function(one) for one in (self.real, self.imaginary))
        )

    def conjugate(self) -> Pair:
        """The complex conjugate."""
        return Pair(self.real, times(self.imaginary, -1))

    def __add__(self, other: Pair) -> Pair:
        return Pair(plus(self.real, other.real), plus(self.imaginary, other.imaginary))

    def __sub__(self, other: Pair) -> Pair:
        return self + other.each(lambda part: times(part, -1))

    def __mul__(self, other: Pair) -> Pair:
        return self.product(other, times)

    def product(self, other: Pair, multiply: Callable[[Any, Any], Any]) -> Pair:
        """The complex product with another pair.

        Args:
            other: The other pair.
            multiply: The product of two real parts, or another bilinear function of them.
        """

        def of(one: Part, two: Part) -> Part:
            return 0 if is_zero(one) or is_zero(two) else multiply(one, two)

        real, imaginary = other.real, other.imaginary
        minus = times(of(self.imaginary, imaginary), -1)
        return Pair(
            plus(of(self.real, real), minus),
            plus(of(self.real, imaginary), of(self.imaginary, real)),
        )

    def squared_size(self) -> Part:
        """The square of the absolute value."""
        squares = (times(one, one) for one in (self.real, self.imaginary))
        return plus(*squares)

    def reciprocal(self) -> Pair:
        """The reciprocal, 1 over the complex number."""
        size = self.squared_size()
        inverse = 1 / size if is_number(size) else _ATEN.reciprocal.default(size)
        return self.conjugate() * Pair(inverse)


def is_number(part: Part) -> bool:
    """Whether a part is a Python number and no tensor."""
    return isinstance(part, int | float)


def is_zero(part: Part) -> bool:
    """Whether a part is the number 0."""
    return is_number(part) and part == 0


def plus(one: Part, two: Part) -> Part:
    """The sum of two real-valued arrays, each the real or imaginary part of a complex tensor.

    No node is added to the graph if one of them is the number 0.

    Args:
        one: A tensor or a number.
        two: A tensor or a number.
    """
    if is_zero(one) or is_zero(two):
        return two if is_zero(one) else one
    if is_number(one) and is_number(two):
        return one + two
    return _ATEN.add.Tensor(two, one) if is_number(one) else _ATEN.add.Tensor(one, two)


def times(one: Part, two: Part) -> Part:
    """The product of two real parts of complex tensors, without a node if one part is 0 or 1.

    Args:
        one: A tensor or a number.
        two: A tensor or a number.
    """
    if is_number(one):
        one, two = two, one
    if is_number(one):
        return one * two
    if is_number(two):
        return 0 if two == 0 else one if two == 1 else _ATEN.mul.Tensor(one, two)
    return _ATEN.mul.Tensor(one, two)
