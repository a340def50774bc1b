"""Operators of torch on complex numbers, written with those on their real and imaginary parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from chameleon_core.errors import ConfigError
from chameleon_tvm.words import WAY_OUT
from torch.fx.proxy import Proxy

from chameleon_networks.importers.torch.lowering import fourier
from chameleon_networks.importers.torch.lowering.pairs import Pair

_ATEN = torch.ops.aten

REAL = {torch.complex64: torch.float32, torch.complex128: torch.float64}
"""The type of a complex number's parts."""

Value = Any
"""A ``Pair``, a list of them, or a ``Proxy`` of what is real."""


def is_complex(node: Any) -> bool:
    """Whether what a node of a program gives is complex, or some of it."""
    values = node.meta.get("val")
    several = values if isinstance(values, list | tuple) else [values]
    return any(getattr(one, "dtype", None) in REAL for one in several)


def by_parts(at: Proxy, arguments: Any, keywords: Any) -> Pair | list[Pair]:
    """A linear operator of each part; one of ``BY_PARTS``.

    Args:
        at: the node.
        arguments: its own, with pairs for complex ones.
        keywords: the same.
    """

    def part(which: int) -> Any:
        def of(one: Any) -> Any:
            return one.tensors()[which] if isinstance(one, Pair) else one

        return at.node.target(*_mapped(arguments, of), **keywords)

    both = part(0), part(1)
    values = at.node.meta["val"]
    if isinstance(values, list | tuple):
        return [Pair(*(one[place] for one in both)) for place in range(len(values))]
    return Pair(*both)


def _mapped(values: Any, function: Callable[[Any], Any]) -> Any:
    """Values with a function applied to those in lists and tuples, too."""
    if isinstance(values, list | tuple):
        return [_mapped(one, function) for one in values]
    return function(values)


def _joined(at: Proxy, parts: Sequence[Any], axis: int = 0) -> Pair:
    """``cat`` or ``stack``, of which some may be real."""
    both = [Pair.of(one).tensors() for one in parts]
    return Pair(*(at.node.target(list(part), axis) for part in zip(*both, strict=True)))


def _replaced(at: Proxy, one: Any, two: Any, *rest: Any) -> Pair:
    """Numbers of one with those of another in some places."""
    both = zip(Pair.of(one).tensors(), Pair.of(two).tensors(), strict=True)
    return Pair(*(at.node.target(*parts, *rest) for parts in both))


def _either(at: Proxy, condition: Any, one: Any, two: Any) -> Pair:
    both = zip(Pair.of(one).tensors(), Pair.of(two).tensors(), strict=True)
    return Pair(*(at.node.target(condition, *parts) for parts in both))


def _added(_: Any, one: Any, two: Any, *, alpha: complex = 1) -> Pair:
    return Pair.of(one) + Pair.of(two) * Pair.of(alpha)


def _subtracted(_: Any, one: Any, two: Any, *, alpha: complex = 1) -> Pair:
    return Pair.of(one) - Pair.of(two) * Pair.of(alpha)


def _divided(_: Any, one: Any, two: Any) -> Pair:
    return Pair.of(one) * Pair.of(two).reciprocal()


def _product(at: Proxy, one: Any, two: Any) -> Pair:
    return Pair.of(one).product(Pair.of(two), at.node.target)


def _size(_: Any, one: Pair) -> Any:
    return _ATEN.sqrt.default(one.squared_size())


def _angle(_: Any, one: Pair) -> Any:
    real, imaginary = one.tensors()
    return _ATEN.atan2.default(imaginary, real)


def _exponential(_: Any, one: Pair) -> Pair:
    real, imaginary = one.tensors()
    return Pair.of_polar(_ATEN.exp.default(real), imaginary)


def _power(_: Any, one: Pair, exponent: Any) -> Pair:
    if not isinstance(exponent, int) or not 1 <= exponent <= _MOST_FACTORS:
        raise ConfigError(f"the compiler has no power {exponent} of complex numbers", hint=WAY_OUT)
    found = one
    for _turn in range(exponent - 1):
        found *= one
    return found


