"""Makes a trainable torch network of a candidate, with its replaced convolutions."""

from __future__ import annotations

import copy
from collections.abc import Mapping

from torch import fx, nn

from chameleon_transforms._nest.modules import module_of
from chameleon_transforms._nest.program import Program
from chameleon_transforms._network.space import UNCHANGED, Candidate, NetworkSpace


def convolution_of(program: Program, *, plain: bool) -> nn.Module:
    """Make the torch module that replaces a convolution: ``nn.Conv2d`` if this suffices."""
    (first, *others) = program.stages
    if not plain or others or len(first.nests) > 1:
        return module_of(program)
    (nest,) = first.nests
    top, left, bottom, right = nest.padding
    if (top, left) != (bottom, right):
        return module_of(program)
    return nn.Conv2d(
        nest.inputs.length,
        nest.outputs.length,
        nest.kernel,
        stride=nest.stride,
        padding=(top, left),
        dilation=nest.dilation,
        groups=nest.groups,
        bias=program.bias,
    )


def replacements(space: NetworkSpace, candidate: Candidate) -> dict[str, nn.Module]:
    """Make the modules of a transformed network that differ from the original's, by name."""
    modules: dict[str, nn.Module] = {}
    for name, program in candidate.programs.items():
        if program != space.layers[name].program:
            plain = candidate.labels[name] == UNCHANGED
            modules[name] = convolution_of(program, plain=plain)
    original = space.network.module
    for group in space.groups:
        channels = candidate.channels[group.name]
        if channels == group.channels:
            continue
        for name in group.normalisations:
            modules[name] = narrow_normalisation(original.get_submodule(name), channels)
        for name in group.products:
            part = original.get_submodule(name)
            modules[name] = nn.Linear(channels, part.out_features, bias=part.bias is not None)
    return modules


def narrow_normalisation(part: nn.Module, channels: int) -> nn.Module:
    """A batch normalization with fewer channels and initial weights."""
    return nn.BatchNorm2d(
        channels,
        eps=part.eps,
        momentum=part.momentum,
        affine=part.affine,
        track_running_stats=part.track_running_stats,
    )


def with_modules(network: fx.GraphModule, modules: Mapping[str, nn.Module]) -> fx.GraphModule:
    """A copy of a traced network in which some modules are replaced; the graph stays."""
    changed = copy.deepcopy(network)
    for name, module in modules.items():
        changed.set_submodule(name, module)
    return changed
