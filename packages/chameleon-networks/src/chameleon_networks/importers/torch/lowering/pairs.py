"""Complex tensors as pairs of real tensors, with the arithmetic of complex numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import torch

Part = Any
"""A real tensor, or a number. The number 0 stands for a missing part."""


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
        """Convert a real tensor or a number to a pair. A pair is returned unchanged."""
        if isinstance(value, Pair):
            return value
        return cls(value.real, value.imag) if isinstance(value, complex) else cls(value)

    @classmethod
    def of_last_axis(cls, both: torch.Tensor) -> Pair:
        """Read a complex tensor from a real tensor whose last axis holds both parts.

        Args:
            both: The real tensor, whose last axis has the real and the imaginary part.
        """
        return cls(both.select(-1, 0), both.select(-1, 1))

    @classmethod
    def of_polar(cls, size: torch.Tensor, angle: torch.Tensor) -> Pair:
        """The pair of an absolute value and an angle."""
        return cls(size * torch.cos(angle), size * torch.sin(angle))

    @property
    def shape(self) -> torch.Size:
        """The shape of the tensor."""
        return (self.imaginary if is_number(self.real) else self.real).shape

    def tensors(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The real and the imaginary part as tensors of one shape.

        At least one part must be a tensor; a part that is a number is then expanded.
        """
        if is_number(self.imaginary):
            return self.real, torch.full_like(self.real, self.imaginary)
        if is_number(self.real):
            return torch.full_like(self.imaginary, self.real), self.imaginary
        return self.real, self.imaginary

    def each(self, function: Callable[[Any], Any]) -> Pair:
        """Apply a linear function, such as a reshape, to the real and the imaginary part.

        A part that is the number 0 stays 0, without a call.

        Args:
            function: The function of one real tensor.
        """
        return Pair(
            *(one if is_zero(one) else function(one) for one in (self.real, self.imaginary))
        )

    def conjugate(self) -> Pair:
        """The complex conjugate."""
        return Pair(self.real, -self.imaginary)

    def __add__(self, other: Pair) -> Pair:
        return Pair(plus(self.real, other.real), plus(self.imaginary, other.imaginary))

    def __sub__(self, other: Pair) -> Pair:
        return self + Pair(-other.real, -other.imaginary)

    def __mul__(self, other: Pair) -> Pair:
        return self.product(other, times)

    def product(self, other: Pair, multiply: Callable[[Any, Any], Any]) -> Pair:
        """Multiply this pair by another one, as complex numbers.

        Args:
            other: The other pair.
            multiply: The product of two real parts, or another bilinear function of them.
        """

        def of(one: Part, two: Part) -> Part:
            return 0 if is_zero(one) or is_zero(two) else multiply(one, two)

        real, imaginary = other.real, other.imaginary
        return Pair(
            plus(of(self.real, real), -of(self.imaginary, imaginary)),
            plus(of(self.real, imaginary), of(self.imaginary, real)),
        )

    def squared_size(self) -> Part:
        """The square of the absolute value."""
        return plus(times(self.real, self.real), times(self.imaginary, self.imaginary))

    def reciprocal(self) -> Pair:
        """The reciprocal, 1 over the complex number."""
        size = self.squared_size()
        return self.conjugate() * Pair(1 / size if is_number(size) else size.reciprocal())


def is_number(part: Part) -> bool:
    """Whether a part is a Python number and no tensor."""
    return isinstance(part, int | float)


def is_zero(part: Part) -> bool:
    """Whether a part is the number 0."""
    return is_number(part) and part == 0


def plus(one: Part, two: Part) -> Part:
    """Add two real tensors or numbers, which are real or imaginary parts of complex tensors.

    If one of them is the number 0, the other one is returned without an addition.
    """
    if is_zero(one) or is_zero(two):
        return two if is_zero(one) else one
    return one + two


def times(one: Part, two: Part) -> Part:
    """Multiply two real tensors or numbers, which are real or imaginary parts of complex tensors.

    If one of them is the number 0 or 1, no operator is called.
    """
    for factor, other in ((one, two), (two, one)):
        if is_number(factor) and factor in {0, 1}:
            return other if factor else 0
    return one * two
