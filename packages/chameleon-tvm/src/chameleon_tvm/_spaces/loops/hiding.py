"""Hides the arithmetic of a network's functions from TVM's simplifier."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from chameleon_tvm import _emit as emit
from chameleon_tvm._opaque import NODES, OPAQUE, is_opaque, opaque, rounded_to
from chameleon_tvm._quick_tvm import tirx, tvm
from chameleon_tvm._spaces.loops.trees import find_nodes, structural_map, substitute
from chameleon_tvm._types import FLOAT32, HALVES, UNROUNDED

_KINDS = tuple(getattr(tirx, name) for name in (*NODES, "GT", "GE"))
"""The classes of TVM's nodes that become opaque."""


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

    changed = structural_map(value, (tvm.ir.TensorLoad, replaced))
    data = [variable for variable, _ in loads]
    results = [
        variable
        for variable, load in loads
        if any(load.source.same_as(buffer) for buffer in written)
    ]
    changes = [
        (_KINDS, partial(_hidden_operation, data, results)),
        (tirx.Cast, _rounded_cast),
        (tvm.ir.Call, _exact_call),
    ]
    hidden = structural_map(changed, changes)
    if hidden.same_as(changed):
        return value
    if is_opaque(hidden, "product"):
        # One of TVM's formulas may round a product and a sum at once, but not its result.
        hidden = opaque("multiply", *hidden.args)
    # An index may contain other loads, which were replaced before.
    for variable, load in reversed(loads):
        hidden = substitute(hidden, variable, load)
    return hidden


def _hidden_operation(data: Sequence[Any], results: Sequence[Any], node: Any) -> Any:
    """An opaque operation in place of a node, unless it is on indices or partial results."""
    free = tirx.analysis.undefined_vars(node)
    if any(variable.same_as(result) for variable in free for result in results):
        return node
    if not emit.is_float(node.a) and not any(
        variable.same_as(number) for variable in free for number in data
    ):
        return node
    name = type(node).__name__
    if name in {"GT", "GE"}:
        return opaque("less" if name == "GT" else "less_equal", node.b, node.a)
    return opaque(NODES[name], node.a, node.b)


def _rounded_cast(cast: Any) -> Any:
    """A conversion that rounds; TVM's does not, if a number is converted back."""
    kind = str(cast.ty)
    if kind not in UNROUNDED or str(cast.value.ty) == kind or is_opaque(cast.value, "round"):
        return cast
    return rounded_to(kind, emit.cast(FLOAT32, cast.value))


def _exact_call(call: Any) -> Any:
    """A function in float32 whose result is rounded to 16 bits, and one that TVM approximates."""
    kind, name = str(call.ty), str(getattr(call.op, "name", ""))
    if name.startswith(OPAQUE) or any(str(each.ty) != kind for each in call.args):
        return call
    if name == "tirx.tanh" and kind == "float64":
        return opaque("tanh", *call.args)
    if kind not in HALVES:
        return call
    operands = [emit.cast(FLOAT32, each) for each in call.args]
    result = tirx.call_intrin(FLOAT32, call.op, *operands)
    return rounded_to(kind, result) if kind in UNROUNDED else emit.cast(kind, result)
