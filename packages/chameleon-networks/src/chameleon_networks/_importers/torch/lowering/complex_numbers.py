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
class Complex:
    """A complex tensor or a complex number, as a pair of real ones.

    Attributes:
        real: The real part.
        imaginary: The imaginary part. The number 0 if there is none.
    """

    real: Part
    imaginary: Part = 0

    @classmethod
    def of(cls, value: Any) -> Complex:
        """Convert a real tensor or a number to a pair. A pair is returned unchanged."""
        if isinstance(value, Complex):
            return value
        return cls(value.real, value.imag) if isinstance(value, complex) else cls(value)

    @classmethod
    def of_last_axis(cls, parts: torch.Tensor) -> Complex:
        """Read a complex tensor from a real tensor whose last axis holds both parts."""
        return cls(parts.select(-1, 0), parts.select(-1, 1))

    @classmethod
    def of_polar(cls, magnitude: torch.Tensor, angle: torch.Tensor) -> Complex:
        """The pair of an absolute value and an angle."""
        return cls(magnitude * torch.cos(angle), magnitude * torch.sin(angle))

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

    def each(self, function: Callable[[Any], Any]) -> Complex:
        """Apply a linear function to both parts, except to the number 0."""
        return Complex(*(x if is_zero(x) else function(x) for x in (self.real, self.imaginary)))

    def conjugate(self) -> Complex:
        """The complex conjugate."""
        return Complex(self.real, -self.imaginary)

    def __add__(self, other: Complex) -> Complex:
        return Complex(add_parts(self.real, other.real), add_parts(self.imaginary, other.imaginary))

    def __sub__(self, other: Complex) -> Complex:
        return self + Complex(-other.real, -other.imaginary)

    def __mul__(self, other: Complex) -> Complex:
        return self.product(other, multiply_parts)

    def product(self, other: Complex, multiply: Callable[[Any, Any], Any]) -> Complex:
        """Multiply this pair by another one, as complex numbers."""

        def multiply_unless_zero(x: Part, y: Part) -> Part:
            return 0 if is_zero(x) or is_zero(y) else multiply(x, y)

        real, imaginary = other.real, other.imaginary
        return Complex(
            add_parts(
                multiply_unless_zero(self.real, real),
                -multiply_unless_zero(self.imaginary, imaginary),
            ),
            add_parts(
                multiply_unless_zero(self.real, imaginary),
                multiply_unless_zero(self.imaginary, real),
            ),
        )

    def __truediv__(self, other: Complex) -> Complex:
        """Divide by Smith's algorithm, as torch does: no part overflows, and infinities divide."""
        if is_number(other.real) and is_number(other.imaginary):
            return self * Complex.of(1 / complex(other.real, other.imaginary))
        if is_zero(other.imaginary):
            divisor = torch.where(other.real == 0, 0.0, other.real)  # without a sign
            return self.each(lambda part: part / divisor)
        real, imaginary = other.tensors()
        is_real_larger = real.abs() >= imaginary.abs()
        larger = torch.where(is_real_larger, real, imaginary)
        smaller = torch.where(is_real_larger, imaginary, real)
        ratio = smaller / larger
        scale = (larger + smaller * ratio).reciprocal()
        x, y = (part * scale for part in (self.real, self.imaginary))
        both = (
            torch.where(is_real_larger, x + y * ratio, x * ratio + y),
            torch.where(is_real_larger, y - x * ratio, y * ratio - x),
        )
        ends = (self.real / real.abs(), self.imaginary / imaginary.abs())
        return Complex(*(torch.where(larger == 0, *pair) for pair in zip(ends, both, strict=True)))


def is_number(part: Part) -> bool:
    """Whether a part is a Python number and no tensor."""
    return isinstance(part, int | float)


def is_zero(part: Part) -> bool:
    """Whether a part is the number 0."""
    return is_number(part) and part == 0


def add_parts(x: Part, y: Part) -> Part:
    """Add two real tensors or numbers, without an operator for the number 0."""
    if is_zero(x) or is_zero(y):
        return y if is_zero(x) else x
    return x + y


def multiply_parts(x: Part, y: Part) -> Part:
    """Multiply two real tensors or numbers, without an operator for the numbers 0 and 1."""
    for factor, other in ((x, y), (y, x)):
        if is_number(factor) and factor in {0, 1}:
            return other if factor else 0
    return x * y


MAX_DFT_LENGTH = 2048
"""Most numbers of a Fourier transform. Its two matrices then take 32 MiB."""

