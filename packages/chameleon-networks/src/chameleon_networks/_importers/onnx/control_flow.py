"""Resolves ONNX's control flow and sequences at compile time.

Loops are unrolled, and both branches of a computed ``If`` run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import onnx

from chameleon_networks._graph.relax_utils import relax
from chameleon_networks._importers.onnx import nodes
from chameleon_networks._importers.onnx.emulated_types import Emulated
from chameleon_networks._importers.onnx.nodes import (
    ConstantNeededError,
    NodeError,
    Value,
    relax_constant,
    shape_of,
)

_MAX_ITERATIONS = 4096
"""The most iterations of a loop that are unrolled, each to a copy of the loop's body."""


class Graphs(Protocol):
    """Converts the graphs that a control-flow node contains, such as the body of a loop."""

    def run_graph(
        self, graph: Any, inputs: Sequence[Value], scope: dict[str, Value], opsets: Any
    ) -> list[Value]:
        """Convert a graph, and return its outputs."""

    def choose(self, condition: Any, branches: Sequence[list[Value]]) -> list[Value]:
        """Select the outputs of one branch of an ``If`` whose condition the network computes."""

    def emit(self, value: Any) -> Any:
        """Bind an expression to a variable, and return the variable."""


Convert = Callable[[Graphs, Any, Sequence[Value], dict[str, Value], Mapping[str, int]], list[Value]]


def _attributes(node: Any) -> dict[str, Any]:
    return {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}


def _constant_value(value: Value) -> Any:
    if not nodes.is_constant(value):
        raise ConstantNeededError(value)
    return nodes.constant_value(value)


def _constant_integer(value: Value) -> int:
    return int(_constant_value(value).reshape(()))


def _constant(_graphs: Graphs, node: Any, *_: Any) -> list[Value]:
    [(name, value)] = _attributes(node).items()
    if name == "value":
        return [relax_constant(onnx.numpy_helper.to_array(value))]
    dtypes = {"value_int": np.int64, "value_float": np.float32}
    if name.removesuffix("s") not in dtypes:
        raise NodeError(f"it has the attribute {name}")
    return [relax_constant(np.asarray(value, dtypes[name.removesuffix("s")]))]


def _shape(_graphs: Graphs, node: Any, inputs: Sequence[Value], *_: Any) -> list[Value]:
    shape = shape_of(inputs[0])
    attributes = _attributes(node)
    part = shape[slice(attributes.get("start", 0), attributes.get("end"))]
    return [relax_constant(np.asarray(part, np.int64))]


def _if(
    graphs: Graphs, node: Any, inputs: Sequence[Value], scope: dict[str, Value], opsets: Any
) -> list[Value]:
    attributes = _attributes(node)
    names = ("then_branch", "else_branch")
    if nodes.is_constant(inputs[0]):
        name = names[0] if bool(nodes.constant_value(inputs[0]).reshape(())) else names[1]
        return graphs.run_graph(attributes[name], [], scope, opsets)
    branches = [graphs.run_graph(attributes[name], [], scope, opsets) for name in names]
    return graphs.choose(inputs[0], branches)


def _loop(
    graphs: Graphs, node: Any, inputs: Sequence[Value], scope: dict[str, Value], opsets: Any
) -> list[Value]:
    body = _attributes(node)["body"]
    count, condition, *carried = inputs
    iterations = None if count is None else _constant_integer(count)
    rows: list[list[Value]] = []
    while (iterations is None or len(rows) < iterations) and (
        condition is None or bool(_constant_value(condition))
    ):
        _check_iterations(len(rows) + 1)
        condition_value = relax_constant(np.asarray(True)) if condition is None else condition
        values = [relax_constant(np.asarray(len(rows), np.int64)), condition_value, *carried]
        condition, *rest = graphs.run_graph(body, values, scope, opsets)
        carried, row = rest[: len(carried)], rest[len(carried) :]
        rows.append(row)
    if len(node.output) > len(carried):
        _check_nonempty(rows)
    return [*carried, *(_stack(graphs, column, 0) for column in zip(*rows, strict=True))]


def _check_iterations(iterations: int) -> None:
    if iterations > _MAX_ITERATIONS:
        raise NodeError(f"it has more than {_MAX_ITERATIONS} iterations, which are not unrolled")


def _check_nonempty(rows: Sequence[Any]) -> None:
    if not rows:
        raise NodeError("it has no iterations, so that the shape of what it collects is unknown")


def _stack(graphs: Graphs, values: Sequence[Value], axis: int) -> Value:
    if all(nodes.is_constant(value) for value in values):
        return relax_constant(np.stack([nodes.constant_value(value) for value in values], axis))
    return _move_data(graphs, lambda parts: relax.op.stack(parts, axis), values)


