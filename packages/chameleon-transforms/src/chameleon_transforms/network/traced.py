"""Traces a torch network as a graph, and finds convolutions that may be transformed."""

from __future__ import annotations

import copy
import operator
from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import Any

import attrs
import structlog
import torch
from chameleon_core.errors import ConfigError
from torch import Tensor, fx, nn
from torch.fx.passes.shape_prop import ShapeProp

from chameleon_transforms.nest.program import Program, whole

log = structlog.get_logger()


@attrs.frozen(kw_only=True)
class Layer:
    """A convolution that may be transformed.

    Attributes:
        name: Name of its module in the network.
        program: The untransformed program of the convolution.
        site: Name of a node of the graph. Network scores take the value of this node as the output
            of the layer. The node comes after the normalization and activation that follow only
            this layer. The name is empty if the network calls the layer several times.
    """

    name: str
    program: Program
    site: str


@attrs.frozen(kw_only=True)
class TracedNetwork:
    """A network as a graph, with its layers.

    Attributes:
        module: The graph with the network's own modules.
        shapes: The shape of each node's value, by node name. Nodes whose value is no tensor are
            left out.
        layers: Convolutions that may be transformed, in the order of the graph.
        kept: For each convolution that cannot be transformed, the reason, by name.
    """

    module: fx.GraphModule
    shapes: Mapping[str, tuple[int, ...]]
    layers: tuple[Layer, ...]
    kept: Mapping[str, str]


def traced(network: nn.Module, images: Tensor) -> TracedNetwork:
    """Trace a network.

    Args:
        network: A network whose forward takes one batch of images and has no control flow that
            depends on values of tensors.
        images: An example input, shape (n, channels, rows, columns).

    Raises:
        ConfigError: The network cannot be traced or run, or it has no convolution to transform.
    """
    try:
        module = fx.symbolic_trace(network)
    except Exception as error:  # it runs the network's own code
        raise ConfigError(
            f"the network cannot be traced: {type(error).__name__}: {error}",
            hint="torch.fx has to trace it: control flow must not depend on values of tensors.",
        ) from error
    module = _without_writes(copy.deepcopy(module))
    try:
        with torch.no_grad():
            ShapeProp(module.eval()).propagate(images)
    except Exception as error:
        # ShapeProp puts its own words, with the whole graph, in front of the cause.
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
        log.info("convolution_stays_as_it_is", layer=name, because=why)
    return TracedNetwork(module=module, shapes=shapes, layers=tuple(layers), kept=unchanged)


def checked_scores(outputs: Any) -> Tensor:
    """Check that a network's output is one tensor of class scores, and return it.

    Its shape must be (samples, classes).

    Args:
        outputs: The output of the network.

    Raises:
        ConfigError: The output is something else.
    """
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


def _without_writes(module: fx.GraphModule) -> fx.GraphModule:
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
    # A weight may belong to two modules; a module's own may be used by the graph as well.
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
            site = _site(nodes[0], module).name if len(nodes) == 1 else ""
            layers.append(Layer(name=name, program=program_of(part, sizes.pop()), site=site))
    return layers, unchanged


def program_of(convolution: nn.Conv2d, shape: tuple[int, ...]) -> Program:
    """Describe a convolution of a network as loop nests, which transforms then change.

    Args:
        convolution: A convolution that pads with zeros.
        shape: Shape of the convolution's input.
    """
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
    return whole(
        convolution.in_channels,
        convolution.out_channels,
        kernel,
        stride,
        pads,
        dilation,
        size=(shape[2], shape[3]),
        tied=convolution.groups,
        bias=convolution.bias is not None,
    )


NORMALISATIONS = (nn.BatchNorm2d,)
"""Modules that have parameters for each channel."""

ELEMENTWISE = (
    *(nn.ReLU, nn.ReLU6, nn.LeakyReLU, nn.GELU, nn.SiLU, nn.Hardswish, nn.Sigmoid, nn.Tanh),
    *(nn.Dropout, nn.Dropout2d, nn.Identity, nn.Hardsigmoid, nn.ELU),
)
"""Modules that apply the same function to each number."""


def _site(node: fx.Node, module: fx.GraphModule) -> fx.Node:
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
