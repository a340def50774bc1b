"""Recurrent networks of ONNX: one product for all steps' inputs, and the steps one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from chameleon_tvm.quick_tvm import tvm
from numpy.typing import NDArray

from chameleon_networks.graph.constants import array_of
from chameleon_networks.graph.relaxed import relax
from chameleon_networks.importers.onnx.nodes import Node, Unsupported, ValueNeeded

Emit = Callable[[Any], Any]
_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
_DEFAULTS = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh")}
_INPUTS = {"LSTM": 8, "GRU": 6}
_GATES = {"LSTM": 4, "GRU": 3}


def _recurrent(kind: str) -> Callable[[Node], Any]:
    """A recurrent network as one product for all steps' inputs, and the steps one by one."""

    def convert(node: Node) -> Any:
        emit, inputs, attrs = node.emit, node.inputs, node.attributes
        given = [*inputs, *[None] * (_INPUTS[kind] - len(inputs))]
        x, weights, recurrent, bias, lengths, first, *cells = given
        _check(kind, attrs, lengths, peepholes=cells[1] if len(cells) > 1 else None)
        steps, batch, _ = (int(extent) for extent in x.ty.shape)
        hidden = int(attrs["hidden_size"])
        directions = _DIRECTIONS[_text(attrs.get("direction", "forward"))]
        w, r = _constant(weights), _constant(recurrent)
        gates = _GATES[kind]
        b = (
            np.zeros((len(directions), 2 * gates * hidden), w.dtype)
            if bias is None
            else _constant(bias)
        )
        sequences, states = [], []
        for place, backwards in enumerate(directions):
            state = [
                _start(emit, one, place, (batch, hidden), w.dtype)
                for one in (first, *cells[: 1 if kind == "LSTM" else 0])
            ]
            step = _STEPS[kind](emit, r[place], b[place], hidden, attrs)
            inside = _projected(emit, x, w[place], b[place][: gates * hidden])
            order = range(steps)[::-1] if backwards else range(steps)
            found: dict[int, Any] = {}
            for time in order:
                state = step(inside[time], state)
                found[time] = state[0]
            sequences.append(emit(relax.op.stack([found[time] for time in range(steps)], 0)))
            states.append(state)
        last = [emit(relax.op.stack(list(parts), 0)) for parts in zip(*states, strict=True)]
        return [emit(relax.op.stack(sequences, 1)), *last]

    return convert


def _check(kind: str, attrs: Mapping[str, Any], lengths: Any, *, peepholes: Any) -> None:
    """Refuse what is rare."""
    functions = tuple(map(_text, attrs.get("activations", ())))
    usual = _DEFAULTS[kind]
    if functions not in {(), usual, usual * 2}:
        raise Unsupported(f"its activations are {', '.join(functions)}")
    for name, value in (("sequence_lens", lengths), ("peepholes", peepholes)):
        if value is not None:
            raise Unsupported(f"it has {name}")
    for name in ("clip", "layout", "input_forget"):
        if attrs.get(name):
            raise Unsupported(f"it has the attribute {name}")


def _projected(emit: Emit, x: Any, weights: NDArray[Any], bias: NDArray[Any]) -> list[Any]:
    """The inputs' part of the gates of each step, (batch, gates)."""
    steps, batch, width = (int(extent) for extent in x.ty.shape)
    flat = emit(relax.op.reshape(x, [steps * batch, width]))
    made = emit(relax.op.matmul(flat, relax.const(np.ascontiguousarray(weights.T))))
    made = emit(relax.op.add(made, relax.const(bias)))
    if steps == 1:
        return [made]
    parts = emit(relax.op.split(made, steps, 0))
    return [emit(relax.TupleGetItem(parts, time)) for time in range(steps)]


def _lstm_step(
    emit: Emit, recurrent: NDArray[Any], bias: NDArray[Any], hidden: int, _attrs: Any
) -> Callable[[Any, list[Any]], list[Any]]:
    """Gates are input, output, forget and cell, as ONNX has them."""
    weights = relax.const(np.ascontiguousarray(recurrent.T))
    added = relax.const(bias[4 * hidden :])

    def step(inside: Any, state: list[Any]) -> list[Any]:
        held, cell = state
        sums = emit(relax.op.add(emit(relax.op.matmul(held, weights)), added))
        parts = emit(relax.op.split(emit(relax.op.add(inside, sums)), 4, 1))
        gate, out, forget, new = (emit(relax.TupleGetItem(parts, place)) for place in range(4))
        gate, out, forget = (emit(relax.op.sigmoid(one)) for one in (gate, out, forget))
        kept = emit(relax.op.multiply(forget, cell))
        cell = emit(relax.op.add(kept, emit(relax.op.multiply(gate, emit(relax.op.tanh(new))))))
        return [emit(relax.op.multiply(out, emit(relax.op.tanh(cell)))), cell]

    return step


def _gru_step(
    emit: Emit, recurrent: NDArray[Any], bias: NDArray[Any], hidden: int, attrs: Mapping[str, Any]
) -> Callable[[Any, list[Any]], list[Any]]:
    """Gates are update, reset and hidden; the reset comes before the product, or after it."""
    after = bool(attrs.get("linear_before_reset", 0))
    both, last = (
        relax.const(np.ascontiguousarray(part.T))
        for part in (recurrent[: 2 * hidden], recurrent[2 * hidden :])
    )
    both_bias, last_bias = (
        relax.const(part) for part in (bias[3 * hidden : 5 * hidden], bias[5 * hidden :])
    )

    def step(inside: Any, state: list[Any]) -> list[Any]:
        [held] = state
        given = emit(relax.op.split(inside, [2 * hidden], 1))
        gates_in, new_in = (emit(relax.TupleGetItem(given, place)) for place in range(2))
        sums = emit(relax.op.add(emit(relax.op.matmul(held, both)), both_bias))
        gates = emit(relax.op.sigmoid(emit(relax.op.add(gates_in, sums))))
        parts = emit(relax.op.split(gates, 2, 1))
        update, reset = (emit(relax.TupleGetItem(parts, place)) for place in range(2))
        source = held if after else emit(relax.op.multiply(reset, held))
        found = emit(relax.op.add(emit(relax.op.matmul(source, last)), last_bias))
        found = emit(relax.op.multiply(reset, found)) if after else found
        new = emit(relax.op.tanh(emit(relax.op.add(new_in, found))))
        change = emit(relax.op.multiply(update, emit(relax.op.subtract(held, new))))
        return [emit(relax.op.add(new, change))]

    return step


_STEPS: dict[str, Callable[..., Callable[[Any, list[Any]], list[Any]]]] = {
    "LSTM": _lstm_step,
    "GRU": _gru_step,
}


def _start(emit: Emit, given: Any, place: int, shape: tuple[int, int], dtype: Any) -> Any:
    """A direction's first state; zeros where none is given."""
    if given is None:
        return relax.const(np.zeros(shape, dtype))
    part = emit(relax.op.strided_slice(given, [0], [place], [place + 1]))
    return emit(relax.op.reshape(part, list(shape)))


def _constant(value: Any) -> NDArray[Any]:
    if not isinstance(value, tvm.ir.GenericConst):
        raise ValueNeeded(value)
    return array_of(value)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


RECURRENT = {kind: _recurrent(kind) for kind in _STEPS}
"""Converters by kind of node."""