_MOST_FACTORS = 8


def _converted(at: Proxy, one: Any, *, dtype: Any = None, **others: Any) -> Value:
    """Between types of complex numbers, or from or to real ones."""

    def to(part: Any) -> Any:
        return _ATEN._to_copy.default(part, dtype=dtype, **others)  # noqa: SLF001 - its name

    made = Pair.of(one).each(to)
    # As torch does, which warns of it: the imaginary part is left out.
    return made if is_complex(at.node) else made.real


def _full(at: Proxy, shape: Any, value: complex, **keywords: Any) -> Pair:
    # Nothing among the arguments is in a graph yet.
    parts = Pair.of(value)
    made = [
        at.tracer.create_node("call_function", at.node.target, (shape, one), keywords)
        for one in (parts.real, parts.imaginary)
    ]
    return Pair(*(Proxy(one, at.tracer) for one in made))


def _shape(at: Proxy) -> tuple[int, ...]:
    return tuple(int(extent) for extent in at.node.args[0].meta["val"].shape)


def _fourier(at: Proxy, one: Any, axes: Sequence[int], mode: int, forward: bool) -> Pair:
    return fourier.complex_to_complex(Pair.of(one), _shape(at), axes, mode, forward=forward)


def _fourier_of_real(at: Proxy, one: Any, axes: Sequence[int], mode: int, onesided: bool) -> Pair:
    return fourier.real_to_complex(one, _shape(at), axes, mode, onesided=onesided)


def _fourier_to_real(at: Proxy, one: Pair, axes: Sequence[int], mode: int, extent: int) -> Any:
    return fourier.complex_to_real(one, _shape(at), axes, mode, extent)


CONVERTERS: dict[str, Callable[..., Value]] = {
    "add": _added,
    "sub": _subtracted,
    "mul": lambda _, one, two: Pair.of(one) * Pair.of(two),
    "div": _divided,
    "reciprocal": lambda _, one: one.reciprocal(),
    "neg": lambda _, one: one * Pair(-1),
    "pow": _power,
    "exp": _exponential,
    "abs": _size,
    "angle": _angle,
    "mm": _product,
    "bmm": _product,
    "matmul": _product,
    "cat": _joined,
    "stack": _joined,
    "where": _either,
    **dict.fromkeys(("copy", "slice_scatter", "select_scatter"), _replaced),
    "full": _full,
    "_to_copy": _converted,
    "complex": lambda _, real, imaginary: Pair(real, imaginary),
    "polar": lambda _, size, angle: Pair.of_polar(size, angle),
    "view_as_complex": lambda _, both: Pair.of_last_axis(both),
    "view_as_real": lambda _, one: one.last_axis(),
    "real": lambda _, one: one.tensors()[0],
    "imag": lambda _, one: one.tensors()[1],
    "_fft_c2c": _fourier,
    "_fft_r2c": _fourier_of_real,
    "_fft_c2r": _fourier_to_real,
    **dict.fromkeys(
        ("conj", "_conj", "conj_physical", "_conj_physical"), lambda _, one: one.conjugate()
    ),
    **dict.fromkeys(("resolve_conj", "resolve_neg"), lambda _, one: one),
}
"""What computes an operator from its node and its arguments, complex ones as pairs, by name."""

BY_PARTS = frozenset(
    {
        *("view", "_unsafe_view", "reshape", "permute", "transpose", "t", "unsqueeze", "squeeze"),
        *("expand", "slice", "select", "clone", "alias", "detach", "index", "index_select"),
        *("gather", "repeat", "flip", "roll", "unfold", "split", "split_with_sizes", "unbind"),
        *("sum", "mean", "cumsum", "diagonal", "as_strided"),
    }
)
"""Names of operators that do to complex numbers what they do to each part."""
