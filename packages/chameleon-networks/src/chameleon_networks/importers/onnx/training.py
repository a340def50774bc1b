"""Training steps in an ONNX network: the update of tensors by optimizers, given gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from chameleon_networks.graph.relaxed import relax
from chameleon_networks.importers.onnx.nodes import Node, scalar

op = relax.op
Step = Callable[[Node, Any, Any, list[Any]], list[Any]]


def _times(node: Node, number: float, value: Any) -> Any:
    value = node.emit(value)
    return node.emit(op.multiply(scalar(number, value), value))


def _plus(node: Node, number: float, value: Any) -> Any:
    value = node.emit(value)
    return node.emit(op.add(scalar(number, value), value))


def _mixed(node: Node, share: str, state: Any, change: Any) -> Any:
    """A moving average. The attribute ``share`` is the weight of the old value."""
    old = float(node.attributes[share])
    return node.emit(op.add(_times(node, old, state), _times(node, 1 - old, change)))


def _with_all(step: Step, states: int) -> Callable[[Node], list[Any]]:
    """A converter that applies an optimizer's step to all of its tensors.

    The inputs are the tensors, then their gradients, then the optimizer's states.
    """

    def convert(node: Node) -> list[Any]:
        rate, turn, *tensors = node.inputs
        count = len(tensors) // (2 + states)
        rows = [tensors[place::count] for place in range(count)]
        results = list(_stepped(node, step, rate, turn, rows))
        return [part for parts in zip(*results, strict=True) for part in parts]

    return convert


def _stepped(
    node: Node, step: Step, rate: Any, turn: Any, rows: list[list[Any]]
) -> Iterator[list[Any]]:
    weight = float(node.attributes["norm_coefficient"])
    for tensor, gradient, *states in rows:
        rest = node.emit(op.add(_times(node, weight, tensor), gradient))
        yield step(node, (rate, op.astype(turn, "float32")), (tensor, rest), states)


def _adagrad(node: Node, times: Any, tensors: Any, states: list[Any]) -> list[Any]:
    (rate, turn), (tensor, gradient), [squares] = times, tensors, states
    rate = op.divide(
        rate, _plus(node, 1.0, _times(node, float(node.attributes["decay_factor"]), turn))
    )
    squares = node.emit(op.add(squares, op.multiply(gradient, gradient)))
    root = _plus(node, float(node.attributes["epsilon"]), op.sqrt(squares))
    return [op.subtract(tensor, op.divide(op.multiply(rate, gradient), root)), squares]


def _adam(node: Node, times: Any, tensors: Any, states: list[Any]) -> list[Any]:
    (rate, turn), (tensor, gradient), [mean, squares] = times, tensors, states
    mean = _mixed(node, "alpha", mean, gradient)
    squares = _mixed(node, "beta", squares, op.multiply(gradient, gradient))
    root = _plus(node, float(node.attributes["epsilon"]), op.sqrt(squares))
    first, second = (
        op.subtract(scalar(1.0, "float32"), op.power(scalar(float(share), "float32"), turn))
        for share in (node.attributes["alpha"], node.attributes["beta"])
    )
    later = op.greater(turn, scalar(0.0, "float32"))
    rate = op.where(later, op.divide(op.multiply(rate, op.sqrt(second)), first), rate)
    new = op.subtract(tensor, op.divide(op.multiply(rate, mean), root))
    kept = 1.0 - float(node.attributes["norm_coefficient_post"])
    return [_times(node, kept, new), mean, squares]


def _momentum(node: Node, times: Any, tensors: Any, states: list[Any]) -> list[Any]:
    (rate, turn), (tensor, gradient), [speed] = times, tensors, states
    alpha, beta = (float(node.attributes[name]) for name in ("alpha", "beta"))
    later = op.greater(turn, scalar(0.0, "float32"))
    share = op.where(later, relax.const(np.float32(beta)), relax.const(np.float32(1)))
    speed = node.emit(op.add(_times(node, alpha, speed), op.multiply(share, gradient)))
    change = speed
    if node.attributes["mode"] == "nesterov":
        change = op.add(gradient, _times(node, alpha, speed))
    return [op.subtract(tensor, op.multiply(rate, change)), speed]


TRAINING: Mapping[str, Callable[[Node], Any]] = {
    "Adagrad": _with_all(_adagrad, 1),
    "Adam": _with_all(_adam, 2),
    "Momentum": _with_all(_momentum, 1),
}
"""Converters by operator."""
