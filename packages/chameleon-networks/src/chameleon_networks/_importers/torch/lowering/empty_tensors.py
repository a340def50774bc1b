"""Finds torch operators on empty tensors and along axes of scalars, which TVM cannot read."""

from __future__ import annotations

from operator import getitem
from typing import Any

import torch
from torch.fx.node import map_arg

_ATEN = torch.ops.aten

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
