"""Calls that only choose channels: splits, slices, concatenations and shuffles of one axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from chameleon_networks.compile.sequence.calls import Call, Storage, Tensor
from chameleon_networks.compile.sequence.changes import Changes
from chameleon_networks.compile.sequence.marks import SHUFFLE, SLICE, mark_of

Function = Any
Channel = tuple[Tensor, int]
"""A tensor that a kernel writes, and an index of the axis there."""


@attrs.frozen(kw_only=True, eq=False)
class Selection:
    """What a call of a region computes.

    Attributes:
        place: the call's.
        tensor: what it is to write.
        channels: of which channels that consists.
    """

    place: int
    tensor: Tensor
    channels: tuple[Channel, ...]

    @property
    def sources(self) -> list[Tensor]:
        """The tensors whose channels they are."""
        return list(dict.fromkeys(tensor for tensor, _ in self.channels))


@attrs.frozen(kw_only=True, eq=False)
class Region:
    """Calls that choose channels of one axis and share tensors.

    Attributes:
        axis: the axis.
        places: of the calls in the sequence.
        selections: what they compute, by the storage they are to write.
    """

    axis: int
    places: tuple[int, ...]
    selections: Mapping[Storage, Selection]


def next_region(changes: Changes, tried: set[Storage]) -> Region | None:
    """Calls that choose channels of one axis and share tensors, with a shuffle among them.

    Args:
        changes: one call in the place of each.
        tried: what the shuffles of earlier regions compute; those of this one are added.
    """
    axes = {}
    shuffles = []
    for place, [call] in enumerate(changes.calls):
        function = changes.functions[call.kernel]
        axis = _axis_of(function, call)
        if axis is not None:
            axes[place] = len(call.writes[0].shape), axis
            if mark_of(function) == SHUFFLE and call.writes[0].storage not in tried:
                shuffles.append(place)
    if not shuffles:
        return None
    region = shuffles[:1]
    for one in region:
        region += [
            other
            for other, axis in axes.items()
            if other not in region
            and axis == axes[one]
            and _storages(changes, other) & _storages(changes, one)
        ]
    tried.update(changes.calls[one][0].writes[0].storage for one in region)
    return _chosen(changes, axes[region[0]][1], sorted(region))


def _storages(changes: Changes, place: int) -> set[Storage]:
    [call] = changes.calls[place]
    return {tensor.storage for tensor in call.arguments}


def _axis_of(function: Function, call: Call) -> int | None:
    """The axis whose indices a call chooses; None for one that does something else."""
    mark = mark_of(function)
    if mark == SLICE:
        pair = zip(call.reads[0].shape, call.writes[0].shape, strict=True)
        cut = [axis for axis, (before, after) in enumerate(pair) if before != after]
        return cut[0] if len(cut) == 1 else None
    if mark == SHUFFLE:
        return int(function.attrs[SHUFFLE][0])
    return None if mark is None else int(function.attrs[mark])


def _chosen(changes: Changes, axis: int, places: Sequence[int]) -> Region:
    """The region of some calls, in the order of the sequence."""
    found: dict[Storage, Selection] = {}
    for place in places:
        [call] = changes.calls[place]
        function = changes.functions[call.kernel]
        channels: list[Channel] = []
        for read in call.reads:
            known = found.get(read.storage)
            if known is not None and known.tensor == read:
                channels += known.channels
            else:
                channels += [(read, index) for index in range(read.shape[axis])]
        start = 0
        if mark_of(function) == SHUFFLE:
            channels = [channels[int(index)] for index in list(function.attrs[SHUFFLE])[1:]]
        elif mark_of(function) == SLICE:
            start = int(function.attrs[SLICE][axis])
        for tensor in call.writes:
            end = start + tensor.shape[axis]
            chosen = tuple(channels[start:end])
            found[tensor.storage] = Selection(place=place, tensor=tensor, channels=chosen)
            start = end
    return Region(axis=axis, places=tuple(places), selections=found)
