"""Operators along an axis of a number, which has none: torch reads it as a vector of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chameleon_networks.graph.relaxed import relax

_AXES = {"dim", "dims"}
"""Torch's names for the arguments that are axes."""


def is_along_number(node: Any) -> bool:
    """Whether a node is an operator along an axis of a tensor without axes.

    Args:
        node: a call of ``torch.fx``.
    """
    schema = getattr(node.target, "_schema", None)
    names = [] if schema is None else [argument.name for argument in schema.arguments]
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    along = any(name in _AXES and given.get(name) != [] for name in names)
    return along and any(map(_is_number, node.all_input_nodes))


def _is_number(node: Any) -> bool:
    return getattr(node.meta.get("val"), "shape", None) == ()


def along_vectors(convert: Callable[[], Any], node: Any, importer: Any) -> Any:
    """The results of a node, of which each number is converted as a vector of one.

    Args:
        convert: converts the node.
        node: one of ``is_along_number``.
        importer: TVM's.
    """
    emit, kept = importer.block_builder.emit, dict(importer.env)
    for argument in node.all_input_nodes:
        if _is_number(argument):
            importer.env[argument] = emit(relax.op.reshape(importer.env[argument], [1]))
    try:
        result = convert()
    finally:
        importer.env.update(kept)
    values = node.meta["val"]
    if not isinstance(values, list | tuple):
        return emit(relax.op.reshape(result, list(values.shape)))
    parts = result if isinstance(result, list | tuple) else [result[n] for n in range(len(values))]
    shaped = [
        emit(relax.op.reshape(emit(part), list(value.shape)))
        for part, value in zip(parts, values, strict=True)
    ]
    return emit(relax.Tuple(shaped))
