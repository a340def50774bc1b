"""Rewrites torch operators with simpler ones before TVM reads a program."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Container
from inspect import signature
from operator import getitem
from typing import Any
from weakref import WeakKeyDictionary

import torch
from chameleon_core.plugin_api import ConfigError
from torch._decomp import global_decomposition_table
from torch._higher_order_ops.effects import with_effects
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind

from chameleon_networks._importers.torch.lowering import (
    linear_algebra,
    sorting,
    special_functions,
    windows,
)
from chameleon_networks._importers.torch.lowering.complex_numbers import has_complex, remove_complex
from chameleon_networks._importers.torch.lowering.empty_tensors import remove_empty_tensors

try:
    from torch._decomp import _core_aten_decompositions_post_autograd as core_decompositions
    from torch._export.utils import _is_preservable_cia_op, _special_op_to_preserve_cia
    from torch._subclasses.fake_tensor import unset_fake_temporarily
    from torch.export.decomp_utils import PRESERVED_ATEN_CIA_OPS
    from torch.export.exported_program import _decompose_exported_program
except ImportError:  # other versions of torch have other private functions
    core_decompositions = None
try:
    from torch.nn.modules import linear_cross_entropy
except ImportError:  # torch before 2.13
    linear_cross_entropy = None

_ATEN = torch.ops.aten

_FIRST_RESULT_ONLY = {
    *(_ATEN.native_layer_norm.default, _ATEN.native_group_norm.default),
    *(_ATEN.max_pool2d_with_indices.default, _ATEN.max_pool3d_with_indices.default),
    _ATEN._native_batch_norm_legit.no_stats,  # noqa: SLF001 - the operator has this name
}
"""Operators of which the importer supports only the first result."""


def decompose(program: Any, readable: Container[str]) -> Any:
    """Rewrite a program in torch's core operators, or in simpler ones that an importer can read."""
    if _is_sparse(program):
        return (
            program  # torch cannot decompose sparse programs; TVM reads some operators as they are
        )
    table = decomposition_table()
    result = _EARLY_DECOMPOSITIONS.pop(program, None) or run_decompositions(program, table)
    if has_complex(result):
        result = run_decompositions(remove_complex(result), table)
    while more_decompositions := _missing_decompositions(result, readable, table):
        table.update(more_decompositions)
        result = run_decompositions(result, table)
    for part in result.graph_module.modules():  # also branches of torch.cond
        if isinstance(part, torch.fx.GraphModule):
            _promote_integers(part)
    remove_empty_tensors(result)
    _remove_non_tensors(result)
    return result


_EARLY_DECOMPOSITIONS: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
"""Programs that were rewritten before they are imported. Rewriting takes seconds."""


def decompose_early(program: Any) -> Any:
    """Rewrite a program in torch's core operators. The next ``decompose`` takes the result over."""
    _EARLY_DECOMPOSITIONS[program] = result = run_decompositions(program, decomposition_table())
    return result


def _promote_integers(module: torch.fx.GraphModule) -> None:
    """Cast integers to float before operators that do so in torch, unlike in TVM."""
    graph = module.graph
    for node in list(graph.nodes):
        value, tensors = node.meta.get("val"), node.all_input_nodes
        if not isinstance(value, torch.Tensor) or not value.is_floating_point() or not tensors:
            continue
        if getattr(node.target, "namespace", "") != "aten" or node.target in _CONVERSIONS:
            continue
        values = [item.meta.get("val") for item in tensors]
        if not all(isinstance(item, torch.Tensor) for item in values):
            continue
        if any(item.is_floating_point() or item.is_complex() for item in values):
            continue
        for item, integer_value in zip(tensors, values, strict=True):
            with graph.inserting_before(node):
                options = {"dtype": value.dtype}
                result = graph.call_function(_ATEN._to_copy.default, (item,), options)  # noqa: SLF001
            result.meta = {**node.meta, "val": integer_value.to(value.dtype)}
            node.replace_input_with(item, result)
    module.recompile()


