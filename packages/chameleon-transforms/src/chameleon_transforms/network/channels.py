"""Finds groups of channels that several layers share, also through skip connections.

A bottleneck without a stage that restores the channels is legal only if all layers that write or
read these channels change together. For example, two convolutions write the inputs of an addition.
If one convolution loses channels, the other one must lose the same channels. A normalization after
the addition and every layer that reads the sum must then change as well.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator

import attrs
import torch
from torch import fx, nn

from chameleon_transforms.network.traced import (
    ELEMENTWISE,
    ELEMENTWISE_FUNCTIONS,
    NORMALISATIONS,
    TracedNetwork,
)

_POOLS = (nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d)
_SUMS = frozenset({operator.add, operator.iadd, torch.add, "add", "add_"})
_FLAT = frozenset({torch.flatten, "flatten"})
_IMAGE = 4


@attrs.frozen(kw_only=True)
class ChannelGroup:
    """Channels that several modules share, so that their number must change in all of them.

    Attributes:
        name: Name of the first layer that writes the channels.
        channels: Number of channels.
        writers: Names of the convolutions that write the channels.
        readers: Names of the convolutions that read the channels.
        normalisations: Names of the normalizations of the channels.
        products: Names of linear modules that read each channel as a feature.
    """

    name: str
    channels: int
    writers: tuple[str, ...]
    readers: tuple[str, ...]
    normalisations: tuple[str, ...]
    products: tuple[str, ...]


class _Groups:
    """Sets of nodes with the same channels (a union-find structure)."""

    def __init__(self) -> None:
        self._parent: dict[fx.Node, fx.Node] = {}
        self.fixed: set[fx.Node] = set()

    def root(self, node: fx.Node) -> fx.Node:
        parent = self._parent.setdefault(node, node)
        if parent is not node:
            parent = self._parent[node] = self.root(parent)
        return parent

    def join(self, node: fx.Node, other: fx.Node) -> None:
        a, b = self.root(node), self.root(other)
        if a is not b:
            self._parent[b] = a
            if b in self.fixed:
                self.fixed.add(a)

    def fix(self, node: fx.Node) -> None:
        self.fixed.add(self.root(node))


def channel_groups(network: TracedNetwork) -> tuple[ChannelGroup, ...]:
    """Find the groups of channels from which a search may remove channels.

    All layers that write or read the channels of a group must lose the same channels. Channels of
    the network's inputs and outputs stay as they are. Channels also stay if they are read by a node
    whose effect on channels is unknown, such as a concatenation or a reshape.
    """
    groups = _Groups()
    for node in network.module.graph.nodes:
        _visit(node, network, groups)
    return tuple(_collected(network, groups))


def _visit(node: fx.Node, network: TracedNetwork, groups: _Groups) -> None:
    inputs = node.all_input_nodes
    kind = _kind(node, network)
    if kind == "same":
        for input_node in inputs:
            groups.join(input_node, node)
    elif kind == "sum":
        # Numbers for each channel that are no tensor of the same shape are broadcast.
        shapes = {network.shapes.get(node.name) for node in inputs}
        for input_node in inputs:
            groups.join(input_node, node)
        if len(shapes) > 1:
            groups.fix(node)
    elif kind in {"convolution", "product"}:
        groups.root(node)
    else:
        for input_node in (*inputs, node):
            groups.fix(input_node)


def _kind(node: fx.Node, network: TracedNetwork) -> str:
    """The effect of a node on channels; ``other`` if unknown, or if its module is called twice."""
    if node.op == "call_module":
        return _kind_of_module(node, network)
    if node.target in _SUMS:
        return "sum"
    flat = node.target in _FLAT and _of_points(node, network)
    return "same" if flat or node.target in ELEMENTWISE_FUNCTIONS else "other"


def _kind_of_module(node: fx.Node, network: TracedNetwork) -> str:
    part = network.module.get_submodule(str(node.target))
    kind = "other"
    if any(True for _ in part.parameters()) and _calls(node) > 1:
        return kind
    if any(str(node.target) == layer.name for layer in network.layers):
        single = isinstance(part, nn.Conv2d) and part.groups == 1
        kind = "convolution" if single else "other"
    elif isinstance(part, nn.Linear):
        shape = network.shapes.get(node.all_input_nodes[0].name, ())
        kind = "product" if len(shape) == 2 else "other"  # noqa: PLR2004
    else:
        flat = isinstance(part, nn.Flatten) and _of_points(node, network)
        if flat or isinstance(part, (*NORMALISATIONS, *ELEMENTWISE, *_POOLS)):
            kind = "same"
    return kind


def _calls(node: fx.Node) -> int:
    """Number of times that the graph calls a node's module."""
    return sum(other.op == node.op and other.target == node.target for other in node.graph.nodes)


def _of_points(node: fx.Node, network: TracedNetwork) -> bool:
    """Whether a node flattens 1x1 images, so that each channel becomes a feature."""
    before = network.shapes.get(node.all_input_nodes[0].name, ())
    after = network.shapes.get(node.name, ())
    return len(before) == _IMAGE and before[2:] == (1, 1) and after == before[:2]


def _collected(network: TracedNetwork, groups: _Groups) -> Iterator[ChannelGroup]:
    nodes = list(network.module.graph.nodes)
    kinds = {node: _kind(node, network) for node in nodes}
    seen: set[fx.Node] = set()
    for first in nodes:
        root = groups.root(first)
        if root in seen or root in groups.fixed:
            continue
        seen.add(root)
        inside = [node for node in nodes if groups.root(node) is root]
        writers = [node for node in inside if kinds[node] == "convolution"]
        if len(writers) < sum(kinds[node] in {"convolution", "product"} for node in inside):
            continue  # features that a product computes
        readers = [user for node in inside for user in node.users]
        if not writers:
            continue
        yield ChannelGroup(
            name=str(writers[0].target),
            channels=network.shapes[writers[0].name][1],
            writers=_names(writers),
            readers=_names(reader for reader in readers if kinds[reader] == "convolution"),
            normalisations=_names(
                node
                for node in inside
                if node.op == "call_module"
                and isinstance(network.module.get_submodule(str(node.target)), NORMALISATIONS)
            ),
            products=_names(reader for reader in readers if kinds[reader] == "product"),
        )


def _names(nodes: Iterable[fx.Node]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(node.target) for node in nodes))
