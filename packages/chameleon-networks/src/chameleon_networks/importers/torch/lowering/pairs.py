"""Complex numbers as pairs of nodes of a graph, with the arithmetic of complex numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import torch

_ATEN = torch.ops.aten

Part = Any
"""A ``torch.fx.Proxy`` of a real tensor, or a number: 0 where there is no such part."""


@attrs.frozen
class Pair:
    """A complex tensor, or number.

    Attributes:
        real: its real part.
        imaginary: its imaginary part.
    """

    real: Part
    imaginary: Part = 0

    @classmethod
    def of(cls, value: Any) -> Pair:
        """A pair as it is; a real tensor or any number as a pair."""
        if isinstance(value, Pair):
            return value
        return cls(value.real, value.imag) if isinstance(value, complex) else cls(value)

    @classmethod
    def of_last_axis(cls, both: Any) -> Pair:
        """The pair whose parts lie beside each other in a last axis."""
        return cls(_ATEN.select.int(both, -1, 0), _ATEN.select.int(both, -1, 1))

    @classmethod
    def of_polar(cls, size: Any, angle: Any) -> Pair:
        """The pair of a size and an angle."""
        return cls(times(size, _ATEN.cos.default(angle)), times(size, _ATEN.sin.default(angle)))

    def tensors(self) -> tuple[Any, Any]:
        """Both parts as tensors of one shape; one of them has to be a tensor."""
        if is_number(self.imaginary):
            return self.real, _ATEN.full_like.default(self.real, self.imaginary)
        if is_number(self.real):
            return _ATEN.full_like.default(self.imaginary, self.real), self.imaginary
        return self.real, self.imaginary

    def last_axis(self) -> Any:
        """Both parts beside each other in a last axis."""
        return _ATEN.stack.default(list(self.tensors()), -1)

    def each(self, function: Callable[[Any], Any]) -> Pair:
        """A linear function of both parts; none of a part that is zero."""
        return Pair(
            *(one if is_zero(one) else function(one) for one in (self.real, self.imaginary))
        )

    def conjugate(self) -> Pair:
        """The pair mirrored at the real axis."""
        return Pair(self.real, times(self.imaginary, -1))

    def __add__(self, other: Pair) -> Pair:
        return Pair(plus(self.real, other.real), plus(self.imaginary, other.imaginary))

    def __sub__(self, other: Pair) -> Pair:
        return self + other.each(lambda part: times(part, -1))

    def __mul__(self, other: Pair) -> Pair:
        return self.product(other, times)

    def product(self, other: Pair, multiply: Callable[[Any, Any], Any]) -> Pair:
        """The product by any bilinear function of real parts."""

        def of(one: Part, two: Part) -> Part:
            return 0 if is_zero(one) or is_zero(two) else multiply(one, two)

        real, imaginary = other.real, other.imaginary
        minus = times(of(self.imaginary, imaginary), -1)
        return Pair(
            plus(of(self.real, real), minus),
            plus(of(self.real, imaginary), of(self.imaginary, real)),
        )

    def squared_size(self) -> Part:
        """The square of its distance from zero."""
        squares = (times(one, one) for one in (self.real, self.imaginary))
        return plus(*squares)

    def reciprocal(self) -> Pair:
        """One over it."""
        size = self.squared_size()
        inverse = 1 / size if is_number(size) else _ATEN.reciprocal.default(size)
        return self.conjugate() * Pair(inverse)


def is_number(part: Part) -> bool:
    """Whether a part is a number, not a tensor."""
    return isinstance(part, int | float)


def is_zero(part: Part) -> bool:
    """Whether a part is known to be zero."""
    return is_number(part) and part == 0


def plus(one: Part, two: Part) -> Part:
    """A sum; nothing is computed where a part is zero."""
    if is_zero(one) or is_zero(two):
        return two if is_zero(one) else one
    if is_number(one) and is_number(two):
        return one + two
    return _ATEN.add.Tensor(two, one) if is_number(one) else _ATEN.add.Tensor(one, two)


def times(one: Part, two: Part) -> Part:
    """A product; nothing is computed where a part is zero or one."""
    if is_number(one):
        one, two = two, one
    if is_number(one):
        return one * two
    if is_number(two):
        return 0 if two == 0 else one if two == 1 else _ATEN.mul.Tensor(one, two)
    return _ATEN.mul.Tensor(one, two)
