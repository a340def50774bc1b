"""Rewrites a torch program so that each complex number becomes a pair of real numbers.

TVM has no complex dtypes. Three kinds of networks use complex numbers between real inputs and
outputs. They are rotary embeddings with ``view_as_complex`` (Su et al. 2021, section 3.2.1),
spectrograms, and mixing by Fourier transforms (Lee-Thorp et al. 2022).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import getitem
from typing import Any

import torch
from chameleon_core.errors import ConfigError
from chameleon_tvm.words import WAY_OUT
from torch.fx.node import map_aggregate, map_arg
from torch.fx.proxy import GraphAppendingTracer, Proxy

from chameleon_networks.importers.torch.lowering.pairs import Pair, times
from chameleon_networks.source_location import location_of

_ATEN = torch.ops.aten

LONGEST = 2048
"""Most numbers of a Fourier transform. Its two matrices then take 32 MiB."""


def complex_to_complex(
    given: Pair, shape: Sequence[int], axes: Sequence[int], mode: int, *, forward: bool
) -> Pair:
    """``torch.fft.fftn`` or ``ifftn`` of a pair of real tensors.

    Args:
        given: The real and imaginary part of the tensor to transform.
        shape: The shape of the tensor.
        axes: The axes to transform along.
        mode: The kind of normalization, as for ``_scaled``.
        forward: Whether the angles are negative, as in ``fftn``.
    """
    for axis in axes:
        given = _along(given, len(shape), axis, _matrix(given, shape[axis], forward=forward))
    return _scaled(given, [shape[axis] for axis in axes], mode)


def real_to_complex(
    given: Any, shape: Sequence[int], axes: Sequence[int], mode: int, *, onesided: bool
) -> Pair:
    """``torch.fft.rfftn`` of a real tensor. The last of the axes is transformed first.

    Args:
        given: The real tensor to transform.
        shape: The shape of the tensor.
        axes: The axes to transform along.
        mode: The kind of normalization, as for ``_scaled``.
        onesided: Whether to keep only the first half of the last of the axes.
    """
    *others, last = axes
    extent = shape[last]
    kept = extent // 2 + 1 if onesided else extent
    pair = Pair(given)
    made = _along(pair, len(shape), last, _matrix(pair, extent, columns=kept, forward=True))
    found = complex_to_complex(made, shape, others, 0, forward=True)
    return _scaled(found, [shape[axis] for axis in axes], mode)


def complex_to_real(
    given: Pair, shape: Sequence[int], axes: Sequence[int], mode: int, extent: int
) -> Any:
    """``torch.fft.irfftn`` of a pair of real tensors.

    Args:
        given: The first half of the complex tensor along the last of the axes. The other half is
            its mirror image, so it is not stored.
        shape: The shape of ``given`` as a complex tensor.
        axes: The axes to transform along.
        mode: The kind of normalization, as for ``_scaled``.
        extent: The extent of the result along the last of the axes.
    """
    *others, last = axes
    given = complex_to_complex(given, shape, others, 0, forward=False)
    # What is left out is the mirror image of what is there, but for both ends.
    rows = shape[last]
    count = Pair.of(_indices(given, rows)).real
    ends = [_ATEN.eq.Scalar(count, 0)]
    if extent % 2 == 0:
        ends.append(_ATEN.eq.Scalar(count, extent // 2))
    twice: Any = _ATEN.full_like.default(_float(count), 2.0)
    for end in ends:
        twice = _ATEN.sub.Tensor(twice, _float(end))
    weight = _ATEN.unsqueeze.default(twice, 1)
    matrix = _matrix(given, extent, rows=rows, forward=False)
    weighted = Pair(times(matrix.real, weight), times(matrix.imaginary, weight))
    made = _along(given, len(shape), last, weighted)
    sizes = [extent if axis == last else shape[axis] for axis in axes]
    return _scaled(Pair(made.real), sizes, mode).real


def _scaled(given: Pair, extents: Sequence[int], mode: int) -> Pair:
    """Normalize a transform of n numbers: mode 0 does nothing, 1 divides by sqrt(n), 2 by n."""
    count = math.prod(extents)
    factor = (1.0, 1.0 / math.sqrt(count), 1.0 / count)[mode]
    return given * Pair(factor)


def _along(given: Pair, rank: int, axis: int, matrix: Pair) -> Pair:
    """Multiply a tensor by a matrix along one axis."""
    axis %= rank
    there = [*(one for one in range(rank) if one != axis), axis]
    back = [there.index(one) for one in range(rank)]
    moved = given.each(lambda part: _ATEN.permute.default(part, there))
    made = moved.product(matrix, _ATEN.matmul.default)
    return made.each(lambda part: _ATEN.permute.default(part, back))


def _matrix(
    beside: Pair, extent: int, *, forward: bool, rows: int | None = None, columns: int | None = None
) -> Pair:
    """The matrix ``exp(-2 pi i r c / extent)`` of rows r, columns c; conjugated if not ``forward``.

    Raises:
        ConfigError: ``extent`` is larger than ``LONGEST``.
    """
    if extent > LONGEST:
        raise ConfigError(
            f"a Fourier transform of {extent} numbers is too long",
            hint=f"Up to {LONGEST} are computed, as a matrix product; compute it outside.",
        )
    left = _ATEN.unsqueeze.default(_indices(beside, rows or extent), 1)
    right = _ATEN.unsqueeze.default(_indices(beside, columns or extent), 0)
    # The remainder first: a large angle has lost its last digits.
    turns = _ATEN.remainder.Scalar(_ATEN.mul.Tensor(left, right), extent)
    angle = _ATEN.mul.Tensor(_float(turns), 2.0 * math.pi / extent)
    # Half a turn is no exact float32; its sine is zero, and so is a real signal's imaginary part.
    apart = _ATEN.ne.Scalar(_ATEN.remainder.Scalar(_ATEN.mul.Tensor(turns, 2), extent), 0)
    sine = _ATEN.mul.Tensor(_ATEN.sin.default(angle), _float(apart))
    return Pair(_ATEN.cos.default(angle), times(sine, -1) if forward else sine)


def _indices(beside: Pair, count: int) -> Any:
    """The tensor 0, 1, ..., ``count - 1``, in the graph that ``beside`` belongs to."""
    some = next(one for one in (beside.real, beside.imaginary) if not isinstance(one, int | float))
    node = some.tracer.create_node("call_function", _ATEN.arange.start_step, (0, count, 1), {})
    return type(some)(node, some.tracer)


def _float(values: Any) -> Any:
    return _ATEN._to_copy.default(values, dtype=torch.float32)  # noqa: SLF001 - it is called so


REAL = {torch.complex64: torch.float32, torch.complex128: torch.float64}
"""The dtype of the parts of each complex dtype."""

Value = Any
"""A ``Pair`` for a complex value, a ``Proxy`` for a real one, or a list of values."""


def is_complex(node: Any) -> bool:
    """Whether a node of a program has a complex result."""
    values = node.meta.get("val")
    several = values if isinstance(values, list | tuple) else [values]
    return any(getattr(one, "dtype", None) in REAL for one in several)


def by_parts(at: Proxy, arguments: Any, keywords: Any) -> Pair | list[Pair]:
    """Apply a linear operator to the real and the imaginary part of complex tensors.

    Args:
        at: The node of the operator, which is one of ``BY_PARTS``.
        arguments: The node's arguments, with a ``Pair`` for each complex one.
        keywords: The node's keyword arguments, with a ``Pair`` for each complex one.
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
    """Apply a function to a value, or to each item of nested lists and tuples."""
    if isinstance(values, list | tuple):
        return [_mapped(one, function) for one in values]
    return function(values)


