"""Converts recurrent ONNX operators such as ``LSTM``.

One product handles the inputs of all time steps. With the usual activations, a kernel then loops
over the steps. Otherwise each step consists of operators of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
import numpy as np

from chameleon_networks._graph.constants import constant_of
from chameleon_networks._graph.recurrences import recurrence, supports_recurrence
from chameleon_networks._graph.relax_utils import relax
from chameleon_networks._importers.onnx.nodes import Node, dtype_of, scalar, shape_of

op = relax.op

Function = Callable[[Any], Any]
Make = Callable[[float, float, Callable[[float], Any]], Function]


_ACTIVATIONS: Mapping[str, tuple[Make, float | None, float | None]] = {
    "Relu": (lambda _a, _b, _k: op.nn.relu, None, None),
    "Tanh": (lambda _a, _b, _k: op.tanh, None, None),
    "Sigmoid": (lambda _a, _b, _k: op.sigmoid, None, None),
    "Affine": (lambda a, b, k: lambda x: k(b) + k(a) * x, 1, 0),
    "LeakyRelu": (lambda a, _b, _k: lambda x: op.nn.leakyrelu(x, a), 0.01, None),
    "ThresholdedRelu": (lambda a, _b, k: lambda x: op.where(x > k(a), x, k(0)), 1, None),
    "ScaledTanh": (lambda a, b, k: lambda x: k(a) * op.tanh(k(b) * x), 1, 1),
    "HardSigmoid": (lambda a, b, k: lambda x: op.clip(k(b) + k(a) * x, 0, 1), 0.2, 0.5),
    "Elu": (lambda a, _b, k: lambda x: op.where(x < k(0), k(a) * (op.exp(x) - k(1)), x), 1, None),
    "Softsign": (lambda _a, _b, k: lambda x: x / (k(1) + op.abs(x)), None, None),
    "Softplus": (lambda _a, _b, _k: op.nn.softplus, None, None),
}
"""For each activation, a function that makes it from its alpha, its beta and a function for
constants. Then the defaults of alpha and beta, or None."""

_DEFAULT_ACTIVATIONS = {
    "RNN": ("Tanh",),
    "GRU": ("Sigmoid", "Tanh"),
    "LSTM": ("Sigmoid", "Tanh", "Tanh"),
}
_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_ORDERS = {"RNN": (0,), "GRU": (1, 0, 2), "LSTM": (0, 2, 3, 1)}
"""The gates of each operator in torch's order."""

_DIRECTIONS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}


def _activations_of(node: Node, count: int) -> Iterator[Function]:
    """The activations of all directions, in the order of the directions."""
    names = node.attributes.get("activations") or _DEFAULT_ACTIVATIONS[node.op_type] * count
    alphas, betas = (
        list(node.attributes.get(f"activation_{key}", ())) for key in ("alpha", "beta")
    )
    for name in names:
        make, alpha, beta = _ACTIVATIONS[name]
        # The lists have values only for activations that take them.
        if alpha is not None and alphas:
            alpha = alphas.pop(0)
        if beta is not None and betas:
            beta = betas.pop(0)
        yield make(alpha or 0, beta or 0, lambda number: scalar(number, node[0]))


