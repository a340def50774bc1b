"""Recurrent layers as a single kernel, whose loop runs over the steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
from chameleon_tvm.api import emit, tirx

from chameleon_networks._graph.relax_utils import (
    PLAIN_LOOPS,
    opaque_loops,
    relax,
    shape_of,
)

Gates = Sequence[Any]
Function = Callable[..., Any]
"""A function that binds its argument to a variable, perhaps after an activation."""

_LANES = (16, 8)
"""Numbers of units of a vector, the preferred one first."""

_ROWS = 4
"""The most samples that share loads of weights."""

_CHAINS = 8
"""The least number of independent sums, which hide the latency of an addition."""


_ACTIVATIONS: Mapping[str, Function] = {
    "sigmoid": tirx.sigmoid,
    "tanh": tirx.tanh,
    "relu": lambda x: tirx.max(emit.constant_like(0.0, x), x),  # the second number if one is NaN
}


def _lstm(inputs: Gates, sums: Gates, states: Gates, bind: Function) -> list[Any]:
    """One step of an LSTM, whose gates are input, forget, cell and output, in this order."""
    kinds = "sigmoid", "sigmoid", "tanh", "sigmoid"
    gates = zip(inputs, sums, kinds, strict=True)
    enter, forget, new, leave = [bind(own + other, kind) for own, other, kind in gates]
    cell = bind(forget * states[1] + enter * new)
    return [leave * bind(cell, "tanh"), cell]


def _gru(inputs: Gates, sums: Gates, states: Gates, bind: Function) -> list[Any]:
    """One step of a GRU, whose gates are reset, update and new, in this order."""
    reset, update = [bind(inputs[gate] + sums[gate], "sigmoid") for gate in range(2)]
    new = bind(inputs[2] + reset * sums[2], "tanh")
    return [new + update * (states[0] - new)]


def _rnn(kind: str) -> Function:
    def step(inputs: Gates, sums: Gates, _states: Gates, bind: Function) -> list[Any]:
        return [bind(inputs[0] + sums[0], kind)]

    return step


CELLS: Mapping[str, tuple[int, Function]] = {
    "lstm": (4, _lstm),
    "gru": (3, _gru),
    "rnn_tanh": (1, _rnn("tanh")),
    "rnn_relu": (1, _rnn("relu")),
}
"""The number of gates of each kind of layer, and a function that computes one step."""


def supports_recurrence(hidden: int, dtype: str) -> bool:
    """Whether ``recurrence`` supports a layer with a number of units and a dtype."""
    return dtype == "float32" and hidden % _LANES[-1] == 0


def recurrence(
    builder: Any,
    cell: str,
    tensors: Sequence[Any],
    states: Sequence[Any],
    *,
    backwards: bool,
) -> list[Any]:
    """Emit one direction of a recurrent layer.

    Args:
        builder: TVM's ``BlockBuilder``.
        cell: The kind of layer, a key of ``CELLS``. Gates have torch's order.
        tensors: The part of the gates that inputs contribute, of shape (steps, batch,
            gates * hidden). Then the state's weights, of shape (gates * hidden, hidden), and the
            state's bias, of shape (gates * hidden).
        states: The initial states, each of shape (batch, hidden).
        backwards: Whether the last step is computed first.

    Returns:
        The states of all steps, of shape (steps, batch, hidden), and the final states.
    """
    gates, _ = CELLS[cell]
    steps, batch, _ = shape_of(tensors[0])
    hidden = shape_of(tensors[1])[1]
    lanes = next(width for width in _LANES if hidden % width == 0)
    kernel = _Kernel(cell=cell, steps=steps, batch=batch, hidden=hidden, lanes=lanes)
    blocks = relax.op.reshape(tensors[1], [gates, hidden // lanes, lanes, hidden])
    arguments = [
        builder.emit(relax.op.reshape(tensors[0], [steps, batch, gates, hidden])),
        builder.emit(relax.op.permute_dims(builder.emit(blocks), [1, 3, 0, 2])),
        builder.emit(relax.op.reshape(tensors[2], [gates, hidden])),
        *states,
    ]
    shapes = [[steps, batch, hidden], *([[batch, hidden]] * len(states))]
    kinds = [relax.TensorType(shape, "float32") for shape in shapes]
    name = builder.add_func(kernel.function(len(states), backwards=backwards), cell)
    results = builder.emit(relax.call_tir(name, arguments, kinds))
    return [builder.emit(relax.TupleGetItem(results, number)) for number in range(len(kinds))]


@attrs.frozen(kw_only=True, eq=False)
class _Kernel:
    """Writes the function of a recurrent layer.

    The final states are also the states before each step.
    """

    cell: str
    steps: int
    batch: int
    hidden: int
    lanes: int

    def function(self, states: int, *, backwards: bool) -> Any:
        """The function; parameters: inputs, weights, bias, states, all outputs, final states."""
        gates, _ = CELLS[self.cell]
        shape = [self.batch, self.hidden]
        inputs = emit.buffer("inputs", [self.steps, self.batch, gates, self.hidden])
        blocks = self.hidden // self.lanes
        weights = emit.buffer("weights", [blocks, self.hidden, gates, self.lanes])
        bias = emit.buffer("bias", [gates, self.hidden])
        first = [emit.buffer(f"first{number}", shape) for number in range(states)]
        outputs = emit.buffer("outputs", [self.steps, *shape])
        last = [emit.buffer(f"last{number}", shape) for number in range(states)]
        rows = next(count for count in range(_ROWS, 0, -1) if self.batch % count == 0)
        # A network for calls of several lengths puts the length of the call here.
        length = emit.buffer("length", [1], dtype="int64")
        count, step = tirx.Var("count", "int32"), tirx.Var("step", "int32")

        def each_step(number: Any) -> Any:
            place = count - 1 - number if backwards else number

            def units(index: Any) -> Any:
                block, group = emit.split(index, [blocks, self.batch // rows])
                at = _Place(step=step, block=block, row=group * rows, rows=rows)
                return self._units(at, (inputs, weights, bias), (outputs, *last))

            parts = emit.parallel("block", blocks * (self.batch // rows), units)
            kept = self._copy(lambda at: emit.load(outputs, [step, *at], self.lanes), last[0])
            return emit.sequence([tirx.Bind(step, place), parts, kept])

        def initial(source: Any, target: Any) -> Any:
            return self._copy(lambda at: emit.load(source, at, self.lanes), target)

        body = [
            emit.store(length, [0], tirx.IntImm("int64", self.steps)),
            tirx.Bind(count, tirx.Cast("int32", emit.load(length, [0]))),
            *map(initial, first, last),
            emit.loop("number", count, each_step),
        ]
        whole = emit.allocate(length, emit.sequence(body))
        function = emit.function([inputs, weights, bias, *first, outputs, *last], whole)
        return opaque_loops(function).with_attr(PLAIN_LOOPS, 1)

    def _copy(self, read: Callable[[list[Any]], Any], target: Any) -> Any:
        def vector(row: Any, number: Any) -> Any:
            at = [row, number * self.lanes]
            return emit.store(target, at, read(at), self.lanes)

        return emit.loops({"row": self.batch, "unit": self.hidden // self.lanes}, vector)

    def _units(self, at: _Place, tensors: Sequence[Any], results: Sequence[Any]) -> Any:
        """One step of a vector of units, for some samples."""
        (gates, cell), lanes = CELLS[self.cell], self.lanes
        inputs, weights, bias = tensors
        outputs, hidden, *others = results
        parts = max(1, _CHAINS // (gates * at.rows))
        sums = emit.registers(parts * at.rows * gates, lanes)
        unit = at.block * lanes

        def total(part: int, row: int, gate: int) -> Any:
            return sums[(part * at.rows + row) * gates + gate]

        def multiply(number: Any) -> Any:
            statements = []
            for part in range(parts):
                source = number * parts + part
                columns = [
                    emit.load(weights, [at.block, source, gate, 0], lanes) for gate in range(gates)
                ]
                for row in range(at.rows):
                    value = emit.splat(emit.load(hidden, [at.row + row, source]), lanes)
                    for gate, column in enumerate(columns):
                        into = total(part, row, gate)
                        statements.append(emit.assign(into, emit.read(into) + value * column))
            return emit.sequence(statements)

        clear = [
            emit.assign(
                total(part, row, gate),
                emit.zero(lanes) if part else emit.load(bias, [gate, unit], lanes),
            )
            for part in range(parts)
            for row in range(at.rows)
            for gate in range(gates)
        ]
        write: list[Any] = []

        def bind(value: Any, kind: str | None = None) -> Any:
            if kind is not None:
                value = _ACTIVATIONS[kind](bind(value))
            variable = tirx.Var("value", value.ty)
            write.append(tirx.Bind(variable, value))
            return variable

        for row in range(at.rows):
            place = [at.row + row, unit]
            given = [
                emit.load(inputs, [at.step, at.row + row, gate, unit], lanes)
                for gate in range(gates)
            ]
            added = [
                bind(_sum([emit.read(total(part, row, gate)) for part in range(parts)]))
                for gate in range(gates)
            ]
            before = [bind(emit.load(state, place, lanes)) for state in (hidden, *others)]
            new, *more = cell(given, added, before, bind)
            write.append(emit.store(outputs, [at.step, *place], new, lanes))
            for state, value in zip(others, more, strict=True):
                write.append(emit.store(state, place, value, lanes))
        products = emit.loop("source", self.hidden // parts, multiply)
        return emit.allocate(sums, emit.sequence([*clear, products, *write]))


@attrs.frozen(kw_only=True)
class _Place:
    """A step, a vector of units, and the first of some samples."""

    step: Any
    block: Any
    row: Any
    rows: int


def _sum(values: Sequence[Any]) -> Any:
    first, *rest = values
    for value in rest:
        first += value
    return first
