"""Rewrites complex numbers of a torch program as pairs of real ones, which TVM has.

Rotary embeddings (Su et al. 2021, section 3.2.1), spectrograms and Fourier mixing (Lee-Thorp et al.
2022) use them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from operator import getitem
from typing import Any

import attrs
import torch
from chameleon_core.plugin_api import ConfigError
from chameleon_tvm.api import WAY_OUT
from torch.utils import _pytree as pytree

from chameleon_networks._source_location import location_of

Part = Any
"""A real tensor, or a number. The number 0 stands for a missing part."""


@attrs.frozen
class ComplexPair:
    """A complex tensor or a complex number, as a pair of real ones.

    Attributes:
        real: The real part.
        imaginary: The imaginary part. The number 0 if there is none.
    """

    real: Part
    imaginary: Part = 0

    @classmethod
    def of(cls, value: Any) -> ComplexPair:
        """Convert a real tensor or a number to a pair. A pair is returned unchanged."""
        if isinstance(value, ComplexPair):
            return value
        return cls(value.real, value.imag) if isinstance(value, complex) else cls(value)

    @classmethod
    def of_last_axis(cls, both: torch.Tensor) -> ComplexPair:
        """Read a complex tensor from a real tensor whose last axis holds both parts."""
        return cls(both.select(-1, 0), both.select(-1, 1))

    @classmethod
    def of_polar(cls, size: torch.Tensor, angle: torch.Tensor) -> ComplexPair:
        """The pair of an absolute value and an angle."""
        return cls(size * torch.cos(angle), size * torch.sin(angle))

    @property
    def shape(self) -> torch.Size:
        """The shape of the tensor."""
        return (self.imaginary if is_number(self.real) else self.real).shape

    def tensors(self) -> tuple[torch.Tensor, torch.Tensor]:
        """The real and the imaginary part as tensors; at least one must be a tensor."""
        if is_number(self.imaginary):
            return self.real, torch.full_like(self.real, self.imaginary)
        if is_number(self.real):
            return torch.full_like(self.imaginary, self.real), self.imaginary
        return self.real, self.imaginary

    def each(self, function: Callable[[Any], Any]) -> ComplexPair:
        """Apply a linear function to both parts, except to the number 0."""
        return ComplexPair(
            *(one if is_zero(one) else function(one) for one in (self.real, self.imaginary))
        )

    def conjugate(self) -> ComplexPair:
        """The complex conjugate."""
        return ComplexPair(self.real, -self.imaginary)

    def __add__(self, other: ComplexPair) -> ComplexPair:
        return ComplexPair(
            add_parts(self.real, other.real), add_parts(self.imaginary, other.imaginary)
        )

    def __sub__(self, other: ComplexPair) -> ComplexPair:
        return self + ComplexPair(-other.real, -other.imaginary)

    def __mul__(self, other: ComplexPair) -> ComplexPair:
        return self.product(other, multiply_parts)

    def product(self, other: ComplexPair, multiply: Callable[[Any, Any], Any]) -> ComplexPair:
        """Multiply this pair by another one, as complex numbers."""

        def of(one: Part, two: Part) -> Part:
            return 0 if is_zero(one) or is_zero(two) else multiply(one, two)

        real, imaginary = other.real, other.imaginary
        return ComplexPair(
            add_parts(of(self.real, real), -of(self.imaginary, imaginary)),
            add_parts(of(self.real, imaginary), of(self.imaginary, real)),
        )

    def squared_size(self) -> Part:
        """The square of the absolute value."""
        return add_parts(
            multiply_parts(self.real, self.real), multiply_parts(self.imaginary, self.imaginary)
        )

    def reciprocal(self) -> ComplexPair:
        """The reciprocal, 1 over the complex number."""
        size = self.squared_size()
        return self.conjugate() * ComplexPair(1 / size if is_number(size) else size.reciprocal())


def is_number(part: Part) -> bool:
    """Whether a part is a Python number and no tensor."""
    return isinstance(part, int | float)


def is_zero(part: Part) -> bool:
    """Whether a part is the number 0."""
    return is_number(part) and part == 0


def add_parts(one: Part, two: Part) -> Part:
    """Add two real tensors or numbers, without an operator for the number 0."""
    if is_zero(one) or is_zero(two):
        return two if is_zero(one) else one
    return one + two


def multiply_parts(one: Part, two: Part) -> Part:
    """Multiply two real tensors or numbers, without an operator for the numbers 0 and 1."""
    for factor, other in ((one, two), (two, one)):
        if is_number(factor) and factor in {0, 1}:
            return other if factor else 0
    return one * two


MAX_DFT_LENGTH = 2048
"""Most numbers of a Fourier transform. Its two matrices then take 32 MiB."""

_MAX_POWER = 8
"""The largest power of a complex number that is written as products."""


def _fft(_: Any, given: Any, axes: Sequence[int], mode: int, forward: bool) -> ComplexPair:
    """``torch.fft.fftn`` or ``ifftn``."""
    pair = ComplexPair.of(given)
    extents = [pair.shape[axis] for axis in axes]
    for axis, extent in zip(axes, extents, strict=True):
        pair = _multiply_axis(pair, axis, _dft_matrix(extent, extent, extent, forward=forward))
    return _normalize(pair, extents, mode)


def _rfft(_: Any, given: Any, axes: Sequence[int], mode: int, onesided: bool) -> ComplexPair:
    """``torch.fft.rfftn``. The last of the axes is transformed first."""
    *others, last = axes
    extent = given.shape[last]
    kept = extent // 2 + 1 if onesided else extent
    pair = _multiply_axis(ComplexPair(given), last, _dft_matrix(extent, extent, kept, forward=True))
    extents = [given.shape[axis] for axis in axes]
    return _normalize(_fft(_, pair, others, 0, forward=True), extents, mode)


def _irfft(_: Any, given: ComplexPair, axes: Sequence[int], mode: int, extent: int) -> torch.Tensor:
    """``torch.fft.irfftn``, whose result has ``extent`` numbers along the last of the axes."""
    *others, last = axes
    extents = [*(given.shape[axis] for axis in others), extent]
    rows = given.shape[last]
    # What is left out is the mirror image of what is there, but for both ends.
    count = torch.arange(rows)[:, None]
    weight = 2.0 - (count == 0).float() - (2 * count == extent).float()
    matrix = _dft_matrix(extent, rows, extent, forward=False).each(lambda part: part * weight)
    made = _multiply_axis(_fft(_, given, others, 0, forward=False), last, matrix)
    return _normalize(ComplexPair(made.real), extents, mode).real


def _normalize(given: ComplexPair, extents: Sequence[int], mode: int) -> ComplexPair:
    """Normalize a transform of n numbers: mode 0 does nothing, 1 divides by sqrt(n), 2 by n."""
    count = math.prod(extents)
    return given * ComplexPair((1.0, 1.0 / math.sqrt(count), 1.0 / count)[mode])


def _multiply_axis(given: ComplexPair, axis: int, matrix: ComplexPair) -> ComplexPair:
    """Multiply a tensor by a matrix along one axis."""
    moved = given.each(lambda part: part.movedim(axis, -1))
    return moved.product(matrix, torch.matmul).each(lambda part: part.movedim(-1, axis))


def _dft_matrix(extent: int, rows: int, columns: int, *, forward: bool) -> ComplexPair:
    """The matrix ``exp(-2 pi i r c / extent)`` of rows r and columns c, or its conjugate."""
    # The remainder first: a large angle has lost its last digits.
    turns = torch.arange(rows)[:, None] * torch.arange(columns) % extent
    angle = turns.float() * (2.0 * math.pi / extent)
    # Half a turn is no exact float32; its sine is zero, and so is a real signal's imaginary part.
    sine = torch.sin(angle) * (turns * 2 % extent != 0).float()
    return ComplexPair(torch.cos(angle), -sine if forward else sine)


def is_complex(node: Any) -> bool:
    """Whether a node of a program has a complex result."""
    leaves = pytree.tree_leaves(node.meta.get("val"))
    return any(isinstance(one, torch.Tensor) and one.is_complex() for one in leaves)


def _apply_to_parts(
    operator: Any, *arguments: Any, **keywords: Any
) -> ComplexPair | list[ComplexPair]:
    """Apply a linear operator to the real and the imaginary part of complex tensors."""
    both = [
        operator(
            *pytree.tree_map_only(ComplexPair, lambda one: one.tensors()[which], arguments),  # noqa: B023
            **keywords,
        )
        for which in (0, 1)
    ]
    if isinstance(both[0], list | tuple):
        return [ComplexPair(*parts) for parts in zip(*both, strict=True)]
    return ComplexPair(*both)


def _exponential(_: Any, one: ComplexPair) -> ComplexPair:
    real, imaginary = one.tensors()
    return ComplexPair.of_polar(real.exp(), imaginary)


_CONVERTERS: dict[str, Callable[..., Any]] = {
    "add": lambda _, one, two, alpha=1: (
        ComplexPair.of(one) + ComplexPair.of(two) * ComplexPair.of(alpha)
    ),
    "sub": lambda _, one, two, alpha=1: (
        ComplexPair.of(one) - ComplexPair.of(two) * ComplexPair.of(alpha)
    ),
    "mul": lambda _, one, two: ComplexPair.of(one) * ComplexPair.of(two),
    "div": lambda _, one, two: ComplexPair.of(one) * ComplexPair.of(two).reciprocal(),
    "reciprocal": lambda _, one: one.reciprocal(),
    "neg": lambda _, one: one * ComplexPair(-1),
    "pow": lambda _, one, exponent: math.prod([one] * exponent, start=ComplexPair(1)),
    "exp": _exponential,
    "abs": lambda _, one: one.squared_size().sqrt(),
    "angle": lambda _, one: torch.atan2(*reversed(one.tensors())),
    **dict.fromkeys(
        ("mm", "bmm", "matmul"),
        lambda operator, one, two: ComplexPair.of(one).product(ComplexPair.of(two), operator),
    ),
    **dict.fromkeys(
        ("cat", "stack"),
        lambda operator, parts, *axis: _apply_to_parts(
            operator, list(map(ComplexPair.of, parts)), *axis
        ),
    ),
    "where": lambda operator, condition, *both: _apply_to_parts(
        operator, condition, *map(ComplexPair.of, both)
    ),
    **dict.fromkeys(
        ("copy", "slice_scatter", "select_scatter"),
        lambda operator, one, two, *rest: _apply_to_parts(
            operator, ComplexPair.of(one), ComplexPair.of(two), *rest
        ),
    ),
    "full": lambda operator, shape, value, **options: ComplexPair(
        operator(shape, value.real, **options), operator(shape, value.imag, **options)
    ),
    "_to_copy": lambda operator, one, **options: ComplexPair.of(one).each(
        partial(operator, **options)
    ),
    "complex": lambda _, real, imaginary: ComplexPair(real, imaginary),
    "polar": lambda _, size, angle: ComplexPair.of_polar(size, angle),
    "view_as_complex": lambda _, both: ComplexPair.of_last_axis(both),
    "view_as_real": lambda _, one: torch.stack(one.tensors(), -1),
    "real": lambda _, one: one.tensors()[0],
    "imag": lambda _, one: one.tensors()[1],
    "_fft_c2c": _fft,
    "_fft_r2c": _rfft,
    "_fft_c2r": _irfft,
    **dict.fromkeys(
        ("conj", "_conj", "conj_physical", "_conj_physical"), lambda _, one: one.conjugate()
    ),
    **dict.fromkeys(("resolve_conj", "resolve_neg"), lambda _, one: one),
    **dict.fromkeys(
        (
            *("permute", "transpose", "t", "unsqueeze", "squeeze", "expand", "slice", "select"),
            *("clone", "alias", "detach", "index", "index_select", "gather", "repeat", "flip"),
            *("roll", "unfold", "split", "split_with_sizes", "unbind", "sum", "mean", "cumsum"),
            *("diagonal", "as_strided"),
        ),
        _apply_to_parts,
    ),
    # The parts of a pair may have other strides than the complex tensor, of which torch has a view.
    **dict.fromkeys(
        ("view", "_unsafe_view", "reshape"),
        lambda _, one, shape: _apply_to_parts(torch.reshape, one, shape),
    ),
}
"""Functions by the operator's name. Each computes the operator from the operator itself and its
arguments, in which complex values are pairs."""


def has_complex(program: Any) -> bool:
    """Whether a torch program computes complex numbers anywhere."""
    return any(is_complex(node) for node in program.graph.nodes)


def remove_complex(program: Any) -> Any:
    """Rewrite a program so that pairs of real numbers replace its complex numbers."""
    # Decomposing hands on mappings of the user's program, which others run beside this one.
    program._state_dict = dict(program.state_dict)  # noqa: SLF001 - it cannot be given otherwise
    program._constants = dict(program.constants)  # noqa: SLF001
    graph = program.graph
    pairs: set[Any] = set()
    for node in list(graph.nodes):
        touched = not pairs.isdisjoint(node.all_input_nodes)
        if node.op == "output":
            if touched:
                raise ConfigError(
                    "an output of the network is complex",
                    hint="Return torch.view_as_real(...) of it.",
                )
        elif node.op == "placeholder":
            if is_complex(node):
                pairs.add(_store_as_pair(program, node))
        elif touched and node.target.__name__.startswith("_assert"):
            graph.erase_node(node)  # a check of what torch knew while it exported
        elif touched or is_complex(node):
            if is_complex(node):
                pairs.add(node)
            if node.target is not getitem:
                node.target = _pair_function(node)
    graph.eliminate_dead_code()
    program.graph_module.recompile()
    return program


def _store_as_pair(program: Any, node: Any) -> Any:
    """Store a complex constant as real numbers, and return the node that makes a pair of them."""
    signature = program.graph_signature
    known = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    if node.name not in known:
        raise ConfigError(
            f"the input {node.name} of the network is complex",
            hint="Give it torch.view_as_real(...) of it, and call view_as_complex inside.",
        )
    name = known[node.name]
    held = program.state_dict if name in program.state_dict else program.constants
    parts = torch.view_as_real(held[name].detach().resolve_conj()).clone()
    kept = isinstance(held[name], torch.nn.Parameter)
    held[name] = torch.nn.Parameter(parts, requires_grad=False) if kept else parts
    with program.graph.inserting_after(node):
        pair = program.graph.call_function(ComplexPair.of_last_axis)
    node.replace_all_uses_with(pair)
    pair.args, pair.meta = (node,), dict(node.meta)
    node.meta["val"] = torch.view_as_real(node.meta["val"])
    return pair


def _pair_function(node: Any) -> Callable[..., Any]:
    """The function of pairs that replaces a node's operator on complex numbers."""
    operator, name = node.target, node.target.__name__.partition(".")[0]
    convert, has_pairs = _CONVERTERS.get(name), is_complex(node)
    if convert is None:
        raise ConfigError(
            f"{location_of(node).sentence} cannot be compiled: it is one of complex numbers",
            hint=WAY_OUT,
        )
    if name == "pow" and node.args[1] not in range(1, _MAX_POWER + 1):
        raise ConfigError(
            f"the compiler has no power {node.args[1]} of complex numbers", hint=WAY_OUT
        )
    if name.startswith("_fft"):
        whole = node if name == "_fft_c2r" else node.args[0]
        longest = max(whole.meta["val"].shape[axis] for axis in node.args[1])
        if longest > MAX_DFT_LENGTH:
            raise ConfigError(
                f"a Fourier transform of {longest} numbers is too long",
                hint=f"Up to {MAX_DFT_LENGTH} are computed, by a matrix; compute it outside.",
            )

    def computed(*arguments: Any, **keywords: Any) -> Any:
        keywords = pytree.tree_map_only(torch.dtype, torch.dtype.to_real, keywords)
        made = convert(operator, *arguments, **keywords)
        # As torch does, which warns of it: the imaginary part is left out.
        return made if has_pairs or not isinstance(made, ComplexPair) else made.tensors()[0]

    return computed
