"""Relax imported without torch, and what all passes over its graphs ask; modules take both here."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from chameleon_core.errors import ConfigError
from chameleon_system.imports import without
from chameleon_tvm.quick_tvm import tirx, tvm

with without("torch"):
    from tvm import relax


def rewritten(module: Any, mutator: Any) -> Any:
    """The module with every function as a mutator writes it, without what nothing reads then.

    Args:
        module: an ``IRModule`` of Relax functions in normal form.
        mutator: a ``PyExprMutator`` of it.
    """
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            mutator.builder_.update_func(variable, mutator.visit_expr(function))
    return relax.transform.DeadCodeElimination()(mutator.builder_.get())


def emitted(builder: Any, value: Any, variable: Any, name: str = "") -> Any:
    """The new variable of a value: one of a block, or an output of it, as an old variable is.

    Args:
        builder: a ``BlockBuilder`` in a block.
        value: what is bound.
        variable: the old one.
        name: of the new one; made up if it is empty.
    """
    inner = isinstance(variable, relax.DataflowVar)
    return (builder.emit if inner else builder.emit_output)(value, name)


def bindings_of(function: Any) -> list[Any]:
    """The bindings of a function, in order."""
    return [binding for block in function.body.blocks for binding in block.bindings]


def users_of(function: Any) -> dict[Any, list[Any]]:
    """The bindings that read each variable; None stands for the function's result."""
    users: dict[Any, list[Any]] = defaultdict(list)
    for binding in bindings_of(function):
        for variable in relax.analysis.free_vars(binding.value):
            users[variable].append(binding)
    for variable in relax.analysis.free_vars(function.body.body):
        users[variable].append(None)
    return users


def operator_name(value: Any) -> str:
    """The name of the operator that an expression is a call of; empty for other expressions."""
    called = isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op)
    return str(value.op.name) if called else ""


def known_extents(kind: Any) -> tuple[int, ...] | None:
    """The extents of a type; None if it is no tensor's, or one of them is open.

    Passes over a graph ask for little else. Extents come from the list of all of them, since
    asking Relax's shape for one after the other takes four times as long.

    Args:
        kind: the type of an expression, or a buffer.
    """
    shape = getattr(kind, "shape", None)
    if shape is None:
        return None
    extents = getattr(shape, "values", shape)
    known = [int(extent.value) for extent in extents if isinstance(extent, tirx.IntImm)]
    return tuple(known) if len(known) == len(extents) else None


def extents_of(kind: Any) -> tuple[int, ...]:
    """The extents of a tensor's type, all of which have to be known.

    Raises:
        ConfigError: not every extent is known.
    """
    known = known_extents(kind)
    if known is None:
        raise ConfigError(
            f"the network has a tensor of unknown shape: {kind}",
            hint="Fix every input's shape; dynamic shapes are not supported.",
        )
    return known


__all__ = [
    "bindings_of",
    "emitted",
    "extents_of",
    "known_extents",
    "operator_name",
    "relax",
    "rewritten",
    "tvm",
    "users_of",
]
