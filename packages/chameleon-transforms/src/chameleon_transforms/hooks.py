"""Registers this package's plugins; imports no numerical library."""

from __future__ import annotations

from collections.abc import Iterable

import attrs
from attrs import validators
from chameleon_core.plugins import CommandRecord, NoOptions, PluginRecord, SectionRecord, hookimpl
from chameleon_core.plugins.options import option

from chameleon_transforms.section import Transformation


def _factors(*default: int, what: str) -> tuple[int, ...]:
    field: tuple[int, ...] = option(default, what, validators.deep_iterable(validators.ge(2)))
    return field


@attrs.frozen(kw_only=True)
class GroupOptions:
    """Options of ``group``."""

    groups: tuple[int, ...] = _factors(2, 4, 8, 16, what="numbers of groups")


@attrs.frozen(kw_only=True)
class BottleneckOptions:
    """Options of ``bottleneck``, ``input-bottleneck`` and ``low-rank``."""

    factors: tuple[int, ...] = _factors(2, 4, 8, what="what the number of channels is divided by")


@attrs.frozen(kw_only=True)
class SplitOptions:
    """Options of ``split-outputs`` and ``split-rows``."""

    groups: tuple[tuple[int, ...], ...] = option(
        ((1, 2), (2, 4), (4, 8), (2, 2, 4, 4)), "numbers of groups, one for each part"
    )


@attrs.frozen(kw_only=True)
class MixedOptions:
    """Options of ``mixed-groups``."""

    standard: tuple[int, ...] = _factors(2, 4, 8, what="one part in so many stays standard")
    groups: tuple[int, ...] = _factors(4, 8, what="numbers of groups of the rest")


@attrs.frozen(kw_only=True)
class KernelOptions:
    """Options of ``kernel-shrink``."""

    sizes: tuple[int, ...] = option(
        (1, 3), "smaller filter sizes", validators.deep_iterable(validators.ge(1))
    )


def _record(name: str, summary: str, factory: str, options: type = NoOptions) -> PluginRecord:
    factory = f"chameleon_transforms.{factory}"
    return PluginRecord(name=name, summary=summary, factory=factory, options=options)


_GROUPING = "transforms.grouping"
_SHRINKING = "transforms.shrinking"

TRANSFORMS = (
    _record("group", "Channels in groups", f"{_GROUPING}:Group", GroupOptions),
    _record("depthwise", "As many groups as channels", f"{_GROUPING}:Depthwise"),
    _record(
        "bottleneck",
        "Fewer output channels, then a convolution of 1x1",
        f"{_SHRINKING}:Bottleneck",
        BottleneckOptions,
    ),
    _record(
        "split-outputs",
        "Output channels in parts, each with groups of its own",
        f"{_GROUPING}:SplitOutputs",
        SplitOptions,
    ),
    _record(
        "mixed-groups",
        "The first output channels standard, the rest grouped",
        f"{_GROUPING}:MixedGroups",
        MixedOptions,
    ),
    _record(
        "split-rows",
        "Rows in slabs, each with weights and groups of its own",
        f"{_GROUPING}:SplitRows",
        SplitOptions,
    ),
    _record(
        "input-bottleneck",
        "A convolution of 1x1 to fewer input channels beforehand",
        f"{_SHRINKING}:InputBottleneck",
        BottleneckOptions,
    ),
    _record(
        "low-rank",
        "Filters of one column, then of one row",
        f"{_SHRINKING}:LowRank",
        BottleneckOptions,
    ),
    _record(
        "kernel-shrink",
        "Smaller filters around the same middle",
        f"{_SHRINKING}:KernelShrink",
        KernelOptions,
    ),
)

SCORES = tuple(
    _record(name, summary, f"scores.initial:{score}")
    for name, score, summary in (
        ("fisher", "FisherPotential", "Fisher Potential of all layers (Turner et al. 2021)"),
        (
            "synflow",
            "SynapticFlow",
            "Synaptic flow of all weights, in logarithms (Tanaka et al. 2020)",
        ),
        (
            "naswot",
            "ActivationOverlap",
            "How differently samples switch the activations (Mellor et al. 2021)",
        ),
        ("parameters", "Parameters", "How many weights there are"),
        ("multiply-adds", "MultiplyAdds", "How much work one sample is"),
    )
)


@hookimpl
def chameleon_sections() -> Iterable[SectionRecord]:
    """The section about changes of a network."""
    summary = "how `chameleon transform` changes it"
    yield SectionRecord(name="transform", summary=summary, options=Transformation, measured=False)


@hookimpl
def chameleon_transforms() -> Iterable[PluginRecord]:
    """Transforms of the loop nests of a convolution."""
    return TRANSFORMS


@hookimpl
def chameleon_network_scores() -> Iterable[PluginRecord]:
    """Scores that tell without training how well a network may learn."""
    return SCORES


@hookimpl
def chameleon_commands() -> Iterable[CommandRecord]:
    """Transforming the network of a pipeline."""
    yield CommandRecord(
        name="transform",
        summary="Search transformed networks for latency, score and size.",
        factory="chameleon_transforms.commands.transform:command",
    )
