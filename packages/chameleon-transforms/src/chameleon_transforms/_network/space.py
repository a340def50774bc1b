"""The space of transformed networks: a knob for each layer and for each group of channels.

A network is a row of indices. Every combination of choices is legal. A layer's choices are only
those that are legal for all numbers of channels that the channel knobs allow.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import attrs
from chameleon_core.plugin_api import Choice, DesignSpace

from chameleon_transforms._contract import Transform
from chameleon_transforms._nest.domain import Extent
from chameleon_transforms._nest.program import Program
from chameleon_transforms._network.channels import (
    ChannelGroup,
    Layer,
    TracedNetwork,
    channel_groups,
)

UNCHANGED = "as it is"
"""Label of the choice that leaves a layer unchanged."""

_LEAST_CHANNELS = 8
"""Smallest number of channels that a division may leave. Fewer channels do not fill a vector."""


@attrs.frozen(kw_only=True)
class Candidate:
    """One transformed network of the space.

    Attributes:
        labels: The label of each layer's transforms, such as ``group(4)``, by layer name.
        programs: The program that replaces each layer, by layer name.
        channels: The number of channels that are left in each channel group, by the group's name.
    """

    labels: Mapping[str, str]
    programs: Mapping[str, Program]
    channels: Mapping[str, int]

    @property
    def multiply_adds(self) -> int:
        """Number of multiply-adds of all layers, for one sample."""
        return sum(program.multiply_adds for program in self.programs.values())


class NetworkSpace:
    """All networks that transforms can make of one network.

    Attributes:
        groups: Groups of channels that several layers share. The number of channels in a group may
            be reduced in all these layers together.
        design: The space as knobs ``layer:NAME`` and ``width:NAME``, for explorers.
        original: The row of indices of the original network.
    """

    def __init__(
        self,
        network: TracedNetwork,
        transforms: Sequence[Transform],
        *,
        sequence: int,
        widths: Sequence[int],
    ) -> None:
        self.network = network
        self._transforms = transforms
        self._sequence = sequence
        self._made: dict[Program, dict[str, Program]] = {}
        groups = channel_groups(network) if max(widths) > 1 else ()
        self._widths = {group.name: _divisors(group, widths) for group in groups}
        self.groups = tuple(group for group in groups if len(self._widths[group.name]) > 1)
        self._writes = {name: entry.name for entry in self.groups for name in entry.writers}
        self._reads = {name: entry.name for entry in self.groups for name in entry.readers}
        labels = {layer.name: self._labels(layer) for layer in network.layers}
        self.design = DesignSpace(
            [
                *(
                    Choice(name=f"layer:{name}", options=options)
                    for name, options in labels.items()
                ),
                *(
                    Choice(name=f"width:{entry.name}", options=self._widths[entry.name])
                    for entry in self.groups
                ),
            ]
        )
        self.original = (0,) * len(self.design.knobs)

    @cached_property
    def layers(self) -> Mapping[str, Layer]:
        """The layers by name."""
        return {layer.name: layer for layer in self.network.layers}

    def candidate(self, config: Sequence[int]) -> Candidate:
        """Describe the network that a row of knob indices stands for."""
        values = self.design.decode(config)
        channels = {
            group.name: group.channels // int(values[f"width:{group.name}"])
            for group in self.groups
        }
        labels = {name: str(values[f"layer:{name}"]) for name in self.layers}
        programs = {
            name: self._variants(self._narrowed(layer, channels))[labels[name]]
            for name, layer in self.layers.items()
        }
        return Candidate(labels=labels, programs=programs, channels=channels)

    def _narrowed(self, layer: Layer, channels: Mapping[str, int]) -> Program:
        """A layer's program, untransformed except for its numbers of channels."""
        reads, writes = self._reads.get(layer.name, ""), self._writes.get(layer.name, "")
        return with_channels(layer.program, channels.get(reads), channels.get(writes))

    def _labels(self, layer: Layer) -> list[str]:
        """The choices of a layer; those with the least work come last."""
        known = {group.name: group.channels for group in self.groups}
        around = [
            [(name, known[name] // width) for width in self._widths[name]]
            for name in {self._reads.get(layer.name, ""), self._writes.get(layer.name, "")}
            if name
        ]
        labels: list[str] | None = None
        for widths in itertools.product(*around):
            legal = self._variants(self._narrowed(layer, dict(widths)))
            labels = list(legal) if labels is None else [word for word in labels if word in legal]
        at_full = self._variants(layer.program)
        return sorted(labels or [UNCHANGED], key=lambda label: -at_full[label].multiply_adds)

    def _variants(self, program: Program) -> dict[str, Program]:
        """The distinct programs that can replace a convolution, by label."""
        if program not in self._made:
            self._made[program] = variants(program, self._transforms, self._sequence)
        return self._made[program]


def variants(
    program: Program, transforms: Iterable[Transform], sequence: int
) -> dict[str, Program]:
    """The programs that sequences of transforms make with less work, by label."""
    variants = {UNCHANGED: program}
    last = {"": program}
    known = {program}
    for _ in range(sequence):
        fresh: dict[str, Program] = {}
        for label, before in last.items():
            for transform in transforms:
                for name, after in transform.variants(before):
                    if after not in known and after.multiply_adds < program.multiply_adds:
                        known.add(after)
                        fresh[f"{label} {name}".strip()] = after
        variants |= fresh
        last = fresh
    return variants


def with_channels(program: Program, inputs: int | None, outputs: int | None) -> Program:
    """Return a copy of a convolution's program with other numbers of channels."""
    (stage,) = program.stages
    (nest,) = stage.nests
    ci = nest.inputs.length if inputs is None else inputs
    co = nest.outputs.length if outputs is None else outputs
    nest = attrs.evolve(nest, inputs=Extent(start=0, length=ci), outputs=Extent(start=0, length=co))
    stage = attrs.evolve(
        stage, input=(ci, *stage.input[1:]), output=(co, *stage.output[1:]), nests=(nest,)
    )
    return attrs.evolve(program, stages=(stage,))


def _divisors(group: ChannelGroup, widths: Sequence[int]) -> tuple[int, ...]:
    return tuple(
        width
        for width in sorted(set(widths))
        if group.channels % width == 0
        and (width == 1 or group.channels // width >= _LEAST_CHANNELS)
    )