def _joined(at: Proxy, parts: Sequence[Any], axis: int = 0) -> Pair:
    """``cat`` or ``stack`` of tensors of which some may be real."""
    both = [Pair.of(one).tensors() for one in parts]
    return Pair(*(at.node.target(list(part), axis) for part in zip(*both, strict=True)))


def _replaced(at: Proxy, one: Any, two: Any, *rest: Any) -> Pair:
    """``copy``, ``slice_scatter`` or ``select_scatter``: writes one tensor into another."""
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
    """Convert between complex dtypes, or from or to a real dtype."""

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
    return complex_to_complex(Pair.of(one), _shape(at), axes, mode, forward=forward)


def _fourier_of_real(at: Proxy, one: Any, axes: Sequence[int], mode: int, onesided: bool) -> Pair:
    return real_to_complex(one, _shape(at), axes, mode, onesided=onesided)


def _fourier_to_real(at: Proxy, one: Pair, axes: Sequence[int], mode: int, extent: int) -> Any:
    return complex_to_real(one, _shape(at), axes, mode, extent)


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
"""Functions by the operator's name. Each computes the operator from its node and its arguments, in
which complex values are pairs."""

BY_PARTS = frozenset(
    {
        *("view", "_unsafe_view", "reshape", "permute", "transpose", "t", "unsqueeze", "squeeze"),
        *("expand", "slice", "select", "clone", "alias", "detach", "index", "index_select"),
        *("gather", "repeat", "flip", "roll", "unfold", "split", "split_with_sizes", "unbind"),
        *("sum", "mean", "cumsum", "diagonal", "as_strided"),
    }
)
"""Names of operators that can be applied to each part of a complex number separately."""


