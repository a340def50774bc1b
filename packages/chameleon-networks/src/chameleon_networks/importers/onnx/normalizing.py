"""Normalisations of ONNX that TVM's importer lacks or reads as others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from chameleon_networks.graph.relaxed import relax
from chameleon_networks.importers.onnx.nodes import Node, Unsupported, positive, scalar, shape_of

op = relax.op


def _layer(node: Node) -> Any:
    """The standard's function gives mean and deviation as well, and has any axes."""
    axis = positive(int(node.attributes["axis"]), len(shape_of(node[0])))
    if node.outputs > 1 or (axis == 0 and node.kind != "LayerNormalization"):
        raise Unsupported("it gives more than what it normalises")
    return NotImplemented


def _batch(node: Node) -> Any:
    """In training it normalises by the batch, and moves the means that it has."""
    if not node.attributes.get("training_mode"):
        return NotImplemented
    x, scale, bias, *running = node.inputs
    shape = shape_of(x)
    axes = [axis for axis in range(len(shape)) if axis != 1]
    column = [1, -1, *[1] * (len(shape) - 2)]
    mean = node.emit(op.mean(x, axes))
    centred = node.emit(op.subtract(x, op.reshape(mean, column)))
    variance = node.emit(op.mean(op.multiply(centred, centred), axes))
    epsilon = scalar(float(node.attributes["epsilon"]), variance)
    factor = node.emit(op.divide(scale, op.sqrt(op.add(variance, epsilon))))
    scaled = op.multiply(centred, op.reshape(factor, column))
    momentum = float(node.attributes["momentum"])
    moved = [
        op.add(op.multiply(old, scalar(momentum, old)), op.multiply(new, scalar(1 - momentum, new)))
        for old, new in zip(running, (mean, variance), strict=True)
    ]
    return [op.add(scaled, op.reshape(bias, column)), *moved]


def _by_norm(node: Node) -> Any:
    """What has the norm zero stays as it is."""
    x, axis = node[0], int(node.attributes["axis"])
    if int(node.attributes["p"]) == 1:
        norm = op.sum(op.abs(x), [axis], True)
    else:
        norm = op.sqrt(op.sum(op.multiply(x, x), [axis], True))
    norm = node.emit(norm)
    empty = op.equal(norm, scalar(0, norm))
    return op.divide(x, op.where(empty, scalar(1, norm), norm))


NORMALIZING: Mapping[str, Callable[[Node], Any]] = {
    "LayerNormalization": _layer,
    "RMSNormalization": _layer,
    "BatchNormalization": _batch,
    "LpNormalization": _by_norm,
}
"""Converters by kind of node; ``NotImplemented`` leaves a node to TVM's."""