_CONVERSIONS = {_ATEN._to_copy.default, _ATEN.view.dtype}  # noqa: SLF001
"""Operators that define how integers become floats."""


def decomposition_table() -> Any:
    """Torch's core decompositions and Chameleon's, by operator; see ``run_decompositions``."""
    table = (core_decompositions or torch.export.default_decompositions)()
    table.update(DECOMPOSITIONS)
    return table


def run_decompositions(program: Any, table: Any) -> Any:
    """Decompose a program as ``run_decompositions`` does, in less time."""
    # torch overrides every composite operator, which takes a third of a second.
    if core_decompositions is None:
        return program.run_decompositions(table)
    composite = dict.fromkeys(PRESERVED_ATEN_CIA_OPS, _special_op_to_preserve_cia)
    composite |= {item: table[item] for item in table if _is_preservable_cia_op(item)}
    others = {item: table[item] for item in table if item not in composite}
    # The program has no backward pass. Older versions of torch lack one of these arguments.
    options = {"joint_loss_index": None, "decompose_custom_triton_ops": False}
    parameters = signature(_decompose_exported_program).parameters
    options = {name: value for name, value in options.items() if name in parameters}
    with unset_fake_temporarily():
        return _decompose_exported_program(
            program, cia_to_decomp=composite, python_decomp_table=others, **options
        )


def function_calls(program: Any) -> list[Any]:
    """All calls of a program, those in the branches of ``torch.cond`` included."""
    return [
        node
        for part in program.graph_module.modules()
        if isinstance(part, torch.fx.GraphModule)
        for node in part.graph.nodes
        if node.op == "call_function"
    ]


def _missing_decompositions(
    program: Any, readable: Container[str], table: Container[Any]
) -> dict[Any, Callable[..., Any]]:
    """Decompositions of the operators in a program that cannot be read, mostly torch's own."""
    signature = program.graph_signature
    varying = {spec.arg.name for spec in signature.input_specs if spec.kind is InputKind.USER_INPUT}
    lacking = {
        node.target
        for node in function_calls(program)
        if node.target.__name__ not in readable
        or (node.target in _FIRST_RESULT_ONLY and _uses_later_results(node))
        or (node.target is _ATEN.convolution.default and node.args[1].name in varying)
    }
    known_decompositions = {
        **global_decomposition_table["post_autograd"],
        **windows.FALLBACK_DECOMPOSITIONS,
    }
    return {
        operator: known_decompositions[operator]
        for operator in lacking
        if operator in known_decompositions and operator not in table
    }


def _remove_non_tensors(program: Any) -> None:
    """Remove assertions, and inputs and outputs that are no tensors."""
    signature, graph = program.graph_signature, program.graph_module.graph
    effects = [node for node in graph.nodes if node.target is with_effects]
    only_assertions = all(map(_is_assertion, effects))
    constants = {s.arg.name for s in signature.input_specs if _is_non_tensor(s, only_assertions)}
    signature.input_specs[:] = [s for s in signature.input_specs if s.arg.name not in constants]
    last = graph.output_node()
    outputs = [
        (spec, value)
        for spec, value in zip(signature.output_specs, last.args[0], strict=True)
        if not _is_non_tensor(spec, only_assertions)
    ]
    if all(spec.kind is not OutputKind.USER_OUTPUT for spec, _ in outputs):
        raise ConfigError(
            "the network gives no tensor", hint="Have its `forward` return what it computes."
        )
    signature.output_specs[:] = [spec for spec, _ in outputs]
    last.args = (tuple(value for _, value in outputs),)
    for node in reversed(list(graph.nodes)):
        if (only_assertions and _is_assertion(node)) or (
            node.op == "placeholder" and node.name in constants
        ):
            graph.erase_node(node)
    graph.eliminate_dead_code()
    program.graph_module.recompile()


