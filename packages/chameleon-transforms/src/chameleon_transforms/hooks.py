"""Registers this package's plugins; imports no numerical library."""

from __future__ import annotations

from collections.abc import Iterable

import attrs
from attrs import validators
from chameleon_core.plugin_api import (
    CommandRecord,
    NoOptions,
    PluginRecord,
    SectionRecord,
    hookimpl,
    option,
    recorder,
)

from chameleon_transforms._section import Transformation


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


_record = recorder("chameleon_transforms")

_GROUPS, _LESS = "grouping", "shrinking"
_TRANSFORMS = {
    "group": (_GROUPS, GroupOptions, "Channels in groups"),
    "depthwise": (_GROUPS, NoOptions, "As many groups as channels"),
    "bottleneck": (_LESS, BottleneckOptions, "Fewer output channels, then a convolution of 1x1"),
    "split-outputs": (
        _GROUPS,
        SplitOptions,
        "Output channels in parts, each with groups of its own",
    ),
    "mixed-groups": (_GROUPS, MixedOptions, "The first output channels standard, the rest grouped"),
    "split-rows": (_GROUPS, SplitOptions, "Rows in slabs, each with weights and groups of its own"),
    "input-bottleneck": (
        _LESS,
        BottleneckOptions,
        "A convolution of 1x1 to fewer input channels beforehand",
    ),
    "low-rank": (_LESS, BottleneckOptions, "Filters of one column, then of one row"),
    "kernel-shrink": (_LESS, KernelOptions, "Smaller filters around the same middle"),
}
TRANSFORMS = tuple(
    _record(name, summary, f"_transforms.{module}:{name.title().replace('-', '')}", options)
    for name, (module, options, summary) in _TRANSFORMS.items()
)

_SCORES = {
    "fisher": ("FisherPotential", "Fisher Potential of all layers (Turner et al. 2021)"),
    "synflow": ("SynapticFlow", "Synaptic flow of all weights, in logarithms (Tanaka et al. 2020)"),
    "naswot": (
        "ActivationOverlap",
        "How differently samples switch the activations (Mellor et al. 2021)",
    ),
    "parameters": ("Parameters", "How many weights there are"),
    "multiply-adds": ("MultiplyAdds", "How much work one sample is"),
}
SCORES = tuple(
    _record(name, summary, f"_scores.initial:{score}") for name, (score, summary) in _SCORES.items()
)


@hookimpl
def chameleon_sections() -> Iterable[SectionRecord]:
    """The section ``transform`` of a pipeline."""
    summary = "how `chameleon transform` changes it"
    yield SectionRecord(name="transform", summary=summary, options=Transformation, measured=False)


@hookimpl
def chameleon_transforms() -> Iterable[PluginRecord]:
    """Transforms of the loop nests of a convolution."""
    return TRANSFORMS


@hookimpl
def chameleon_network_scores() -> Iterable[PluginRecord]:
    """Scores that predict without training how well a network may learn."""
    return SCORES


@hookimpl
def chameleon_commands() -> Iterable[CommandRecord]:
    """The command that transforms the network of a pipeline."""
    summary = "Search transformed networks for latency, score and size."
    factory = "chameleon_transforms._commands.transform:command"
    yield CommandRecord(name="transform", summary=summary, factory=factory)
