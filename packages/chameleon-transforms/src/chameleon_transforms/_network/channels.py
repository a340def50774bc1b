"""Traces a torch network as a graph, and finds convolutions and channels that may be transformed.

Groups have the channels that layers share. A bottleneck without a stage that restores the channels
is legal only if all layers that write or read these channels change together. For example, two
convolutions write the inputs of an addition. If one convolution loses channels, the other one must
lose the same channels. A normalization after the addition and every layer that reads the sum must
then change as well.
"""

from __future__ import annotations

import copy
import operator
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs
import structlog
import torch
from chameleon_core.plugin_api import ConfigError
from torch import Tensor, fx, nn
from torch.fx.passes.shape_prop import ShapeProp

from chameleon_transforms._nest.program import Program, single_nest

log = structlog.get_logger()


@attrs.frozen(kw_only=True)
class Layer:
    """A convolution that may be transformed.

    Attributes:
        name: Name of its module in the network.
        program: The untransformed program of the convolution.
        output_node: Name of a node of the graph. Network scores take the value of this node as the
            output of the layer. The node comes after the normalization and activation that follow
            only this layer. The name is empty if the network calls the layer several times.
    """

    name: str
    program: Program
    output_node: str


@attrs.frozen(kw_only=True)
class TracedNetwork:
    """A network as a graph, with its layers.

    Attributes:
        module: The graph with the network's own modules.
        shapes: The shape of each node's value, by node name. Nodes whose value is no tensor are
            left out.
        layers: Convolutions that may be transformed, in the order of the graph.
        untransformable: For each convolution that cannot be transformed, the reason, by name.
    """

    module: fx.GraphModule
    shapes: Mapping[str, tuple[int, ...]]
    layers: tuple[Layer, ...]
    untransformable: Mapping[str, str]


def traced(network: nn.Module, images: Tensor) -> TracedNetwork:
    """Trace a network as a graph, with example images (n, channels, rows, columns)."""
    try:
        module = fx.symbolic_trace(network)
    except Exception as error:  # it runs the network's own code
        raise ConfigError(
            f"the network cannot be traced: {type(error).__name__}: {error}",
            hint="torch.fx has to trace it: control flow must not depend on values of tensors.",
        ) from error
    module = _without_in_place_operations(copy.deepcopy(module))
    try:
        with torch.no_grad():
            ShapeProp(module.eval()).propagate(images)
    except Exception as error:
        # The message of ShapeProp begins with the whole graph, so the cause is shown instead.
        cause = error.__cause__ or error
        raise ConfigError(
            f"the network does not take images of shape {tuple(images.shape)}: {cause}",
            hint="See that the data has the shape of the network's example inputs.",
        ) from error
    shapes = {
        node.name: tuple(meta.shape)
        for node in module.graph.nodes
        if hasattr(meta := node.meta.get("tensor_meta"), "shape")
    }
    layers, unchanged = _layers(module, shapes)
    if not layers:
        reasons = "; ".join(f"{name}: {why}" for name, why in unchanged.items())
        raise ConfigError(
            f"the network has no convolution that can be transformed{reasons and ': ' + reasons}",
            hint="Transforms need 2-D convolutions; tune the network with `chameleon run`.",
        )
    for name, why in unchanged.items():
        log.info("convolution_not_transformable", layer=name, reason=why)
    return TracedNetwork(
        module=module, shapes=shapes, layers=tuple(layers), untransformable=unchanged
    )


def checked_scores(outputs: Any) -> Tensor:
    """Check that the output is one tensor of class scores (samples, classes)."""
    if not isinstance(outputs, Tensor) or outputs.dim() != 2:  # noqa: PLR2004
        raise ConfigError(
            "the network does not return one tensor of shape (samples, classes)",
            hint="Scores need a classifier; wrap the network so that it returns its scores.",
        )
    return outputs


_IN_PLACE = {
    operator.iadd: operator.add,
    operator.imul: operator.mul,
    operator.isub: operator.sub,
    "add_": "add",
    "mul_": "mul",
    "relu_": "relu",
}