_MAX_POWER = 8
"""The largest power of a complex number that is written as products."""


def _fft(_: Any, tensor: Any, axes: Sequence[int], mode: int, forward: bool) -> Complex:
    """``torch.fft.fftn`` or ``ifftn``."""
    pair = Complex.of(tensor)
    extents = [pair.shape[axis] for axis in axes]
    for axis, extent in zip(axes, extents, strict=True):
        pair = _multiply_axis(pair, axis, _dft_matrix(extent, extent, extent, forward=forward))
    return _normalize(pair, extents, mode)


def _rfft(_: Any, tensor: Any, axes: Sequence[int], mode: int, onesided: bool) -> Complex:
    """``torch.fft.rfftn``. The last of the axes is transformed first."""
    *others, last = axes
    extent = tensor.shape[last]
    columns = extent // 2 + 1 if onesided else extent
    pair = _multiply_axis(Complex(tensor), last, _dft_matrix(extent, extent, columns, forward=True))
    extents = [tensor.shape[axis] for axis in axes]
    return _normalize(_fft(_, pair, others, 0, forward=True), extents, mode)


def _irfft(_: Any, tensor: Complex, axes: Sequence[int], mode: int, extent: int) -> torch.Tensor:
    """``torch.fft.irfftn``, whose result has ``extent`` numbers along the last of the axes."""
    *others, last = axes
    extents = [*(tensor.shape[axis] for axis in others), extent]
    rows = tensor.shape[last]
    # The missing half of the spectrum mirrors this one, apart from both ends.
    count = torch.arange(rows)[:, None]
    weight = 2.0 - (count == 0).float() - (2 * count == extent).float()
    matrix = _dft_matrix(extent, rows, extent, forward=False).each(lambda part: part * weight)
    result = _multiply_axis(_fft(_, tensor, others, 0, forward=False), last, matrix)
    return _normalize(Complex(result.real), extents, mode).real


def _normalize(tensor: Complex, extents: Sequence[int], mode: int) -> Complex:
    """Normalize a transform of n numbers: mode 0 does nothing, 1 divides by sqrt(n), 2 by n."""
    count = math.prod(extents)
    return tensor * Complex((1.0, 1.0 / math.sqrt(count), 1.0 / count)[mode])


def _multiply_axis(tensor: Complex, axis: int, matrix: Complex) -> Complex:
    """Multiply a tensor by a matrix along one axis, in the tensor's dtype."""
    moved = tensor.each(lambda part: part.movedim(axis, -1))
    matrix = matrix.each(lambda part: part.to(tensor.real.dtype))
    return moved.product(matrix, torch.matmul).each(lambda part: part.movedim(-1, axis))


def _dft_matrix(extent: int, rows: int, columns: int, *, forward: bool) -> Complex:
    """The matrix ``exp(-2 pi i r c / extent)`` of rows r and columns c, or its conjugate."""
    # The remainder comes first, because large angles lose digits.
    steps_of_angle = torch.arange(rows)[:, None] * torch.arange(columns) % extent
    angle = steps_of_angle.double() * (2.0 * math.pi / extent)
    # pi is no exact float64; the sine of half a turn is set to 0 exactly.
    sine = torch.sin(angle) * (steps_of_angle * 2 % extent != 0).double()
    return Complex(torch.cos(angle), -sine if forward else sine)


def is_complex(node: Any) -> bool:
    """Whether a node of a program has a complex result."""
    leaves = pytree.tree_leaves(node.meta.get("val"))
    return any(isinstance(x, torch.Tensor) and x.is_complex() for x in leaves)


def _apply_to_parts(operator: Any, *arguments: Any, **keywords: Any) -> Complex | list[Complex]:
    """Apply a linear operator to the real and the imaginary part of complex tensors."""
    results = [
        operator(
            *pytree.tree_map_only(Complex, lambda x: x.tensors()[part_index], arguments),  # noqa: B023
            **keywords,
        )
        for part_index in (0, 1)
    ]
    if isinstance(results[0], list | tuple):
        return [Complex(*parts) for parts in zip(*results, strict=True)]
    return Complex(*results)


def _angle(x: Complex) -> Any:
    return torch.atan2(*reversed(x.tensors()))


def _equal(x: Any, y: Any) -> Any:
    (real, imaginary), y = Complex.of(x).tensors(), Complex.of(y)
    return torch.logical_and(torch.eq(real, y.real), torch.eq(imaginary, y.imaginary))


