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
from torch.fx.node import map_arg

from chameleon_networks._importers.torch.lowering import (
    linear_algebra,
    recurrent,
    sorting,
    special_functions,
    windows,
)
from chameleon_networks._importers.torch.lowering.complex_numbers import has_complex, remove_complex

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
    table.update({**DECOMPOSITIONS, **sorting.of_torchvision()})
    return table


_WHOLE = (
    *(_ATEN.upsample_linear1d.vec, _ATEN.upsample_trilinear3d.vec, _ATEN.upsample_bicubic2d.vec),
)
"""Composite operators that a converter reads as they are."""


def run_decompositions(program: Any, table: Any) -> Any:
    """Decompose a program as ``run_decompositions`` does, in less time."""
    # torch overrides every composite operator, which takes a third of a second.
    if core_decompositions is None:
        return program.run_decompositions(table)
    composite = dict.fromkeys((*PRESERVED_ATEN_CIA_OPS, *_WHOLE), _special_op_to_preserve_cia)
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
    first, second, third = (
        functools.reduce(torch.unsqueeze, args[at + 3], args[at]) for at in range(3)
    )
    return (first * second * third).sum(args[6])


def _addbmm(x: Any, y: Any, z: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    factor = float if x.is_floating_point() else int  # torch's factors of integers are integers
    product = factor(alpha) * (y @ z).sum(0)
    # Torch leaves out NaN of what it multiplies by 0.
    return factor(beta) * x + product if beta else product.expand(x.shape)


def _rrelu(x: Any, noise: Any, lower: float = 1 / 8, upper: float = 1 / 3, *_: Any) -> Any:
    """Randomized leaky ReLU in evaluation mode: its slope is the mean of its bounds."""
    return torch.where(x >= 0, x, x * ((lower + upper) / 2)), noise


def _std(x: Any, dims: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    """``std``; float32 lacks the variance of tiny or huge numbers, but has the root of it."""
    wide = x.double() if x.dtype == torch.float32 else x
    variance = _ATEN.var.correction(wide, dims, correction=correction, keepdim=keepdim)
    return variance.sqrt().to(x.dtype)


def _with_mean(
    deviation: Callable[..., Any],
    x: Any,
    dim: Any = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> Any:
    """``var_mean`` and ``std_mean``."""
    dims = list(range(x.ndim)) if dim is None else dim
    first = deviation(x, dims, correction=correction, keepdim=keepdim)
    return first, _ATEN.mean.dim(x, dims, keepdim)


def _batch_norm_training(*args: Any) -> Any:
    """Batch normalization in training mode, by the statistics of the batch."""
    _, _, _, _, _, training, *_ = args
    operator = _ATEN._native_batch_norm_legit_functional.default  # noqa: SLF001
    decompose = global_decomposition_table["post_autograd"][operator]
    return decompose(*args) if training else NotImplemented


def _cdist(x: Any, y: Any, p: float, _mode: int | None) -> Any:
    difference = x.unsqueeze(-2) - y.unsqueeze(-3)
    if math.isinf(p):  # unlike ``pdist``, it takes the largest of the numbers that are not NaN
        difference = torch.where(difference.isnan(), 0.0, difference)
    return _norm_of_difference(difference, p)


def _norm_of_difference(difference: Any, p: float) -> Any:
    """The norm of differences along the last axis."""
    if p == 2.0:  # noqa: PLR2004 - the Euclidean norm
        return (difference * difference).sum(-1).sqrt()
    if p == 0.0:
        return difference.abs().ceil().clamp(max=1.0).sum(-1)  # NaN stays NaN
    size = difference.abs()
    return size.amax(-1) if math.isinf(p) else size.pow(p).sum(-1).pow(1 / p)


def _vector_norm(
    x: Any, order: float = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None
) -> Any:
    """``linalg_vector_norm`` in float32 at least, and of order 0: the count of other numbers."""
    if x.dtype is torch.half and order != 0:
        norm = torch.linalg.vector_norm(x.float(), order, dim, keepdim)
        return norm.to(dtype or x.dtype)
    if order != 0 or x.is_complex():
        return NotImplemented
    axes = list(range(x.ndim)) if dim is None else dim
    return (x != 0).to(dtype or x.dtype).sum(axes, keepdim=keepdim)


def _pdist(x: Any, p: float = 2.0) -> Any:
    """``pdist``: the distance of each pair of rows, each pair once."""
    rows, others = torch.triu_indices(len(x), len(x), 1)
    return _norm_of_difference(x[rows] - x[others], p)


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


def _fake_quantize(x: Any, scale: Any, zero: Any, low: int, high: int) -> tuple[Any, Any]:
    """Numbers rounded to steps, and whether each step is in the range; NaN has the least step."""
    # Torch multiplies by the reciprocal of the scale in float32.
    scale = scale if isinstance(scale, torch.Tensor) else x.new_full((), scale)
    steps = (x * scale.reciprocal()).round() + zero
    steps = torch.where(x.isnan(), low, steps)
    return (steps.clamp(low, high) - zero) * scale, (steps >= low) & (steps <= high)


def _fake_quantize_channels(  # noqa: PLR0917 - torch's arguments
    x: Any, scale: Any, zero: Any, axis: int, low: int, high: int
) -> tuple[Any, Any]:
    shape = [-1 if place == axis else 1 for place in range(x.ndim)]
    return _fake_quantize(x, scale.reshape(shape), zero.reshape(shape), low, high)


def _linear_cross_entropies(*args: Any) -> Any:
    *tensors, ignored, _size, _policy, _dtype = args
    return _linear_cross_entropy(*tensors, "none", ignored)[0]


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    **linear_algebra.DECOMPOSITIONS,
    **recurrent.DECOMPOSITIONS,
    **sorting.DECOMPOSITIONS,
    **special_functions.DECOMPOSITIONS,
    **windows.DECOMPOSITIONS,
    _ATEN._neg_view.default: torch.neg,  # noqa: SLF001
    _ATEN.fake_quantize_per_tensor_affine_cachemask.default: _fake_quantize,
    _ATEN.fake_quantize_per_channel_affine_cachemask.default: _fake_quantize_channels,
    _ATEN._pdist_forward.default: _pdist,  # noqa: SLF001
    _ATEN._transformer_encoder_layer_fwd.default: _encoder_layer,  # noqa: SLF001
    _ATEN.addbmm.default: _addbmm,
    _ATEN._trilinear.default: _trilinear,  # noqa: SLF001 - the operator has this name
    _ATEN.rrelu_with_noise_functional.default: _rrelu,
    _ATEN.std.correction: _std,
    _ATEN.var_mean.correction: functools.partial(_with_mean, _ATEN.var.correction),
    _ATEN.std_mean.correction: functools.partial(_with_mean, _std),
    _ATEN._native_batch_norm_legit_functional.default: _batch_norm_training,  # noqa: SLF001
    _ATEN._cdist_forward.default: _cdist,  # noqa: SLF001
    _ATEN.linalg_vector_norm.default: _vector_norm,
}
"""Functions of torch that are traced instead of an operator, by operator."""

if linear_cross_entropy is not None:
    _CHUNKED = torch.ops.torch_nn
    DECOMPOSITIONS |= {
        _CHUNKED._linear_cross_entropy_batch_chunked.default: _linear_cross_entropy,  # noqa: SLF001
        _CHUNKED._linear_cross_entropy_batch_chunked_no_reduction.default: _linear_cross_entropies,  # noqa: SLF001
    }


# Operators on empty tensors and along axes of scalars, which TVM cannot read.

_PRODUCTS = {_ATEN.addmm.default, _ATEN.baddbmm.default}
"""Operators that add a product to their first operand."""

_UPDATES = {
    *(_ATEN.index_put.default, _ATEN.scatter.src, _ATEN.scatter.value, _ATEN.scatter_add.default),
    *(_ATEN.scatter_reduce.two, _ATEN.slice_scatter.default),
}
"""Operators that write into their first operand or add to it."""


def remove_empty_tensors(program: Any) -> None:
    """Replace empty tensors, and results that only depend on empty tensors, by constants."""
    graph = program.graph_module.graph
    for node in list(graph.nodes):
        if node.op != "call_function" or not isinstance(node.meta.get("val"), torch.Tensor):
            continue
        if node.target is _ATEN.cat.default:
            nonempty = [part for part in node.args[0] if not _is_empty(part)]
            node.args = (nonempty or node.args[0], *node.args[1:])
        with graph.inserting_before(node):
            replacement = _replacement(graph, node)
        if replacement is not None:
            replacement.meta = {**node.meta, **replacement.meta}
            node.replace_all_uses_with(replacement)
    graph.eliminate_dead_code()
    program.graph_module.recompile()


def _replacement(graph: Any, node: Any) -> Any:
    """A node with the same result that reads no empty tensor, or None."""
    result, value = node.meta["val"], _constant_value(node)
    if value is not None:
        arguments = list(result.shape), value
        return graph.call_function(_ATEN.full.default, arguments, {"dtype": result.dtype})
    if not any(map(_is_empty, node.all_input_nodes)):
        return None
    if node.target in _UPDATES:
        return node.args[0]
    if node.target not in _PRODUCTS:
        return None
    scaled = graph.call_function(_ATEN.mul.Scalar, (node.args[0], node.kwargs.get("beta", 1)))
    scaled.meta = dict(node.args[0].meta)
    return graph.call_function(_ATEN.expand.default, (scaled, list(result.shape)))


def _constant_value(node: Any) -> Any:
    """The value of all elements of a node's result, if it depends on empty tensors alone."""
    if _is_empty(node):
        return 0
    call = node.args[0] if node.target is getitem else node
    inputs = call.all_input_nodes
    if not inputs or not all(map(_is_empty, inputs)):
        return None
    placeholders = {p: torch.empty(p.meta["val"].shape, dtype=p.meta["val"].dtype) for p in inputs}
    args, kwargs = map_arg((call.args, call.kwargs), placeholders.__getitem__)
    result = call.target(*args, **kwargs)
    numbers = (result if call is node else result[node.args[1]]).flatten().tolist()
    # As text, because NaN is unequal to itself.
    return numbers[0] if len({*map(str, numbers)}) == 1 else None


def _is_empty(node: Any) -> bool:
    value = node.meta.get("val")
    # Symbolic extents cannot be compared.
    return isinstance(value, torch.Tensor) and any(
        isinstance(extent, int) and extent == 0 for extent in value.shape
    )


_AXES = {"dim", "dims"}
"""Torch's names for the arguments that are axes."""


def reduces_scalar(node: Any) -> bool:
    """Whether a node applies an operator along an axis to a scalar, unlike TVM."""
    schema = getattr(node.target, "_schema", None)
    names = [] if schema is None else [argument.name for argument in schema.arguments]
    arguments = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    has_axis = any(name in _AXES and arguments.get(name) != [] for name in names)
    return has_axis and any(map(is_scalar, node.all_input_nodes))


def is_scalar(node: Any) -> bool:
    """Whether the result of a node is a scalar tensor."""
    return getattr(node.meta.get("val"), "shape", None) == ()
