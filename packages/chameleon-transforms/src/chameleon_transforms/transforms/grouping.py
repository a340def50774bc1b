"""Tiles of channels that are tied, whole or in parts (Turner et al., sections 4.2 and 7.3)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from chameleon_core.plugins import NoOptions

from chameleon_transforms.contract import Transform
from chameleon_transforms.nest.domain import Nest
from chameleon_transforms.nest.program import Program
from chameleon_transforms.transforms.options import GroupOptions, MixedOptions, SplitOptions

Variants = Iterator[tuple[str, Program]]


def _grouped(groups: int, nest: Nest) -> Sequence[Nest] | None:
    return _alone(nest.tie(groups))


def _output_parts(groups: Sequence[int], nest: Nest) -> Sequence[Nest] | None:
    return _parts(nest.split_outputs(len(groups)), groups)


def _row_parts(groups: Sequence[int], nest: Nest) -> Sequence[Nest] | None:
    return _parts(nest.split_rows(len(groups)), groups)


def _tied(nest: Nest, groups: int) -> Nest | None:
    return nest if groups == 1 else nest.tie(groups)


class Group(Transform):
    """``group(G)``: tile the domains of co and ci by G, and tie the tiles."""

    def __init__(self, options: GroupOptions) -> None:
        self.options = options

    def variants(self, program: Program) -> Variants:
        for groups in self.options.groups:
            made = program.map_main(partial(_grouped, groups))
            if made is not None:
                yield f"group({groups})", made


class Depthwise(Transform):
    """``depthwise``: as many tied tiles as there are channels on the side that has fewer."""

    def __init__(self, options: NoOptions) -> None:
        del options

    def variants(self, program: Program) -> Variants:
        made = program.map_main(_depthwise)
        if made is not None:
            yield "depthwise", made


def _depthwise(nest: Nest) -> Sequence[Nest] | None:
    tiles = nest.most_tiles
    if nest.tied > 1 or tiles < min(nest.outputs.length, nest.inputs.length):
        return None
    return _alone(nest.tie(tiles))


def _alone(nest: Nest | None) -> Sequence[Nest] | None:
    return None if nest is None else (nest,)


class SplitOutputs(Transform):
    """The domain of co in parts, each tied by a number of tiles of its own."""

    def __init__(self, options: SplitOptions) -> None:
        self.options = options

    def variants(self, program: Program) -> Variants:
        for groups in self.options.groups:
            made = program.map_main(partial(_output_parts, groups))
            if made is not None:
                yield f"split-outputs({','.join(map(str, groups))})", made


class SplitRows(Transform):
    """The domain of oh in slabs, each with weights and a number of tied tiles of its own."""

    def __init__(self, options: SplitOptions) -> None:
        self.options = options

    def variants(self, program: Program) -> Variants:
        for groups in self.options.groups:
            made = program.map_main(partial(_row_parts, groups))
            if made is not None:
                yield f"split-rows({','.join(map(str, groups))})", made


class MixedGroups(Transform):
    """The first output channels standard, the rest grouped."""

    def __init__(self, options: MixedOptions) -> None:
        self.options = options

    def variants(self, program: Program) -> Variants:
        for part in self.options.standard:
            for groups in self.options.groups:
                made = program.map_main(partial(_mixed, part, groups))
                if made is not None:
                    yield f"mixed-groups({part},{groups})", made


def _mixed(part: int, groups: int, nest: Nest) -> Sequence[Nest] | None:
    if nest.outputs.length % part:
        return None
    return _parts(nest.split_outputs_at(nest.outputs.length // part), (1, groups))


def _parts(parts: Sequence[Nest] | None, groups: Sequence[int]) -> Sequence[Nest] | None:
    """Parts of a nest, each tied by its number of tiles; None where one is illegal."""
    if parts is None:
        return None
    made = [_tied(nest, tiles) for nest, tiles in zip(parts, groups, strict=True)]
    kept = [nest for nest in made if nest is not None]
    return kept if len(kept) == len(made) else None
