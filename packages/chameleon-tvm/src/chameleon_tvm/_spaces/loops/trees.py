"""Functions that search TensorIR and substitute variables in it."""

from __future__ import annotations

from typing import Any

from chameleon_tvm._quick_tvm import tirx, tvm

# After TVM, which imports it without torch.
from tvm_ffi import structural_equal, structural_hash, structural_map, structural_walk  # isort: skip

__all__ = [
    "find_nodes",
    "is_element",
    "structural_equal",
    "structural_hash",
    "structural_map",
    "substitute",
    "uses",
]


def substitute(tree: Any, variable: Any, value: Any) -> Any:
    """An expression or statement in which ``value`` replaces ``variable``."""

    def mapped(leaf: Any) -> Any:
        return value if leaf.same_as(variable) else leaf

    return structural_map(tree, [(tirx.Var, mapped)])


def uses(expression: Any, variable: Any) -> bool:
    """Whether a variable occurs in an expression."""
    return any(variable.same_as(free) for free in tirx.analysis.undefined_vars(expression))


def is_element(value: Any, store: Any) -> bool:
    """Whether a value is the element that a store writes."""
    return (
        isinstance(value, tvm.ir.TensorLoad)
        and value.source.same_as(store.buffer)
        and len(value.indices) == len(store.indices)
        and all(map(structural_equal, value.indices, store.indices))
    )


def find_nodes(tree: Any, iterator_positions: type | tuple[type, ...]) -> list[Any]:
    """All nodes of some classes in an expression or statement of TensorIR, in order."""
    nodes: list[Any] = []

    def append(node: Any) -> None:
        nodes.append(node)

    structural_walk(tree, [(iterator_positions, append)])
    return nodes
