"""Hides the arithmetic of a network's functions from TVM's simplifier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from chameleon_tvm import _emit as emit
from chameleon_tvm._opaque import is_opaque, opaque, round_to_bfloat16
from chameleon_tvm._quick_tvm import tirx, tvm
from chameleon_tvm._spaces.loops.trees import find_nodes, structural_map, substitute
from chameleon_tvm._types import BFLOAT16, FLOAT32

_NODES: dict[str, str] = {
    "Add": "add",
    "Sub": "subtract",
    "Mul": "multiply",
    "Div": "divide",
    "Mod": "modulo",
    "FloorDiv": "floor_divide",
    "FloorMod": "floor_modulo",
    "Max": "maximum",
    "Min": "minimum",
    "EQ": "equal",
    "NE": "not_equal",
    "LT": "less",
    "LE": "less_equal",
    "GT": "less",
    "GE": "less_equal",
}
"""The operations of TVM's nodes, by the nodes' class. ``GT`` and ``GE`` exchange their operands."""


def hide_arithmetic(function: Any) -> Any:
    """Make the arithmetic of a function's blocks opaque, but not that on indices.

    Operations on a block's partial results stay as well, so that TVM recognizes reductions.

    Args:
        function: A ``PrimFunc`` of TVM's blocks.
    """

    def hidden_in_block(block: Any) -> Any:
        written = [store.buffer for store in find_nodes(block.body, tirx.BufferStore)]

        def hidden(store: Any) -> Any:
            value = _hidden_value(store.value, written)
            same = value.same_as(store.value)
            return store if same else tirx.BufferStore(store.buffer, value, list(store.indices))

        body = structural_map(block.body, (tirx.BufferStore, hidden))
        if body.same_as(block.body):
            return block
        head = block.iter_vars, block.reads, block.writes, block.name_hint
        tail = block.alloc_buffers, block.match_buffers, block.annotations
        return tvm.s_tir.SBlock(*head, body, block.init, *tail)

    body = structural_map(function.body, (tvm.s_tir.SBlock, hidden_in_block))
    return function if body.same_as(function.body) else function.with_body(body)


def _hidden_value(value: Any, written: Sequence[Any]) -> Any:
    """A value with opaque operations on data. Nothing changes in the indices of loads."""
    loads: list[tuple[Any, Any]] = []

    def replaced(load: Any) -> Any:
        loads.append((tirx.Var("number", load.ty), load))
        return loads[-1][0]

    def is_among(variable: Any, places: Sequence[Any]) -> bool:
        return any(variable.same_as(place) for place in places)

    def hidden(node: Any) -> Any:
        free = tirx.analysis.undefined_vars(node)
        if any(is_among(variable, partial_results) for variable in free):
            return node
        if not emit.is_float(node.a) and not any(is_among(variable, data) for variable in free):
            return node
        exchanged = isinstance(node, tirx.GT | tirx.GE)
        operands = (node.b, node.a) if exchanged else (node.a, node.b)
        return opaque(_NODES[type(node).__name__], *operands)

    def rounded(cast: Any) -> Any:
        if (
            str(cast.ty) != BFLOAT16
            or str(cast.value.ty) == BFLOAT16
            or is_opaque(cast.value, "round")
        ):
            return cast
        return round_to_bfloat16(emit.cast(FLOAT32, cast.value))

    changed = structural_map(value, (tvm.ir.TensorLoad, replaced))
    data = [variable for variable, _ in loads]
    partial_results = [
        variable
        for variable, load in loads
        if any(load.source.same_as(buffer) for buffer in written)
    ]
    kinds = tuple(getattr(tirx, name) for name in _NODES)
    hidden_value = structural_map(changed, [(kinds, hidden), (tirx.Cast, rounded)])
    if hidden_value.same_as(changed):
        return value
    # An index may contain other loads, which were replaced before.
    for variable, load in reversed(loads):
        hidden_value = substitute(hidden_value, variable, load)
    return hidden_value