@attrs.frozen(kw_only=True, eq=False)
class _Direction:
    """The weights and activations of one direction of a recurrent operator.

    Attributes:
        node: The operator's node.
        hidden: Number of features of the state.
        functions: The activations.
        recurrent: Weights of the state, of shape (hidden, gates).
        recurrent_bias: The bias that is added to the state's part of the gates.
        peepholes: The cell's weights for three gates, or empty.
    """

    node: Node
    hidden: int
    functions: Sequence[Function]
    recurrent: Any
    recurrent_bias: Any
    peepholes: Sequence[Any]

    def activated(self, index: int, value: Any) -> Any:
        """Apply an activation of the node to gates that are limited to its ``clip``."""
        limit = self.node.attributes.get("clip")
        if limit:
            value = self.node.emit(op.clip(self.node.emit(value), -limit, limit))
        return self.node.emit(self.functions[index](value))

    def from_state(self, state: Any) -> Any:
        """The part of the gates that the state contributes."""
        return self.node.emit(op.matmul(state, self.recurrent) + self.recurrent_bias)

    def RNN(self, from_inputs: Any, state: Sequence[Any]) -> list[Any]:  # noqa: N802 - as ONNX has it
        """One step of an ``RNN``."""
        return [self.activated(0, from_inputs + self.from_state(state[0]))]

    def GRU(self, from_inputs: Any, state: Sequence[Any]) -> list[Any]:  # noqa: N802 - as ONNX has it
        """One step of a ``GRU``, whose gates are update, reset and hidden, in this order."""
        emit, hidden, [hidden_state] = self.node.emit, self.hidden, state
        *input_gates, new = _split(self.node, from_inputs, 3, 1)
        cuts = [
            emit(op.strided_slice(tensor, [axis], [begin], [end]))
            for tensor, axis in ((self.recurrent, 1), (self.recurrent_bias, 0))
            for begin, end in ((0, 2 * hidden), (2 * hidden, 3 * hidden))
        ]
        sums = emit(op.matmul(hidden_state, cuts[0]) + cuts[2])
        update, reset = (
            self.activated(0, op.add(*pair))
            for pair in zip(input_gates, _split(self.node, sums, 2, 1), strict=True)
        )
        # The reset comes before the product, or after it.
        after = bool(self.node.attributes.get("linear_before_reset", 0))
        change = op.matmul(hidden_state if after else reset * hidden_state, cuts[1]) + cuts[3]
        new = self.activated(1, new + (reset * change if after else change))
        return [emit(new + update * (hidden_state - new))]

    def LSTM(self, from_inputs: Any, state: Sequence[Any]) -> list[Any]:  # noqa: N802 - as ONNX has it
        """One step of an ``LSTM``, whose gates are input, output, forget and cell, in order."""
        emit, (hidden_state, cell) = self.node.emit, state
        sums = emit(from_inputs + self.from_state(hidden_state))
        entering, leaving, forgetting, new = _split(self.node, sums, 4, 1)
        if self.peepholes:
            entering = entering + self.peepholes[0] * cell
            forgetting = forgetting + self.peepholes[2] * cell
        enter = self.activated(0, entering)
        if self.node.attributes.get("input_forget"):
            # The standard does not say which gate is coupled; as in onnxruntime, the forget gate
            # is.
            forget = scalar(1, enter) - enter
        else:
            forget = self.activated(0, forgetting)
        cell = emit(forget * cell + enter * self.activated(1, new))
        if self.peepholes:
            leaving = leaving + self.peepholes[1] * cell
        return [emit(self.activated(0, leaving) * self.functions[2](cell)), cell]


def _split(node: Node, value: Any, count: int, axis: int) -> list[Any]:
    """Cut a tensor into equal parts along an axis."""
    if count == 1:
        return [value]
    parts = node.emit(op.split(value, count, axis))
    return [node.emit(relax.TupleGetItem(parts, index)) for index in range(count)]