def _power(_: Any, x: Complex, exponent: float) -> Complex:
    """A power with a whole exponent."""
    power = math.prod([x] * abs(int(exponent)), start=Complex(1))
    return Complex(1) / power if exponent < 0 else power


def _exponential(_: Any, x: Complex) -> Complex:
    real, imaginary = x.tensors()
    return Complex.of_polar(real.exp(), imaginary)


_CONVERTERS: dict[str, Callable[..., Any]] = {
    "add": lambda _, x, y, alpha=1: Complex.of(x) + Complex.of(y) * Complex.of(alpha),
    "sub": lambda _, x, y, alpha=1: Complex.of(x) - Complex.of(y) * Complex.of(alpha),
    "mul": lambda _, x, y: Complex.of(x) * Complex.of(y),
    "div": lambda _, x, y: Complex.of(x) / Complex.of(y),
    "reciprocal": lambda _, x: Complex(1) / x,
    "neg": lambda _, x: x * Complex(-1),
    "pow": _power,
    "exp": _exponential,
    "log": lambda _, x: Complex(torch.hypot(*x.tensors()).log(), _angle(x)),
    "sqrt": lambda _, x: Complex.of_polar(torch.hypot(*x.tensors()).sqrt(), _angle(x) / 2),
    "abs": lambda _, x: torch.hypot(*x.tensors()),
    "angle": lambda _, x: _angle(x),
    "isnan": lambda _, x: torch.logical_or(*map(torch.isnan, x.tensors())),
    "eq": lambda _, x, y: _equal(x, y),
    "ne": lambda _, x, y: _equal(x, y).logical_not(),
    "addmm": lambda _, z, x, y, beta=1, alpha=1: (
        Complex.of(z) * Complex.of(beta)
        + Complex.of(x).product(Complex.of(y), torch.mm) * Complex.of(alpha)
    ),
    "linalg_vector_norm": lambda operator, x, *rest, **options: operator(
        torch.hypot(*x.tensors()), *rest, **options
    ),
    **dict.fromkeys(
        ("mm", "bmm", "matmul"),
        lambda operator, x, y: Complex.of(x).product(Complex.of(y), operator),
    ),
    **dict.fromkeys(
        ("cat", "stack"),
        lambda operator, parts, *axis: _apply_to_parts(
            operator, list(map(Complex.of, parts)), *axis
        ),
    ),
    "where": lambda operator, condition, *operands: _apply_to_parts(
        operator, condition, *map(Complex.of, operands)
    ),
    **dict.fromkeys(
        ("copy", "slice_scatter", "select_scatter"),
        lambda operator, x, y, *rest: _apply_to_parts(
            operator, Complex.of(x), Complex.of(y), *rest
        ),
    ),
    "scalar_tensor": lambda operator, value, **options: Complex(
        operator(complex(value).real, **options), operator(complex(value).imag, **options)
    ),
    "full": lambda operator, shape, value, **options: Complex(
        operator(shape, value.real, **options), operator(shape, value.imag, **options)
    ),
    **dict.fromkeys(
        ("empty", "zeros"),
        lambda operator, *shape, **options: Complex(
            operator(*shape, **options), operator(*shape, **options)
        ),
    ),
    "constant_pad_nd": lambda operator, x, widths, value=0: Complex(
        *(
            operator(part, widths, fill)
            for part, fill in zip(x.tensors(), (value.real, value.imag), strict=True)
        )
    ),
    "_to_copy": lambda operator, x, **options: Complex.of(x).each(partial(operator, **options)),
    "complex": lambda _, real, imaginary: Complex(real, imaginary),
    "polar": lambda _, magnitude, angle: Complex.of_polar(magnitude, angle),
    "view_as_complex": lambda _, x: Complex.of_last_axis(x),
    "view_as_real": lambda _, x: torch.stack(x.tensors(), -1),
    "real": lambda _, x: x.tensors()[0],
    "imag": lambda _, x: x.tensors()[1],
    "_fft_c2c": _fft,
    "_fft_r2c": _rfft,
    "_fft_c2r": _irfft,
    **dict.fromkeys(
        ("conj", "_conj", "conj_physical", "_conj_physical"), lambda _, x: x.conjugate()
    ),
    **dict.fromkeys(("resolve_conj", "resolve_neg"), lambda _, x: x),
    **dict.fromkeys(
        (
            *("permute", "transpose", "t", "unsqueeze", "squeeze", "expand", "slice", "select"),
            *("clone", "alias", "detach", "index", "index_select", "gather", "repeat", "flip"),
            *("roll", "unfold", "split", "split_with_sizes", "unbind", "sum", "mean", "cumsum"),
            *("diagonal", "as_strided", "_unsafe_index", "empty_like", "zeros_like"),
            *(f"{kind}_pad{axes}d" for kind in ("reflection", "replication") for axes in (1, 2, 3)),
        ),
        _apply_to_parts,
    ),
    # Unlike the complex tensor, the parts may have strides that allow no view.
    **dict.fromkeys(
        ("view", "_unsafe_view", "reshape"),
        lambda _, x, shape: _apply_to_parts(torch.reshape, x, shape),
    ),
}
"""Functions by the operator's name. Each computes the operator from the operator itself and its
arguments, in which complex values are pairs."""


