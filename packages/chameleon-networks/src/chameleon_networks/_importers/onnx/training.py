"""Converts ONNX's training operators, with which optimizers update tensors by gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from chameleon_networks._graph.relax_utils import relax
from chameleon_networks._importers.onnx.nodes import Node, scalar

op = relax.op
Step = Callable[..., list[Any]]


def _float_attribute(node: Node, name: str) -> float:
    return float(node.attributes[name])


def _moving_average(node: Node, old_weight: float, state: Any, change: Any) -> Any:
    """A moving average. The weight of the old value is ``old_weight``."""
    return node.emit(scalar(old_weight, state) * state + scalar(1 - old_weight, state) * change)


def _for_all_tensors(step: Step, states: int) -> Callable[[Node], list[Any]]:
    """A converter that applies an optimizer's step to tensors, gradients and states."""

    def convert(node: Node) -> list[Any]:
        rate, iteration, *tensors = node.inputs
        iteration = node.emit(op.astype(iteration, "float32"))
        count, results = len(tensors) // (2 + states), []
        for index in range(count):
            tensor, gradient, *old = tensors[index::count]
            weight = scalar(_float_attribute(node, "norm_coefficient"), tensor)
            gradient = node.emit(weight * tensor + gradient)
            results.append(step(node, rate, iteration, tensor, gradient, *old))
        return [part for parts in zip(*results, strict=True) for part in parts]

    return convert


def _adagrad(  # noqa: PLR0917 - the operator's inputs
    node: Node, rate: Any, iteration: Any, tensor: Any, gradient: Any, squares: Any
) -> list[Any]:
    decay = scalar(_float_attribute(node, "decay_factor"), iteration) * iteration
    squares = node.emit(squares + gradient * gradient)
    root = scalar(_float_attribute(node, "epsilon"), tensor) + op.sqrt(squares)
    return [tensor - rate / (scalar(1.0, iteration) + decay) * gradient / root, squares]


def _adam(  # noqa: PLR0917 - the operator's inputs
    node: Node, rate: Any, iteration: Any, tensor: Any, gradient: Any, mean: Any, squares: Any
) -> list[Any]:
    alpha, beta = _float_attribute(node, "alpha"), _float_attribute(node, "beta")
    mean = _moving_average(node, alpha, mean, gradient)
    squares = _moving_average(node, beta, squares, gradient * gradient)
    root = scalar(_float_attribute(node, "epsilon"), tensor) + op.sqrt(squares)
    first, second = (
        scalar(1.0, iteration) - op.power(scalar(old_weight, iteration), iteration)
        for old_weight in (alpha, beta)
    )
    rate = op.where(iteration > scalar(0.0, iteration), rate * op.sqrt(second) / first, rate)
    decay = scalar(1.0 - _float_attribute(node, "norm_coefficient_post"), tensor)
    return [decay * (tensor - rate * mean / root), mean, squares]


def _momentum(  # noqa: PLR0917 - the operator's inputs
    node: Node, rate: Any, iteration: Any, tensor: Any, gradient: Any, speed: Any
) -> list[Any]:
    alpha, beta = (
        scalar(_float_attribute(node, "alpha"), speed),
        scalar(_float_attribute(node, "beta"), iteration),
    )
    old_weight = op.where(iteration > scalar(0.0, iteration), beta, scalar(1.0, iteration))
    change = speed = node.emit(alpha * speed + old_weight * gradient)
    if node.attributes["mode"] == "nesterov":
        change = gradient + alpha * speed
    return [tensor - rate * change, speed]


TRAINING: Mapping[str, Callable[[Node], Any]] = {
    "Adagrad": _for_all_tensors(_adagrad, 1),
    "Adam": _for_all_tensors(_adam, 2),
    "Momentum": _for_all_tensors(_momentum, 1),
}
"""Converters by operator."""