def _is_assertion(node: Any) -> bool:
    """Whether a node only raises an error, or only orders nodes that do."""
    if node.target is getitem:
        return bool(node.args[0].target is with_effects and _is_assertion(node.args[0]))
    if node.target is with_effects:
        check = _ATEN._linalg_check_errors.default  # noqa: SLF001 - the operator has this name
        return bool(node.args[1] is check)
    return node.op == "call_function" and str(node.target.__name__).startswith("_assert")


def _uses_later_results(node: Any) -> bool:
    """Whether a node reads another than the first of several results of ``node``."""
    return any(user.target is getitem and user.args[1] and user.users for user in node.users)


def _is_non_tensor(spec: Any, only_assertions: bool) -> bool:
    """Whether an input or output is no tensor: a constant, or a token that only orders checks."""
    token = only_assertions and spec.kind in (InputKind.TOKEN, OutputKind.TOKEN)
    return token or isinstance(spec.arg, ConstantArgument)


def _is_sparse(program: Any) -> bool:
    tensors = [*program.state_dict.values(), *program.constants.values()]
    return any(getattr(item, "layout", torch.strided) != torch.strided for item in tensors)


def _trilinear(*args: Any) -> Any:
    """The sum of products of three tensors, each of which first gets some more axes."""
    item, two, three = (
        functools.reduce(torch.unsqueeze, args[at + 3], args[at]) for at in range(3)
    )
    return (item * two * three).sum(args[6])


def _rrelu(x: Any, noise: Any, lower: float = 1 / 8, upper: float = 1 / 3, *_: Any) -> Any:
    """Randomized leaky ReLU in evaluation mode: its slope is the mean of its bounds."""
    return torch.where(x >= 0, x, x * ((lower + upper) / 2)), noise


def _var_mean(
    x: Any, dim: Any = None, *, correction: float | None = None, keepdim: bool = False
) -> Any:
    dims = list(range(x.ndim)) if dim is None else dim
    return (
        _ATEN.var.correction(x, dims, correction=correction, keepdim=keepdim),
        _ATEN.mean.dim(x, dims, keepdim),
    )


def _batch_norm_training(*args: Any) -> Any:
    """Batch normalization in training mode, by the statistics of the batch."""
    _, _, _, _, _, training, *_ = args
    operator = _ATEN._native_batch_norm_legit_functional.default  # noqa: SLF001
    decompose = global_decomposition_table["post_autograd"][operator]
    return decompose(*args) if training else NotImplemented


_IDENTITY = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "amax": -math.inf, "amin": math.inf}
"""The identity element of each reduction, by torch's name."""


def _scatter_reduce(
    x: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True
) -> Any:
    """``scatter_reduce`` to means, or without the numbers of the input (``include_self=False``)."""
    if not x.is_floating_point() or (include_self and reduce != "mean"):
        return NotImplemented
    ones = torch.ones(index.shape, dtype=x.dtype, device=x.device)
    count = torch.zeros_like(x).scatter_add(dim, index, ones)
    initial = x if include_self else torch.where(count > 0, _IDENTITY[reduce], x)
    if reduce != "mean":
        return initial.scatter_reduce(dim, index, source, reduce)
    total = initial.scatter_add(dim, index, source)
    return total / (count + 1.0 if include_self else count.clamp(min=1.0))


def _segment_reduce(
    x: Any, reduce: str, *, axis: int = 0, initial: float | None = None, **segments: Any
) -> Any:
    """``segment_reduce``: reductions of parts of an axis that follow each other."""
    offsets = segments.get("offsets")
    if offsets is None:
        ends = segments["lengths"].cumsum(-1)
        starts = ends - segments["lengths"]
    else:
        starts, ends = offsets[..., :-1], offsets[..., 1:]
    places, inner = torch.arange(x.shape[axis]), [1] * (x.ndim - 1 - axis)
    member = (places >= starts.unsqueeze(-1)) & (places < ends.unsqueeze(-1))
    member = member.reshape(*member.shape, *inner)
    name = {"max": "amax", "min": "amin"}.get(reduce, reduce)
    first = _IDENTITY[name] if initial is None else initial
    parts = torch.where(member, x.unsqueeze(axis), _IDENTITY[name])
    if reduce in {"max", "min"}:
        integer_value = torch.full_like(parts.narrow(axis + 1, 0, 1), first)
        return getattr(torch.cat([parts, integer_value], axis + 1), name)(axis + 1)
    if reduce == "prod":
        return parts.prod(axis + 1) * first
    total = parts.sum(axis + 1) + first
    if reduce == "sum":
        return total
    count = (ends - starts).reshape(*ends.shape, *inner)
    return torch.where(count > 0, total / count, math.nan if initial is None else initial)


