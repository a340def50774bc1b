"""Transforms that group channels (tie tiles of them), in a whole convolution or in parts.

(Turner et al., ASPLOS 2021, sections 4.2 and 7.3.)
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from chameleon_transforms._contract import Transform
from chameleon_transforms._nest.domain import Nest
from chameleon_transforms._nest.program import Program

Variants = Iterator[tuple[str, Program]]
Nests = Sequence[Nest] | None
"""The nests that replace a nest; None if the transform is illegal."""


class NestTransform(Transform):
    """A transform that changes each nest of the main stage separately."""

    @abstractmethod
    def changes(self) -> Iterable[tuple[str, Callable[[Nest], Nests]]]:
        """The variants of the transform: pairs of a label and a function that changes a nest."""

    def variants(self, program: Program) -> Variants:
        for label, change in self.changes():
            changed = program.map_main(change)
            if changed is not None:
                yield label, changed


class Group(NestTransform):
    """The transform ``group(G)``: divide the channels of a convolution into G groups."""

    def changes(self) -> Iterator[tuple[str, Callable[[Nest], Nests]]]:
        for groups in self.options.groups:
            yield f"group({groups})", partial(_grouped, groups)


def _grouped(tiles: int, nest: Nest) -> Nests:
    return _grouped_parts([nest], [tiles])


class Depthwise(NestTransform):
    """The transform ``depthwise``: as many groups as input or output channels."""

    def changes(self) -> Iterator[tuple[str, Callable[[Nest], Nests]]]:
        yield "depthwise", _depthwise


def _depthwise(nest: Nest) -> Nests:
    tiles = nest.most_groups
    if nest.groups > 1 or not 1 < tiles == min(nest.outputs.length, nest.inputs.length):
        return None
    return _grouped(tiles, nest)


class SplitOutputs(NestTransform):
    """The transform ``split-outputs``: parts of the output channels, each grouped."""

    name = "split-outputs"

    def changes(self) -> Iterator[tuple[str, Callable[[Nest], Nests]]]:
        for groups in self.options.groups:
            label = f"{self.name}({','.join(map(str, groups))})"
            yield label, partial(self.parts, groups)

    def parts(self, groups: Sequence[int], nest: Nest) -> Nests:
        """Replace a nest by nests for parts of its output channels, or return None if illegal."""
        return _grouped_parts(nest.split_outputs(len(groups)), groups)


class SplitRows(SplitOutputs):
    """The transform ``split-rows``: parts of the output rows have their own weights and groups."""

    name = "split-rows"

    def parts(self, groups: Sequence[int], nest: Nest) -> Nests:
        return _grouped_parts(nest.split_rows(len(groups)), groups)


class MixedGroups(NestTransform):
    """``mixed-groups``: the first output channels are not grouped, the others are."""

    def changes(self) -> Iterator[tuple[str, Callable[[Nest], Nests]]]:
        for part in self.options.standard:
            for groups in self.options.groups:
                label = f"mixed-groups({part},{groups})"
                yield label, partial(_mixed, part, groups)


def _mixed(part: int, tiles: int, nest: Nest) -> Nests:
    if nest.outputs.length % part:
        return None
    return _grouped_parts(nest.split_outputs_at(nest.outputs.length // part), (1, tiles))


def _grouped_parts(parts: Nests, groups: Sequence[int]) -> Nests:
    """Nests, each grouped by its number in ``groups``; None if one of these is illegal."""
    if parts is None:
        return None
    grouped = [
        nest if tiles == 1 else nest.tie(tiles) for nest, tiles in zip(parts, groups, strict=True)
    ]
    legal = [nest for nest in grouped if nest is not None]
    return legal if len(legal) == len(grouped) else None
