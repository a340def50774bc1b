"""Registers this package's plugins; imports no numerical library."""

from __future__ import annotations

from collections.abc import Iterable

from chameleon_core.plugins import CommandRecord, NoOptions, PluginRecord, SectionRecord, hookimpl

from chameleon_transforms.section import Transformation
from chameleon_transforms.transforms.options import (
    BottleneckOptions,
    GroupOptions,
    KernelOptions,
    MixedOptions,
    SplitOptions,
)

_GROUPING = "chameleon_transforms.transforms.grouping"
_SHRINKING = "chameleon_transforms.transforms.shrinking"


def _transform(name: str, summary: str, factory: str, options: type = NoOptions) -> PluginRecord:
    return PluginRecord(name=name, summary=summary, factory=factory, options=options)


TRANSFORMS = (
    _transform("group", "Channels in groups", f"{_GROUPING}:Group", GroupOptions),
    _transform("depthwise", "As many groups as channels", f"{_GROUPING}:Depthwise"),
    _transform(
        "bottleneck",
        "Fewer output channels, then a convolution of 1x1",
        f"{_SHRINKING}:Bottleneck",
        BottleneckOptions,
    ),
    _transform(
        "split-outputs",
        "Output channels in parts, each with groups of its own",
        f"{_GROUPING}:SplitOutputs",
        SplitOptions,
    ),
    _transform(
        "mixed-groups",
        "The first output channels standard, the rest grouped",
        f"{_GROUPING}:MixedGroups",
        MixedOptions,
    ),
    _transform(
        "split-rows",
        "Rows in slabs, each with weights and groups of its own",
        f"{_GROUPING}:SplitRows",
        SplitOptions,
    ),
    _transform(
        "input-bottleneck",
        "A convolution of 1x1 to fewer input channels beforehand",
        f"{_SHRINKING}:InputBottleneck",
        BottleneckOptions,
    ),
    _transform(
        "low-rank",
        "Filters of one column, then of one row",
        f"{_SHRINKING}:LowRank",
        BottleneckOptions,
    ),
    _transform(
        "kernel-shrink",
        "Smaller filters around the same middle",
        f"{_SHRINKING}:KernelShrink",
        KernelOptions,
    ),
)

_SCORES = "chameleon_transforms.scores"

SCORES = (
    PluginRecord(
        name="fisher",
        summary="Fisher Potential of all layers (Turner et al. 2021)",
        factory=f"{_SCORES}.fisher:FisherPotential",
        options=NoOptions,
    ),
    PluginRecord(
        name="synflow",
        summary="Synaptic flow of all weights, in logarithms (Tanaka et al. 2020)",
        factory=f"{_SCORES}.synflow:SynapticFlow",
        options=NoOptions,
    ),
    PluginRecord(
        name="naswot",
        summary="How differently samples switch the activations (Mellor et al. 2021)",
        factory=f"{_SCORES}.naswot:ActivationOverlap",
        options=NoOptions,
    ),
    PluginRecord(
        name="parameters",
        summary="How many weights there are",
        factory=f"{_SCORES}.sizes:Parameters",
        options=NoOptions,
    ),
    PluginRecord(
        name="multiply-adds",
        summary="How much work one sample is",
        factory=f"{_SCORES}.sizes:MultiplyAdds",
        options=NoOptions,
    ),
)


@hookimpl
def chameleon_sections() -> Iterable[SectionRecord]:
    """The section about changes of a network."""
    summary = "how `chameleon transform` changes it"
    yield SectionRecord(name="transform", summary=summary, options=Transformation, measured=False)


@hookimpl
def chameleon_transforms() -> Iterable[PluginRecord]:
    """What may be done to the loop nests of a convolution."""
    return TRANSFORMS


@hookimpl
def chameleon_network_scores() -> Iterable[PluginRecord]:
    """What tells without training how well a network may learn."""
    return SCORES


@hookimpl
def chameleon_commands() -> Iterable[CommandRecord]:
    """Transforming the network of a pipeline."""
    yield CommandRecord(
        name="transform",
        summary="Search transformed networks for latency, score and size.",
        factory="chameleon_transforms.commands.transform:command",
    )