def has_complex(program: Any) -> bool:
    """Whether a torch program computes complex numbers anywhere.

    Args:
        program: A ``torch.export.ExportedProgram``.
    """
    return any(is_complex(node) for node in program.graph.nodes)


def without_complex(program: Any) -> Any:
    """Rewrite a program so that pairs of real numbers replace its complex numbers.

    Args:
        program: A ``torch.export.ExportedProgram`` in core operators, which is changed. Decompose
            it again afterwards, so that its graph has shapes and dtypes.

    Raises:
        ConfigError: An input or output is complex, or an operator on complex numbers is not
            supported.
    """
    # Decomposing hands on mappings of the user's program, which others run beside this one.
    program._state_dict = dict(program.state_dict)  # noqa: SLF001 - it cannot be given otherwise
    program._constants = dict(program.constants)  # noqa: SLF001
    rewriting = _Rewriting(program)
    for node in list(program.graph.nodes):
        rewriting.visit(node)
    program.graph.eliminate_dead_code()
    program.graph_module.recompile()
    return program


class _Tracer(GraphAppendingTracer):
    """Copies the module and line of the original node to each node that it creates."""

    def __init__(self, graph: Any) -> None:
        super().__init__(graph)
        self.origin: Any = None

    def create_node(self, *arguments: Any, **keywords: Any) -> Any:
        made = super().create_node(*arguments, **keywords)
        known = self.origin.meta
        made.meta.update({key: known[key] for key in _ORIGIN if key in known})
        return made


_ORIGIN = ("nn_module_stack", "stack_trace")


class _Rewriting:
    """Inserts nodes on pairs of real numbers before the nodes on complex numbers.

    Attributes:
        _made: The pair, or list of pairs, that replaces each complex node.
    """

    def __init__(self, program: Any) -> None:
        self._program = program
        self._graph = program.graph
        self._tracer = _Tracer(program.graph)
        self._made: dict[Any, Pair | list[Pair]] = {}

    def visit(self, node: Any) -> None:
        self._tracer.origin = node
        touched = any(one in self._made for one in node.all_input_nodes)
        if node.op == "output":
            if touched:
                raise ConfigError(
                    "an output of the network is complex",
                    hint="Return torch.view_as_real(...) of it.",
                )
        elif node.op == "placeholder":
            if is_complex(node):
                self._stored_as_pairs(node)
                with self._graph.inserting_after(node):
                    self._made[node] = Pair.of_last_axis(Proxy(node, self._tracer))
        elif touched and str(getattr(node.target, "__name__", "")).startswith("_assert"):
            self._graph.erase_node(node)  # a check of what torch knew while it exported
        elif touched or is_complex(node):
            with self._graph.inserting_before(node):
                made = self._rewritten(node)
            if isinstance(made, Proxy):
                node.replace_all_uses_with(made.node)
            else:
                self._made[node] = made

    def _stored_as_pairs(self, node: Any) -> None:
        """Store a complex constant as real numbers, with a last axis for the two parts."""
        signature = self._program.graph_signature
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
        held = self._program.state_dict
        held = held if name in held else self._program.constants
        parts = torch.view_as_real(held[name].detach().resolve_conj()).clone()
        kept = isinstance(held[name], torch.nn.Parameter)
        held[name] = torch.nn.Parameter(parts, requires_grad=False) if kept else parts
        node.meta["val"] = torch.view_as_real(node.meta["val"])

    def _rewritten(self, node: Any) -> Value:
        if node.target is getitem:
            found = self._made[node.args[0]]
            assert isinstance(found, list)  # noqa: S101 - only parts of several have places
            return found[node.args[1]]
        name = str(getattr(node.target, "_schema", node.target)).split("::")[-1].split("(")[0]
        name = name.split(".")[0]
        arguments, keywords = (map_arg(one, self._value) for one in (node.args, node.kwargs))
        convert = CONVERTERS.get(name)
        if convert is not None:
            return convert(Proxy(node, self._tracer), *arguments, **_real_types(keywords))
        if name in BY_PARTS:
            return by_parts(Proxy(node, self._tracer), arguments, _real_types(keywords))
        raise ConfigError(
            f"{location_of(node).sentence} cannot be compiled: it is one of complex numbers",
            hint=WAY_OUT,
        )

    def _value(self, node: Any) -> Any:
        return self._made[node] if node in self._made else Proxy(node, self._tracer)


def _real_types(keywords: Any) -> Any:
    """Keyword arguments in which real dtypes replace complex ones."""
    return map_aggregate(
        keywords, lambda one: REAL.get(one, one) if isinstance(one, torch.dtype) else one
    )