def _recurrent(node: Node) -> list[Any]:
    emit, gates = node.emit, _GATES[node.op_type]
    x, batch_first = node[0], bool(node.attributes.get("layout", 0))
    first = [node[5], node[6]] if node.op_type == "LSTM" else [node[5]]
    if batch_first:
        x = emit(op.permute_dims(x, [1, 0, 2]))
        first = [
            None if start is None else emit(op.permute_dims(start, [1, 0, 2])) for start in first
        ]
    (steps, batch, width), hidden = shape_of(x), shape_of(node[2])[2]
    directions = _DIRECTIONS[str(node.attributes.get("direction", "forward"))]
    functions, per_direction = (
        list(_activations_of(node, len(directions))),
        len(_DEFAULT_ACTIVATIONS[node.op_type]),
    )
    masks = _length_masks(node, steps)
    sequences, states = [], []
    for index, backwards in enumerate(directions):

        def of_direction(tensor: Any, shape: Sequence[int], index: int = index) -> Any:
            return emit(op.reshape(op.strided_slice(tensor, [0], [index], [index + 1]), shape))

        if node[3] is None:
            biases = [constant_of(np.zeros(gates * hidden, dtype_of(x)))] * 2
        else:
            biases = _split(node, of_direction(node[3], [2 * gates * hidden]), 2, 0)
        peepholes = []
        if node.op_type == "LSTM" and node[7] is not None:
            peepholes = _split(node, of_direction(node[7], [3 * hidden]), 3, 0)
        direction = _Direction(
            node=node,
            hidden=hidden,
            functions=functions[index * per_direction : (index + 1) * per_direction],
            recurrent=emit(op.permute_dims(of_direction(node[2], [gates * hidden, hidden]))),
            recurrent_bias=biases[1],
            peepholes=peepholes,
        )
        state = [
            constant_of(np.zeros([batch, hidden], dtype_of(x)))
            if start is None
            else of_direction(start, [batch, hidden])
            for start in first
        ]
        weights = of_direction(node[1], [gates * hidden, width])
        kernel = None if masks else _kernel_of(node, x, hidden)
        if kernel is not None:
            weights, own, *biases = [
                _in_torchs_order(node, tensor)
                for tensor in (weights, of_direction(node[2], [gates * hidden, hidden]), *biases)
            ]
            flat = op.matmul(op.reshape(x, [steps * batch, width]), op.permute_dims(weights))
            inputs = emit(op.reshape(emit(flat + biases[0]), [steps, batch, gates * hidden]))
            tensors = inputs, own, biases[1]
            sequence, *state = recurrence(node.builder, kernel, tensors, state, backwards=backwards)
            sequences.append(sequence)
            states.append(state)
            continue
        flat = op.matmul(op.reshape(x, [steps * batch, width]), op.permute_dims(weights))
        from_inputs = _split(node, emit(flat + biases[0]), steps, 0)
        outputs: dict[int, Any] = {}
        for time in range(steps)[::-1] if backwards else range(steps):
            new = getattr(direction, node.op_type)(from_inputs[time], state)
            outputs[time] = new[0]
            if masks:
                outputs[time] = emit(op.where(masks[time], new[0], scalar(0, new[0])))
                pairs = zip(new, state, strict=True)
                new = [emit(op.where(masks[time], *pair)) for pair in pairs]
            state = new
        sequences.append(emit(op.stack([outputs[time] for time in range(steps)], 0)))
        states.append(state)
    last = [emit(op.stack(list(parts), 0)) for parts in zip(*states, strict=True)]
    outputs_of_all = emit(op.stack(sequences, 1))
    if batch_first:
        outputs_of_all = emit(op.permute_dims(outputs_of_all, [2, 0, 1, 3]))
        last = [emit(op.permute_dims(state, [1, 0, 2])) for state in last]
    return [outputs_of_all, *last]


def _kernel_of(node: Node, x: Any, hidden: int) -> str | None:
    """The kind of kernel that computes all steps; None if a step is more than usual."""
    given = node.attributes.get
    names = given("activations") or _DEFAULT_ACTIVATIONS[node.op_type]
    kinds = {*zip(*[iter(names)] * len(_DEFAULT_ACTIVATIONS[node.op_type]), strict=True)}
    unusual = given("clip") or given("input_forget")
    unusual = unusual or (node.op_type == "LSTM" and node[7] is not None)
    unusual = unusual or (node.op_type == "GRU" and not given("linear_before_reset"))
    if unusual or len(kinds) > 1 or not supports_recurrence(hidden, dtype_of(x)):
        return None
    return _KERNELS.get((node.op_type, *kinds.pop()))


_KERNELS = {
    **{(name, *kinds): name.lower() for name, kinds in _DEFAULT_ACTIVATIONS.items()},
    ("RNN", "Tanh"): "rnn_tanh",
    ("RNN", "Relu"): "rnn_relu",
}
"""The kinds of kernels by operator and activations."""


def _in_torchs_order(node: Node, tensor: Any) -> Any:
    """A tensor of weights or biases of gates, with the gates in torch's order."""
    order = _ORDERS[node.op_type]
    parts = _split(node, tensor, len(order), 0)
    return node.emit(op.concat([parts[place] for place in order], 0))


def _length_masks(node: Node, steps: int) -> list[Any]:
    """For each step, a mask of the sequences that are that long; empty if all have one length."""
    if node[4] is None:
        return []
    column = node.emit(op.expand_dims(node[4], 1))
    return [node.emit(column > scalar(time, column)) for time in range(steps)]


RECURRENT: Mapping[str, Callable[[Node], Any]] = dict.fromkeys(_GATES, _recurrent)
"""Converters by operator."""