def has_complex(program: Any) -> bool:
    """Whether a torch program computes complex numbers anywhere."""
    return any(is_complex(node) for node in program.graph.nodes)


def remove_complex(program: Any) -> Any:
    """Rewrite a program so that pairs of real numbers replace its complex numbers."""
    # The decomposed program shares mappings with the user's program, which must not change.
    program._state_dict = dict(program.state_dict)  # noqa: SLF001 - the constructor has no argument for it
    program._constants = dict(program.constants)  # noqa: SLF001
    graph = program.graph
    pairs: set[Any] = set()
    for node in list(graph.nodes):
        reads_pair = not pairs.isdisjoint(node.all_input_nodes)
        if node.op == "output":
            if reads_pair:
                raise ConfigError(
                    "an output of the network is complex",
                    hint="Return torch.view_as_real(...) of it.",
                )
        elif node.op == "placeholder":
            if is_complex(node):
                pairs.add(_store_as_pair(program, node))
        elif reads_pair and node.target.__name__.startswith("_assert"):
            graph.erase_node(node)  # an assertion of torch's export
        elif reads_pair or is_complex(node):
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
    targets = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    if node.name not in targets:
        raise ConfigError(
            f"the input {node.name} of the network is complex",
            hint="Give it torch.view_as_real(...) of it, and call view_as_complex inside.",
        )
    name = targets[node.name]
    tensors = program.state_dict if name in program.state_dict else program.constants
    parts = torch.view_as_real(tensors[name].detach().resolve_conj()).clone()
    is_parameter = isinstance(tensors[name], torch.nn.Parameter)
    tensors[name] = torch.nn.Parameter(parts, requires_grad=False) if is_parameter else parts
    with program.graph.inserting_after(node):
        pair = program.graph.call_function(Complex.of_last_axis)
    node.replace_all_uses_with(pair)
    pair.args, pair.meta = (node,), dict(node.meta)
    node.meta["val"] = torch.view_as_real(node.meta["val"])
    return pair


def _pair_function(node: Any) -> Callable[..., Any]:
    """The function of pairs that replaces a node's operator on complex numbers."""
    operator, name = node.target, node.target.__name__.partition(".")[0]
    convert, is_complex_result = _CONVERTERS.get(name), is_complex(node)
    if convert is None:
        raise ConfigError(
            f"{location_of(node).sentence} cannot be compiled: it is one of complex numbers",
            hint=WAY_OUT,
        )
    if name == "pow" and (
        isinstance(node.args[1], torch.fx.Node) or abs(node.args[1]) not in range(1, _MAX_POWER + 1)
    ):
        raise ConfigError(
            f"the compiler has no power {node.args[1]} of complex numbers", hint=WAY_OUT
        )
    if name.startswith("_fft"):
        complex_node = node if name == "_fft_c2r" else node.args[0]
        longest = max(complex_node.meta["val"].shape[axis] for axis in node.args[1])
        if longest > MAX_DFT_LENGTH:
            raise ConfigError(
                f"a Fourier transform of {longest} numbers is too long",
                hint=f"Up to {MAX_DFT_LENGTH} are computed, as a matrix product; "
                "compute it outside.",
            )

    def computed(*arguments: Any, **keywords: Any) -> Any:
        keywords = pytree.tree_map_only(torch.dtype, torch.dtype.to_real, keywords)
        result = convert(operator, *arguments, **keywords)
        # Like torch, drop the imaginary part.
        return (
            result if is_complex_result or not isinstance(result, Complex) else result.tensors()[0]
        )

    return computed
