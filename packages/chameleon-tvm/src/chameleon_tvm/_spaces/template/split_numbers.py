"""Float32 numbers as sums of bfloat16 numbers, their parts, as expressions of any lanes.

A part is a word of 32 bits: the float32 number that equals the bfloat16 number.
"""

from __future__ import annotations

from chameleon_tvm._emit import Expr, constant_like, integer_like, lanes_of, vector_dtype
from chameleon_tvm._late_tvm import tirx

_MAGNITUDE = (1 << 31) - 1
_HALF = 1 << 15
"""Half a unit in the last place of a bfloat16 number, in the bits of a float32 number."""
_UPPER = 0xFFFF0000
_INFINITY = 0x7F800000
LARGEST = 0x7F7F
"""Bits of the largest finite bfloat16 number."""
TOO_LARGE = (LARGEST << 16) + _HALF
"""Bits of the smallest float32 magnitude that rounds to an infinite bfloat16 number."""
_NAN, _SIGN = 0x7FC00000, 1 << 31


def magnitude_of(value: Expr) -> Expr:
    """The magnitude of float32 numbers, as bits: integers in the same order."""
    bits = tirx.reinterpret(vector_dtype("int32", value), value)
    return bits & integer_like(_MAGNITUDE, value)


def parts_of(value: Expr, count: int) -> list[Expr]:
    """The parts of float32 numbers that do not round to infinity, the largest part first."""
    parts = []
    for _ in range(count):
        parts.append(_rounded(value))
        value = value - _number(parts[-1])
    return parts


def exact_parts_of(value: Expr, count: int) -> list[Expr]:
    """The parts of any float32 numbers, and the first part with 0 for infinities and NaN.

    Infinities and NaN are in the first part only.
    """
    magnitude = magnitude_of(value)
    infinity = integer_like(_INFINITY, value)
    finite = magnitude < infinity
    nonfinite = tirx.Select(magnitude > infinity, _word(_NAN, value), _word(_INFINITY, value))
    sign = _bits(value) & _word(_SIGN, value)
    saturated = sign | tirx.Select(finite, _word(LARGEST << 16, value), nonfinite)
    too_large = magnitude >= integer_like(TOO_LARGE, value)
    first = tirx.Select(too_large, saturated, _rounded(value))
    rest = tirx.Select(finite, value - _number(first), constant_like(0.0, value))
    return [
        first,
        *parts_of(rest, count - 1),
        tirx.Select(finite, first, _word(0, value)),
    ]


def upper_half(part: Expr) -> Expr:
    """The 16 bits of parts."""
    lanes = lanes_of(part)
    if lanes == 1:
        return tirx.Cast("uint16", part >> _word(16, part))
    # A shuffle of two vectors is one instruction, and narrowing them takes seven.
    halves = tirx.reinterpret(f"uint16x{2 * lanes}", part)
    return tirx.Shuffle([halves], [tirx.IntImm("int32", 2 * lane + 1) for lane in range(lanes)])


def pair(first: Expr, second: Expr) -> Expr:
    """Two parts as words of 32 bits, the first at the lower address."""
    return (first >> _word(16, first)) | second


def _rounded(value: Expr) -> Expr:
    """The nearest bfloat16 number, for numbers that do not round to infinity."""
    return (_bits(value) + _word(_HALF, value)) & _word(_UPPER, value)


def _bits(value: Expr) -> Expr:
    return tirx.reinterpret(vector_dtype("uint32", value), value)


def _number(part: Expr) -> Expr:
    return tirx.reinterpret(vector_dtype("float32", part), part)


def _word(bits: int, like: Expr) -> Expr:
    return integer_like(bits, like, "uint32")