def _cdist(item: Any, two: Any, p: float, _mode: int | None) -> Any:
    return _norm_of_difference(item.unsqueeze(-2) - two.unsqueeze(-3), p)


def _norm_of_difference(difference: Any, p: float) -> Any:
    """The norm of differences along the last axis."""
    if p == 2.0:  # noqa: PLR2004 - the Euclidean norm
        return (difference * difference).sum(-1).sqrt()
    if p == 0.0:
        return (difference != 0).to(difference.dtype).sum(-1)
    size = difference.abs()
    return size.amax(-1) if math.isinf(p) else size.pow(p).sum(-1).pow(1 / p)


def _zero_norm(
    x: Any, order: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Any:
    """``linalg_vector_norm`` of order 0: how many numbers are not zero."""
    if order != 0 or x.is_complex():
        return NotImplemented
    axes = list(range(x.ndim)) if dim is None else dim
    return (x != 0).to(dtype or x.dtype).sum(axes, keepdim=keepdim)


def _elu(x: Any, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Any:
    return scale * torch.where(x > 0, x, alpha * torch.expm1(x * input_scale))


def _softplus(x: Any, beta: float = 1, threshold: float = 20) -> Any:
    return torch.where(x * beta > threshold, x, torch.log1p(torch.exp(x * beta)) / beta)


def _pdist(x: Any, p: float = 2.0) -> Any:
    """``pdist``: the distance of each pair of rows, each pair once."""
    rows, others = torch.triu_indices(len(x), len(x), 1)
    return _norm_of_difference(x[rows] - x[others], p)


def _index_reduce(
    x: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True
) -> Any:
    """``index_reduce``, whose index has one axis, as ``scatter_reduce``."""
    if x.ndim == 0:
        return _index_reduce(
            x.reshape(1), 0, index, source.reshape(1), reduce, include_self=include_self
        ).reshape(())
    shape = [1] * x.ndim
    shape[dim] = -1
    where = index.reshape(shape).expand(source.shape)
    return x.scatter_reduce(dim, where, source, reduce, include_self=include_self)


def _scatter_value(x: Any, dim: int, index: Any, value: float, *, reduce: str) -> Any:
    source = torch.full(index.shape, value, dtype=x.dtype)
    return _scatter_source(x, dim, index, source, reduce=reduce)


def _scatter_source(x: Any, dim: int, index: Any, source: Any, *, reduce: str) -> Any:
    kind = {"add": "sum", "multiply": "prod"}[reduce]
    part = source[tuple(slice(extent) for extent in index.shape)]
    return x.scatter_reduce(dim, index, part, kind)


def _put(x: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    flat = x.reshape(-1).index_put((index.reshape(-1),), source.reshape(-1), accumulate)
    return flat.reshape(x.shape)


def _diagonal_scatter(x: Any, source: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """``diagonal_scatter``."""
    moved = x.movedim((dim1, dim2), (0, 1))
    places = torch.arange(source.shape[-1])
    rows, columns = places + max(-offset, 0), places + max(offset, 0)
    result = moved.index_put((rows, columns), source.movedim(-1, 0))
    return result.movedim((0, 1), (dim1, dim2))


def _nonzero_static(x: Any, *, size: int, fill_value: int = -1) -> Any:
    """``nonzero_static``: the places of the first numbers that are not zero."""
    chosen = x.reshape(-1) != 0
    rank = chosen.cumsum(0) - 1
    row = torch.where(chosen, rank.clamp(max=size), size)
    places = torch.full((size + 1,), -1).scatter(0, row, torch.arange(len(row)))[:size]
    steps = [math.prod(x.shape[axis + 1 :]) for axis in range(x.ndim)]
    pairs = zip(x.shape, steps, strict=True)
    axes = [places // max(step, 1) % max(extent, 1) for extent, step in pairs]
    found = torch.stack(axes, -1) if axes else places.new_zeros(size, 0)
    return torch.where(places.unsqueeze(-1) < 0, fill_value, found)


def _masked_scatter(x: Any, mask: Any, source: Any) -> Any:
    shape = torch.broadcast_shapes(x.shape, mask.shape)
    mask = mask.expand(shape)
    index = (mask.reshape(-1).cumsum(0) - 1).clamp(0, source.numel() - 1).reshape(shape)
    return torch.where(mask, source.reshape(-1)[index], x.expand(shape))


def _signbit(x: Any) -> Any:
    """``signbit``, which is also set for -0.0. For NaN, the result is always False."""
    return (x < 0) | ((x == 0) & (1 / x < 0)) if x.is_floating_point() else x < 0


def _copysign(x: Any, y: Any) -> Any:
    y = torch.full((), y, dtype=torch.float32) if isinstance(y, int | float) else y
    x = x if x.is_floating_point() else x.float()
    return torch.where(_signbit(y), -x.abs(), x.abs())


def _frexp(x: Any) -> Any:
    """``frexp``: a fraction of magnitude 0.5 to 1, and a power of two."""
    magnitude = torch.where((x == 0) | ~x.isfinite(), 1.0, x.abs())
    power = magnitude.log2().floor() + 1
    fraction = magnitude * torch.exp2(-power)
    power = torch.where(fraction >= 1, power + 1, torch.where(2 * fraction < 1, power - 1, power))
    ordinary = (x != 0) & x.isfinite()
    exact = torch.where(ordinary, x * torch.exp2(-power), x)
    return exact, torch.where(ordinary, power, 0).to(torch.int32)


def _angle(x: Any) -> Any:
    """``angle`` of real numbers. Those of complex numbers are computed from their parts."""
    if x.is_complex():
        return NotImplemented
    return torch.where(x < 0, math.pi, torch.where(x.isnan(), x, 0.0))


def _wrapping_remainder(x: Any, y: Any) -> tuple[Any, Any]:
    """The exact remainder with the sign of x, and whether the sign of y differs."""
    rest = torch.fmod(x, y)
    return rest, ((rest > 0) & (y < 0)) | ((rest < 0) & (y > 0))


def _floats(x: Any, y: Any) -> tuple[Any, Any] | None:
    """Two operands as floating-point tensors, or None if their quotient is an integer."""
    dtype = torch.result_type(x, y)
    if not dtype.is_floating_point:
        return None
    y = y if isinstance(y, torch.Tensor) else torch.full((), y, dtype=dtype)
    return x.to(dtype), y.to(dtype)


def _remainder(x: Any, y: Any) -> Any:
    """``remainder``; TVM's rounds the quotient, which is wrong if the quotient is large."""
    operands = _floats(x, y)
    if operands is None:
        return NotImplemented
    rest, wraps = _wrapping_remainder(*operands)
    return torch.where(wraps, rest + operands[1], rest)


def _floor_divide(x: Any, y: Any, *, rounding_mode: str | None = "floor") -> Any:
    """``floor_divide`` by the exact remainder, as in torch and Python."""
    operands = _floats(x, y)
    if operands is None or rounding_mode != "floor":
        return NotImplemented
    x, y = operands
    rest, wraps = _wrapping_remainder(x, y)
    quotient = (x - rest) / y - wraps.to(x.dtype)
    whole = quotient.floor()
    whole = torch.where(quotient - whole > 0.5, whole + 1, whole)  # noqa: PLR2004 - it rounds
    whole = torch.where(quotient == 0, torch.trunc(x / y), whole)
    return torch.where(y == 0, x / y, whole)


def _hypot(x: Any, y: Any) -> Any:
    """``hypot``, scaled so that no square overflows or vanishes; infinite even beside NaN."""
    x, y = x.abs(), y.abs()
    most, least = torch.maximum(x, y), torch.minimum(x, y)
    ratio = least / torch.where(most == 0, 1.0, most)
    infinite = (x == math.inf) | (y == math.inf)
    return torch.where(infinite, math.inf, most * torch.sqrt(1 + ratio * ratio))


def _histc(x: Any, bins: int = 100, min: float = 0, max: float = 0) -> Any:  # noqa: A002
    """``histc``: counts of numbers in equal intervals, of which the last includes its end."""
    if not x.numel():
        return x.new_zeros(bins)
    x = x.reshape(-1)
    low, high = (x.min(), x.max()) if min == max else (min, max)
    if min == max:
        low, high = torch.where(low == high, low - 1, low), torch.where(low == high, high + 1, high)
    place = ((x - low) * bins / (high - low)).floor().clamp(max=bins - 1)
    member = (place == torch.arange(bins).unsqueeze(-1)) & (x >= low) & (x <= high)
    return member.sum(1).to(x.dtype)


def _linear_cross_entropy(*args: Any) -> Any:
    """``linear_cross_entropy`` in chunks, and its gradients, which inference does not use."""
    x, linear, target, bias, weight, reduction, ignored, *options = args
    names = {
        "weight": weight,
        "reduction": reduction,
        "label_smoothing": options[0] if options else 0.0,
    }
    logits = torch.nn.functional.linear(x, linear, bias)
    loss = torch.nn.functional.cross_entropy(logits, target, ignore_index=ignored, **names)
    return loss, *(torch.zeros(0) for _ in range(3))


def _encoder_layer(x: Any, width: int, heads: int, *args: Any) -> Any:
    """``nn.TransformerEncoderLayer``, with NaN for fully masked rows as in torch."""
    functional, (batch, rows, _) = torch.nn.functional, x.shape
    qkv, qkv_bias, out, out_bias, gelu, norm_first, eps = args[:7]
    norms, (wide, wide_bias, narrow, narrow_bias) = args[7:11], args[11:15]
    mask, kind = (*args[15:], None, None)[:2]
    activation = functional.gelu if gelu else functional.relu

    def attention(x: Any) -> Any:
        parts = functional.linear(x, qkv, qkv_bias).unflatten(-1, (3, heads, -1))
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        scores = (query * (width // heads) ** -0.5) @ key.mT
        if mask is None:
            read = scores.softmax(-1) @ value
        else:
            shape = {0: (1, 1, rows, rows), 1: (batch, 1, 1, rows)}.get(kind, scores.shape)
            hidden = mask.bool().reshape(shape)
            read = scores.masked_fill(hidden, -math.inf).softmax(-1) @ value
            # Kernels of attention give zeros for a row without any column.
            read = read.masked_fill(hidden.all(-1, keepdim=True), math.nan)
        return functional.linear(read.transpose(1, 2).flatten(2), out, out_bias)

    def perceptron(x: Any) -> Any:
        hidden = activation(functional.linear(x, wide, wide_bias))
        return functional.linear(hidden, narrow, narrow_bias)

    for part, norm in ((attention, norms[:2]), (perceptron, norms[2:])):
        if norm_first:
            x = x + part(functional.layer_norm(x, (width,), *norm, eps))
        else:
            x = functional.layer_norm(x + part(x), (width,), *norm, eps)
    return x


def _linear_cross_entropies(*args: Any) -> Any:
    *tensors, ignored, _size, _policy, _dtype = args
    return _linear_cross_entropy(*tensors, "none", ignored)[0]


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    **linear_algebra.DECOMPOSITIONS,
    **sorting.DECOMPOSITIONS,
    **special_functions.DECOMPOSITIONS,
    **windows.DECOMPOSITIONS,
    _ATEN._pdist_forward.default: _pdist,  # noqa: SLF001
    _ATEN._transformer_encoder_layer_fwd.default: _encoder_layer,  # noqa: SLF001
    _ATEN.index_reduce.default: _index_reduce,
    _ATEN.scatter.value_reduce: _scatter_value,
    _ATEN.scatter.reduce: _scatter_source,
    _ATEN.nonzero_static.default: _nonzero_static,
    _ATEN.segment_reduce.default: _segment_reduce,
    _ATEN.put.default: _put,
    _ATEN.take.default: lambda x, index: x.reshape(-1)[index.reshape(-1)].reshape(index.shape),
    _ATEN.histc.default: _histc,
    _ATEN.diagonal_scatter.default: _diagonal_scatter,
    _ATEN.masked_scatter.default: _masked_scatter,
    # TVM multiplies by -1, which is no unsigned number.
    _ATEN.neg.default: lambda x: NotImplemented if x.dtype.is_signed else x.bitwise_not() + 1,
    _ATEN.signbit.default: _signbit,
    _ATEN.copysign.Tensor: _copysign,
    _ATEN.copysign.Scalar: _copysign,
    _ATEN.frexp.Tensor: _frexp,
    _ATEN.fmax.default: lambda x, y: torch.where(y.isnan(), x, torch.where(x >= y, x, y)),
    _ATEN.fmin.default: lambda x, y: torch.where(y.isnan(), x, torch.where(x <= y, x, y)),
    _ATEN.ldexp.Tensor: lambda x, y: x * torch.exp2(y.float()),
    _ATEN.addbmm.default: lambda x, y, z, *, beta=1, alpha=1: beta * x + alpha * (y @ z).sum(0),
    _ATEN.angle.default: _angle,
    _ATEN._trilinear.default: _trilinear,  # noqa: SLF001 - the operator has this name
    _ATEN.scatter_reduce.two: _scatter_reduce,
    _ATEN.rrelu_with_noise_functional.default: _rrelu,
    _ATEN.var_mean.correction: _var_mean,
    _ATEN._native_batch_norm_legit_functional.default: _batch_norm_training,  # noqa: SLF001
    _ATEN._cdist_forward.default: _cdist,  # noqa: SLF001
    _ATEN.linalg_vector_norm.default: _zero_norm,
    _ATEN.elu.default: _elu,
    # Self-Normalizing Neural Networks, Klambauer et al. 2017, equation 2
    _ATEN.selu.default: lambda x: _elu(x, 1.6732632423543772, 1.0507009873554805),
    _ATEN.softplus.default: special_functions.in_float32(_softplus),
    _ATEN.expm1.default: lambda x: torch.tanh(x / 2) * (torch.exp(x) + 1),
    _ATEN.hypot.default: _hypot,
    **dict.fromkeys((_ATEN.remainder.Tensor, _ATEN.remainder.Scalar), _remainder),
    _ATEN.remainder.Scalar_Tensor: lambda x, y: torch.remainder(
        torch.full_like(y, x, dtype=torch.result_type(x, y)), y
    ),
    _ATEN.floor_divide.default: _floor_divide,
    **dict.fromkeys((_ATEN.div.Tensor_mode, _ATEN.div.Scalar_mode), _floor_divide),
}
"""Functions of torch that are traced instead of an operator, by operator."""

if linear_cross_entropy is not None:
    _CHUNKED = torch.ops.torch_nn
    DECOMPOSITIONS |= {
        _CHUNKED._linear_cross_entropy_batch_chunked.default: _linear_cross_entropy,  # noqa: SLF001
        _CHUNKED._linear_cross_entropy_batch_chunked_no_reduction.default: _linear_cross_entropies,  # noqa: SLF001
    }
