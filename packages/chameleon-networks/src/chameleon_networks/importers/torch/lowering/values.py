"""What converters of torch's operators to Relax share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chameleon_networks.graph.relaxed import relax

Converter = Callable[[Any, Any], Any]
"""A node of a program and TVM's importer give the variable of its value."""


def dtype_of(node: Any) -> str:
    """The type of a node's numbers, as torch computes them."""
    return str(node.meta["val"].dtype).removeprefix("torch.")


def given(node: Any, place: int, name: str, default: Any = None) -> Any:
    """An argument of a node that may be given by place or by name."""
    return node.args[place] if len(node.args) > place else node.kwargs.get(name, default)


def tensor(importer: Any, argument: Any, dtype: str | None = None) -> Any:
    """An argument as a Relax expression.

    Args:
        importer: TVM's.
        argument: a node, or a number.
        dtype: that it is to have; needed for a number.
    """
    if isinstance(argument, bool | int | float):
        return relax.const(argument, dtype)
    value = importer.env[argument]
    if dtype is not None and str(value.ty.dtype) != dtype:
        value = importer.block_builder.emit(relax.op.astype(value, dtype))
    return value


def extents(value: Any) -> list[int]:
    """The shape of a tensor whose shape is known."""
    return [int(extent) for extent in value.ty.shape]