def _scan(
    graphs: Graphs, node: Any, inputs: Sequence[Value], scope: dict[str, Value], opsets: Any
) -> list[Value]:
    """``Scan`` of version 9 and later; the earlier one has a batch axis and lengths."""
    attributes = _attributes(node)
    if opsets.get("", opsets.get("ai.onnx", 1)) < 9:  # noqa: PLR2004 - version 9 changed it
        raise NodeError("it is of a version of the standard before 9")
    count = attributes["num_scan_inputs"]
    carried, read = list(inputs[: len(inputs) - count]), inputs[len(inputs) - count :]
    outputs = len(node.output) - len(carried)
    axes = attributes.get("scan_input_axes", [0] * count)
    backwards = attributes.get("scan_input_directions", [0] * count)
    iterations = shape_of(read[0])[axes[0]]
    _check_iterations(iterations)
    rows: list[list[Value]] = []
    for iteration in range(iterations):
        parts = [
            _take_slice(graphs, value, axis, iterations - 1 - iteration if reverse else iteration)
            for value, axis, reverse in zip(read, axes, backwards, strict=True)
        ]
        rest = graphs.run_graph(attributes["body"], [*carried, *parts], scope, opsets)
        carried, row = rest[: len(carried)], rest[len(carried) :]
        rows.append(row)
    _check_nonempty(rows)
    places = attributes.get("scan_output_axes", [0] * outputs)
    reversed_ = attributes.get("scan_output_directions", [0] * outputs)
    stacked = [
        _stack(graphs, column[::-1] if reverse else column, axis)
        for column, axis, reverse in zip(zip(*rows, strict=True), places, reversed_, strict=True)
    ]
    return [*carried, *stacked]


def _move_data(graphs: Graphs, move: Callable[[list[Any]], Any], values: Sequence[Value]) -> Value:
    """Apply a function that only moves data to tensors of one dtype."""
    dtypes = {value.dtype for value in values if isinstance(value, Emulated)}
    parts = [value.value if isinstance(value, Emulated) else value for value in values]
    result = graphs.emit(move(parts))
    return Emulated(result, dtypes.pop()) if dtypes else result


def _take_slice(graphs: Graphs, value: Value, axis: int, position: int) -> Value:
    """One slice of a tensor, without the axis that is sliced."""
    if nodes.is_constant(value):
        return relax_constant(nodes.constant_value(value).take(position, axis))
    at = relax.const(position, "int64")
    return _move_data(graphs, lambda parts: relax.op.take(parts[0], at, axis), [value])


# Sequences


def _from_inputs(function: Callable[..., Value]) -> Convert:
    """Make a converter of a function of the inputs alone that gives the only output."""
    return lambda _graphs, _node, inputs, *_: [function(*inputs)]


def _sequence_insert(sequence: list[Value], value: Value, position: Value = None) -> list[Value]:
    number = _position(position, len(sequence) + 1, len(sequence))
    result = list(sequence)
    result.insert(number, value)
    return result


def _sequence_erase(sequence: list[Value], position: Value = None) -> list[Value]:
    result = list(sequence)
    del result[_position(position, len(result), -1)]
    return result


def _position(position: Value, count: int, default: int | None = None) -> int:
    number = _constant_integer(position) if default is None or position is not None else default
    if not -count <= number < count:
        raise NodeError(f"it asks for place {number} of a sequence of {count}")
    return number


def _concatenate(graphs: Graphs, node: Any, inputs: Sequence[Value], *_: Any) -> list[Value]:
    attributes = _attributes(node)
    if attributes.get("new_axis"):
        return [_stack(graphs, inputs[0], attributes["axis"])]
    return [_move_data(graphs, lambda parts: relax.op.concat(parts, attributes["axis"]), inputs[0])]


def _split(graphs: Graphs, node: Any, inputs: Sequence[Value], *_: Any) -> list[Value]:
    attributes = _attributes(node)
    data, *sizes = inputs
    axis = attributes.get("axis", 0)
    extent = shape_of(data)[axis]
    if not sizes:
        places = range(extent)
        if attributes.get("keepdims", 1):
            return [[_slice(graphs, data, axis, position, position + 1) for position in places]]
        return [[_take_slice(graphs, data, axis, position) for position in places]]
    numbers = _constant_value(sizes[0])
    if numbers.ndim:
        ends = np.cumsum(numbers).tolist()
    else:
        step = int(numbers)
        ends = [*range(step, extent, step), extent]
    begins = [0, *ends[:-1]]
    pairs = zip(begins, ends, strict=True)
    return [[_slice(graphs, data, axis, begin, end) for begin, end in pairs]]


def _slice(graphs: Graphs, value: Value, axis: int, begin: int, end: int) -> Value:
    return _move_data(
        graphs, lambda parts: relax.op.strided_slice(parts[0], [axis], [begin], [end]), [value]
    )


def _element(value: Value) -> Value:
    if value is None:
        raise NodeError("what it reads is empty")
    return value


CONTROL_FLOW: dict[str, Convert] = {
    "Constant": _constant,
    "Shape": _shape,
    "Size": _from_inputs(lambda x: relax_constant(np.asarray(np.prod(shape_of(x)), np.int64))),
    "Identity": _from_inputs(lambda value: value),
    "If": _if,
    "Loop": _loop,
    "Scan": _scan,
    "SequenceConstruct": _from_inputs(lambda *values: list(values)),
    "SequenceEmpty": _from_inputs(list),
    "SequenceInsert": _from_inputs(_sequence_insert),
    "SequenceErase": _from_inputs(_sequence_erase),
    "SequenceAt": _from_inputs(
        lambda sequence, position: sequence[_position(position, len(sequence))]
    ),
    "SequenceLength": _from_inputs(
        lambda values: relax_constant(np.asarray(len(values), np.int64))
    ),
    "ConcatFromSequence": _concatenate,
    "SplitToSequence": _split,
    "Optional": _from_inputs(lambda value=None: value),
    "OptionalHasElement": _from_inputs(
        lambda value=None: relax_constant(np.asarray(value is not None))
    ),
    "OptionalGetElement": _from_inputs(_element),
}
"""Functions that return the values of a node's outputs, by operator."""
