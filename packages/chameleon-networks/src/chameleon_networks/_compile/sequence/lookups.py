"""Channel shuffles without copies: kernels look up the place of each channel that they read.

Between a shuffle and the kernels that read its result, there may be splits, slices and
concatenations of the same axis. Together they select channels of tensors that other kernels write.
These tensors become parts of one storage. A kernel that reads one channel at a time gets a table of
the channels' places. Other kernels read a view if the channels lie side by side, and otherwise a
copy of the selection.

The tables are needed, because some networks have no order of channels in memory in which every
kernel reads channels that lie side by side. An example is ShuffleNet v2
(https://arxiv.org/abs/1807.11164). Each unit of a stage reads a part of the output of each earlier
unit, and later units read the rest. Assume that the outputs of three earlier units lie in memory
one after another, in any order. A unit that reads one range with channels of all three also reads
the whole output in the middle. But the unit must read only a part of that output.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from chameleon_tvm.api import emit, tirx

from chameleon_networks._c_runtime.pack import ALIGNMENT
from chameleon_networks._compile.sequence.accesses import table_axis, takes_strides
from chameleon_networks._compile.sequence.calls import (
    Call,
    CallSequence,
    Lookup,
    Storage,
    Tensor,
    bytes_of,
)
from chameleon_networks._compile.sequence.changes import Changes, part_of
from chameleon_networks._compile.sequence.marks import SHUFFLE, SLICE, mark_of
from chameleon_networks._graph.strides import dense_strides, reshaped_strides

Function = Any
Channel = tuple[Tensor, int]
"""A tensor that a kernel writes, and the index of the channel in that tensor."""


@attrs.frozen(kw_only=True, eq=False)
class Selection:
    """A tensor that a shuffle, split, slice or concatenation computes, as a choice of channels.

    Attributes:
        index: The number of the call in the sequence.
        tensor: The tensor that the call writes.
        channels: The channels of other tensors that the tensor consists of, in order.
    """

    index: int
    tensor: Tensor
    channels: tuple[Channel, ...]

    @property
    def sources(self) -> list[Tensor]:
        """The tensors that the channels come from."""
        return list(dict.fromkeys(tensor for tensor, _ in self.channels))


@attrs.frozen(kw_only=True, eq=False)
class Region:
    """Neighbouring calls that only select channels of one axis, such as shuffles and slices.

    Attributes:
        axis: The axis of the channels.
        places: The numbers of the calls in the sequence.
        selections: The selection that each call computes, by the storage that it writes.
    """

    axis: int
    places: tuple[int, ...]
    selections: Mapping[Storage, Selection]


def next_region(changes: Changes, tried: set[Storage]) -> Region | None:
    """Find the next group of connected calls that select channels and include a channel shuffle.

    Two calls are connected if one reads or writes a storage that the other reads or writes.

    Args:
        changes: The calls of the network, none of which is replaced or removed yet.
        tried: The storages that the calls of earlier regions write. The function adds the storages
            of the new region.
    """
    axes = {}
    shuffles = []
    for index, [call] in enumerate(changes.calls):
        function = changes.functions[call.kernel]
        axis = _axis_of(function, call)
        if axis is not None:
            axes[index] = len(call.writes[0].shape), axis
            if mark_of(function) == SHUFFLE and call.writes[0].storage not in tried:
                shuffles.append(index)
    if not shuffles:
        return None
    region = shuffles[:1]
    for index in region:
        region += [
            other
            for other, axis in axes.items()
            if other not in region
            and axis == axes[index]
            and _storages(changes, other) & _storages(changes, index)
        ]
    tried.update(changes.calls[index][0].writes[0].storage for index in region)
    return _chosen(changes, axes[region[0]][1], sorted(region))


def _storages(changes: Changes, index: int) -> set[Storage]:
    [call] = changes.calls[index]
    return {tensor.storage for tensor in call.arguments}


def _axis_of(function: Function, call: Call) -> int | None:
    """The axis on which a call selects indices. None if the call does something else."""
    mark = mark_of(function)
    if mark == SLICE:
        pair = zip(call.reads[0].shape, call.writes[0].shape, strict=True)
        cut = [axis for axis, (before, after) in enumerate(pair) if before != after]
        return cut[0] if len(cut) == 1 else None
    if mark == SHUFFLE:
        return int(function.attrs[SHUFFLE][0])
    return None if mark is None else int(function.attrs[mark])


def _chosen(changes: Changes, axis: int, places: Sequence[int]) -> Region:
    """The region of the calls with the given numbers, which are in the order of the sequence."""
    selections: dict[Storage, Selection] = {}
    for index in places:
        [call] = changes.calls[index]
        function = changes.functions[call.kernel]
        channels: list[Channel] = []
        for read in call.reads:
            known = selections.get(read.storage)
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
            selections[tensor.storage] = Selection(index=index, tensor=tensor, channels=chosen)
            start = end
    return Region(axis=axis, places=tuple(places), selections=selections)


def with_lookups(
    sequence: CallSequence, functions: Mapping[str, Function]
) -> tuple[CallSequence, dict[str, Function]]:
    """Remove channel shuffles if the kernels that read the result can look up the channels.

    Args:
        sequence: The calls.
        functions: The kernels, by name.

    Returns:
        The calls, and the functions that they call. New functions copy the selected channels for
        kernels that cannot look up channels. Shuffles that remain lose the mark ``SHUFFLE``, so
        later steps treat them as ordinary kernels.
    """
    tried: set[Storage] = set()
    while True:
        changes = Changes(sequence, functions)
        region = next_region(changes, tried)
        if region is None:
            break
        _Resolver(changes, region).resolve()
        sequence, functions = changes.sequence, changes.functions
    left = {
        name: function.without_attr(SHUFFLE) if mark_of(function) == SHUFFLE else function
        for name, function in functions.items()
    }
    return sequence, left


class _Resolver:
    """Replaces the calls of one region in the sequence."""

    def __init__(self, changes: Changes, region: Region) -> None:
        self._changes = changes
        self._region = region
        self._axis = region.axis
        self._before: dict[int, list[Call]] = {index: [] for index in region.places}
        """The copies that replace each call of the region."""
        self._moved: dict[Tensor, Tensor] = {}
        """The final places of the tensors that hold the channels."""

    def resolve(self) -> None:
        """Replace the calls, unless no kernel can look up its channels."""
        known = self._region.selections
        readers = [
            (index, position, known[read.storage])
            for index, [call] in enumerate(self._changes.calls)
            for position, read in enumerate(call.reads)
            if index not in self._region.places and read.storage in known
        ]
        returned = [known[storage] for storage in self._changes.returned if storage in known]
        used = [*(selection for _, _, selection in readers), *returned]
        sources = dict.fromkeys(source for selection in used for source in selection.sources)
        reshaped = len({source.storage for source in sources}) < len(sources)
        inside = any(source.storage in known for source in sources)
        apart = all(selection.tensor.whole for selection in known.values())
        useful = any(self._table_axis(*reader) is not None for reader in readers)
        if reshaped or inside or not apart or not useful:
            return
        for group in _joined([selection.sources for selection in used]):
            self._place(group)
        lookups = [(*reader, self._reading_of(*reader)) for reader in readers]
        copied = dict.fromkeys([*returned, *(use for _, _, use, call in lookups if call is None)])
        for index, position, selection, _ in lookups:
            if selection not in copied:
                # Another parameter of the call may have been changed since.
                call = self._reading_of(index, position, selection)
                self._changes.calls[index] = [] if call is None else [call]
        for selection in copied:
            self._before[selection.index].append(self._copied(selection))
        for index, calls in self._before.items():
            self._changes.calls[index] = calls

    def _place(self, group: Sequence[Tensor]) -> None:
        """Put tensors into one storage, one after another, with rows of equal length."""
        [first, *others], axis = group, self._axis
        if not others:
            self._moved[first] = first
            return
        widest = max(tensor.shape[axis] for tensor in group)
        shape = (*first.shape[:axis], widest, *first.shape[axis + 1 :])
        strides, element = dense_strides(shape), bytes_of((1,), first.dtype)
        # Whole steps of the axis apart, so that tables reach all of them.
        unit = math.lcm(strides[axis] * element, ALIGNMENT)
        step = -(-bytes_of(shape, first.dtype) // unit) * unit
        storage = Storage(size=step * len(group))
        for number, source in enumerate(group):
            target = attrs.evolve(source, storage=storage, offset=number * step, strides=strides)
            self._moved[source] = target
            free = source.storage.written and source.storage not in self._changes.returned
            if not free or not self._changes.moved(source, target):
                index, kernel = self._first_reader(source)
                self._before[index].append(self._changes.copy(kernel, source, target))

    def _first_reader(self, source: Tensor) -> tuple[int, str]:
        """The number and the kernel of the first call of the region that reads a tensor."""
        return next(
            (index, call.kernel)
            for index in self._region.places
            for call in self._changes.calls[index]
            if source in call.reads
        )

    def _table_axis(self, index: int, position: int, selection: Selection) -> int | None:
        """The axis of a parameter whose indices the kernel can look up, or None."""
        [call] = self._changes.calls[index]
        function = self._changes.functions[call.kernel]
        return table_axis(function, position, selection.tensor.shape, self._axis)

    def _reading_of(self, index: int, position: int, selection: Selection) -> Call | None:
        """The call of a reader that finds the channels in their places. None if it needs a copy."""
        [call] = self._changes.calls[index]
        function, shape = self._changes.functions[call.kernel], call.reads[position].shape
        view = self._view(selection)
        if view is not None:
            strides = reshaped_strides(view.shape, view.strides, shape)
            if strides is not None and takes_strides(function, position, strides):
                return _reading(call, position, attrs.evolve(view, shape=shape, strides=strides))
        axis = self._table_axis(index, position, selection)
        if axis is None:
            return None
        whole = self._whole(selection)
        strides = reshaped_strides(whole.shape, whole.strides, shape)
        if strides is None:
            return None
        # Of an axis of one index the stride counts as well: the table leads elsewhere.
        strides = (*strides[:axis], whole.strides[self._axis], *strides[axis + 1 :])
        reading = _reading(call, position, attrs.evolve(whole, shape=shape, strides=strides))
        lookup = Lookup(position=position, axis=axis, table=self._table(selection))
        return attrs.evolve(reading, lookups=(*reading.lookups, lookup))

    def _view(self, selection: Selection) -> Tensor | None:
        """A view of a selection's channels, if they lie side by side. Otherwise None."""
        (source, start), *_ = selection.channels
        wanted = tuple((source, start + number) for number in range(len(selection.channels)))
        if selection.channels != wanted:
            return None
        first = [0] * len(source.shape)
        first[self._axis] = start
        return part_of(self._moved[source], selection.tensor.shape, first)

    def _whole(self, selection: Selection) -> Tensor:
        """A tensor at the start of the storage, from which a table leads to the channels."""
        moved = self._moved[selection.sources[0]]
        return attrs.evolve(moved, offset=0, shape=selection.tensor.shape)

    def _table(self, selection: Selection) -> Tensor:
        """A table with the place of each channel, in steps of the axis from the storage's start."""
        places = []
        for source, index in selection.channels:
            moved = self._moved[source]
            step = moved.strides[self._axis] * bytes_of((1,), moved.dtype)
            places.append(moved.offset // step + index)
        table = np.array(places, np.int64)
        return Tensor.fresh(table.shape, "int64", constant=table)

    def _copied(self, selection: Selection) -> Call:
        """A call that copies the channels of a selection into its tensor."""
        [call] = self._changes.calls[selection.index]
        tensor = selection.tensor
        name = f"{call.kernel}_of_some_of_{'x'.join(map(str, tensor.shape))}_{tensor.dtype}"
        if name not in self._changes.functions:
            self._changes.functions[name] = _copying(tensor, self._axis)
        reads = (self._whole(selection), self._table(selection))
        return Call(kernel=name, reads=reads, writes=(tensor,))


def _joined(sets: Sequence[Sequence[Tensor]]) -> list[list[Tensor]]:
    """Groups of tensors, so that all tensors of each set are in the same group."""
    groups: list[dict[Tensor, None]] = []
    for tensors in sets:
        met = [group for group in groups if not group.keys().isdisjoint(tensors)]
        groups = [group for group in groups if group not in met]
        groups.append(dict.fromkeys(tensor for some in (*met, tensors) for tensor in some))
    return [list(group) for group in groups]


def _reading(call: Call, position: int, tensor: Tensor) -> Call:
    """A call with another tensor as one of its inputs."""
    reads = (*call.reads[:position], tensor, *call.reads[position + 1 :])
    return attrs.evolve(call, reads=reads)


def _copying(tensor: Tensor, axis: int) -> Function:
    """A function that copies a tensor whose channels it looks up.

    Its loops are final: if channels are innermost, one channel at a time is faster than vectors
    that are gathered from single elements.
    """
    shape, extent = tensor.shape, tensor.shape[axis]
    outside, inside = shape[:axis], shape[axis + 1 :]
    rows, row = math.prod(outside), math.prod(inside)
    source = tirx.decl_buffer(shape, tensor.dtype, "source")
    places = tirx.decl_buffer([extent], "int64", "places")
    chosen = tirx.decl_buffer(shape, tensor.dtype, "chosen")

    def copied(outer: list[Any], channel: Any) -> Any:
        def element(index: Any) -> Any:
            inner = emit.split(index, inside)
            chosen_channel = emit.load(places, [channel])
            value = emit.load(source, [*outer, chosen_channel, *inner])
            return emit.store(chosen, [*outer, channel, *inner], value)

        return emit.loop("element", row, element)

    def pixel(index: Any) -> Any:
        outer = emit.split(index, outside)
        return emit.loop("channel", extent, lambda channel: copied(outer, channel))

    def plane(index: Any) -> Any:
        *outer, channel = emit.split(index, (*outside, extent))
        return copied(outer, channel)

    if row == 1:
        body = emit.parallel("pixel", rows, pixel)
    else:
        body = emit.parallel("plane", rows * extent, plane)
    return emit.function([source, places, chosen], body)
