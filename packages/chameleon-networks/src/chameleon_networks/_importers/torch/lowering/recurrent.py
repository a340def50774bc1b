"""Recurrent layers of torch, such as ``nn.LSTM``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch._decomp import global_decomposition_table
from torch.nn.functional import linear

from chameleon_networks._graph.recurrences import CELLS, recurrence, supports_recurrence
from chameleon_networks._importers.torch.lowering.torch_calls import Converter, TorchCall


def _recurrence(
    inputs: torch.Tensor,
    weights: torch.Tensor,
    bias: torch.Tensor,
    states: Sequence[torch.Tensor],
    *kind: Any,
) -> list[torch.Tensor]:
    """One direction of a recurrent layer, with the arguments of ``recurrences.recurrence``."""
    (cell, backwards), steps = kind, list[torch.Tensor]()
    for gates in inputs.flip(0) if backwards else inputs:
        states = _step(cell, gates, linear(states[0], weights, bias), states)
        steps.append(states[0])
    return [torch.stack(steps[::-1] if backwards else steps), *states]


def _shapes(inputs: Any, weights: Any, _bias: Any, states: Any, *_: Any) -> list[torch.Tensor]:
    """Tensors of the shapes that ``_recurrence`` gives."""
    steps, batch, _gates = inputs.shape
    outputs = inputs.new_empty((steps, batch, weights.shape[1]))
    return [outputs, *map(torch.empty_like, states)]


_OPERATOR: Any = torch.library.custom_op(
    "chameleon::recurrence",
    _recurrence,
    mutates_args=(),
    schema="(Tensor inputs, Tensor weights, Tensor bias, Tensor[] states, str cell, bool backwards)"
    " -> Tensor[]",
)
_OPERATOR.register_fake(_shapes)


def _step(cell: str, inputs: Any, sums: Any, states: Sequence[Any]) -> list[torch.Tensor]:
    if cell == "gru":
        (first, second, third), others = inputs.chunk(3, -1), sums.chunk(3, -1)
        reset, update = (first + others[0]).sigmoid(), (second + others[1]).sigmoid()
        new = (third + reset * others[2]).tanh()
        return [new + update * (states[0] - new)]
    if cell == "lstm":
        enter, forget, new, leave = (inputs + sums).chunk(4, -1)
        state = forget.sigmoid() * states[1] + enter.sigmoid() * new.tanh()
        return [leave.sigmoid() * state.tanh(), state]
    return [(inputs + sums).tanh() if cell == "rnn_tanh" else (inputs + sums).relu()]


def _layers(cell: str, x: Any, first: Any, params: Sequence[Any], *options: Any) -> Any:
    """All layers and directions of a recurrent module."""
    has_biases, layers, dropout, train, bidirectional, batch_first = options
    directions, width = 1 + bidirectional, 2 + 2 * has_biases
    whole = len(params) == layers * directions * width  # an LSTM with projections has more
    dtype = str(x.dtype).removeprefix("torch.")
    if not whole or not supports_recurrence(params[1].shape[1], dtype) or (train and dropout):
        operator = getattr(torch.ops.aten, cell).input
        decomposition = global_decomposition_table["post_autograd"][operator]
        return decomposition(x, first, params, *options)
    states = first if cell == "lstm" else [first]
    if batch_first:
        x = x.transpose(0, 1)
    ends = []
    for layer in range(layers):
        outputs = []
        for number in range(layer * directions, (layer + 1) * directions):
            weights, own, *biases = params[number * width : (number + 1) * width]
            bias, own_bias = biases or (None, weights.new_zeros(len(weights)))
            own_states = [state[number] for state in states]
            backwards = number % directions == 1
            output, *end = _OPERATOR(
                linear(x, weights, bias), own, own_bias, own_states, cell, backwards
            )
            outputs.append(output)
            ends.append(end)
        x = torch.cat(outputs, -1)
    last = map(torch.stack, zip(*ends, strict=True))
    return (x.transpose(0, 1) if batch_first else x, *last)


def _convert(call: TorchCall) -> list[Any]:
    *tensors, states, cell, backwards = call.node.args
    builder = call.importer.block_builder
    operands, before = (list(map(call.tensor, group)) for group in (tensors, states))
    return recurrence(builder, cell, operands, before, backwards=backwards)


DECOMPOSITIONS = {getattr(torch.ops.aten, cell).input: partial(_layers, cell) for cell in CELLS}
"""Functions that are traced instead of a recurrent operator, by operator."""

CONVERTERS: dict[str, Converter] = {"recurrence.default": _convert}
"""Converters by operator."""
