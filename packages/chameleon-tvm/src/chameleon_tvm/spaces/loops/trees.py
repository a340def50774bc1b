"""Functions that search TensorIR and substitute variables in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chameleon_tvm.quick_tvm import tirx, tvm

# After TVM, which imports it without torch.
from tvm_ffi import structural_equal, structural_hash, structural_map, structural_walk  # isort: skip

__all__ = [
    "is_element",
    "structural_equal",
    "structural_hash",
    "structural_map",
    "substituted",
    "uses",
    "walk",
]


def substituted(tree: Any, variable: Any, value: Any) -> Any:
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


def walk(tree: Any, kinds: type | tuple[type, ...], visit: Callable[[Any], None]) -> None:
    """Call ``visit`` with every node of the given classes in an expression or statement.

    C++ code passes over all other nodes, because calls of Python take most of a walk's time.
    """

    def visited(node: Any) -> None:
        visit(node)

    structural_walk(tree, [(kinds, visited)])