def _without_in_place_operations(module: fx.GraphModule) -> fx.GraphModule:
    """The network without in-place operations, which would overwrite the outputs of layers."""
    for node in module.graph.nodes:
        node.target = _IN_PLACE.get(node.target, node.target)
        if "inplace" in node.kwargs:
            node.update_kwarg("inplace", False)
        if node.op == "call_module":
            part = module.get_submodule(node.target)
            if getattr(part, "inplace", False):
                part.inplace = False
    module.recompile()
    return module


def _layers(
    module: fx.GraphModule, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[list[Layer], dict[str, str]]:
    calls: dict[str, list[fx.Node]] = defaultdict(list)
    for node in module.graph.nodes:
        if node.op == "call_module":
            calls[str(node.target)].append(node)
    modules = {name: module.get_submodule(name) for name in calls}
    # A weight may belong to two modules, and the graph may use a module's weight directly.
    owners = Counter(id(p) for part in modules.values() for p in part.parameters(recurse=False))
    direct = {str(node.target) for node in module.graph.nodes if node.op == "get_attr"}
    layers, unchanged = [], {}
    for name, nodes in calls.items():
        part = modules[name]
        if not isinstance(part, nn.Conv2d):
            continue
        sizes = {shapes[str(node.args[0])] for node in nodes}
        shared = any(owners[id(parameter)] > 1 for parameter in part.parameters())
        if shared or f"{name}.weight" in direct:
            unchanged[name] = "its weights are shared with another module"
        elif len(sizes) > 1:
            unchanged[name] = "it is used for inputs of different shapes"
        elif part.padding_mode != "zeros":
            unchanged[name] = f"it pads with {part.padding_mode}"
        elif type(part) is not nn.Conv2d:
            unchanged[name] = f"it is a {type(part).__name__}"
        else:
            output_node = _output_node(nodes[0], module).name if len(nodes) == 1 else ""
            layers.append(
                Layer(name=name, program=program_of(part, sizes.pop()), output_node=output_node)
            )
    return layers, unchanged


def program_of(convolution: nn.Conv2d, shape: tuple[int, ...]) -> Program:
    """Describe a convolution of a network as loop nests, which transforms then change."""
    kernel, stride, dilation = (
        (int(pair[0]), int(pair[1]))
        for pair in (convolution.kernel_size, convolution.stride, convolution.dilation)
    )
    padding = convolution.padding
    if padding == "same":
        total = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        pads = (total[0] // 2, total[1] // 2, total[0] - total[0] // 2, total[1] - total[1] // 2)
    elif padding == "valid":
        pads = (0, 0, 0, 0)
    else:
        pads = (int(padding[0]), int(padding[1]), int(padding[0]), int(padding[1]))
    return single_nest(
        convolution.in_channels,
        convolution.out_channels,
        kernel,
        stride,
        pads,
        dilation,
        size=(shape[2], shape[3]),
        groups=convolution.groups,
        bias=convolution.bias is not None,
    )


NORMALISATIONS = (nn.BatchNorm2d,)
"""Modules that have parameters for each channel."""

ELEMENTWISE = (
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.GELU, nn.SiLU, nn.Hardswish, nn.Sigmoid, nn.Tanh),
    *(nn.Dropout, nn.Dropout2d, nn.Identity, nn.Hardsigmoid, nn.ELU),
)
"""Modules that apply the same function to each number."""


def _output_node(node: fx.Node, module: fx.GraphModule) -> fx.Node:
    """The last node in the chain of normalizations and activations that only ``node`` feeds."""
    while len(node.users) == 1:
        (user,) = node.users
        if user.op == "call_module":
            part = module.get_submodule(str(user.target))
            follows = isinstance(part, (*NORMALISATIONS, *ELEMENTWISE))
        else:
            follows = user.target in ELEMENTWISE_FUNCTIONS
        if not follows:
            break
        node = user
    return node


ELEMENTWISE_FUNCTIONS = frozenset(
    {
        *(torch.relu, nn.functional.relu, nn.functional.relu6, nn.functional.gelu),
        *(nn.functional.silu, nn.functional.hardswish, torch.sigmoid, torch.tanh),
        *("relu", "sigmoid", "tanh"),
    }
)
"""Functions, and names of methods, that apply the same function to each number."""


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
    """Find the groups of channels that several layers may lose together."""
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
        # An operand of another shape is broadcast along the channels.
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
            continue  # a product computes the features
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
