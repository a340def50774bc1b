"""Removes channel shuffles: kernels gather channels through index tables, views or copies.

Views alone do not suffice: in ShuffleNet v2 (arXiv:1807.11164), no order of channels in memory lets
each unit read a contiguous range.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from chameleon_tvm.api import emit, tirx

from chameleon_networks._c_runtime.pack import ALIGNMENT
from chameleon_networks._compile.sequence.buffer_accesses import gather_axis, supports_strides
from chameleon_networks._compile.sequence.calls import (
    Call,
    CallSequence,
    ChannelGather,
    Storage,
    Tensor,
    bytes_of,
)
from chameleon_networks._compile.sequence.copy_elision import SequenceEditor, slice_tensor
from chameleon_networks._compile.sequence.view_candidates import SHUFFLE, SLICE, view_kind
from chameleon_networks._graph.strides import dense_strides, reshaped_strides

Function = Any
Channel = tuple[Tensor, int]
"""A tensor that a kernel writes, and the index of the channel in that tensor."""


@attrs.frozen(kw_only=True, eq=False)
class ChannelSelection:
    """A tensor that a shuffle, split, slice or concatenation computes, as selected channels.

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
class SelectionRegion:
    """Connected calls that only select channels of one axis, such as shuffles and slices.

    Attributes:
        axis: The axis of the channels.
        call_numbers: The numbers of the calls in the sequence.
        selections: The selection that each call computes, by the storage that it writes.
    """

    axis: int
    call_numbers: tuple[int, ...]
    selections: Mapping[Storage, ChannelSelection]


def find_region(editor: SequenceEditor, visited_storages: set[Storage]) -> SelectionRegion | None:
    """Find the next connected calls that select channels and include a shuffle."""
    # The function adds the storages of these calls to ``visited_storages``.
    axes = {}
    shuffles = []
    for index, [call] in enumerate(editor.calls):
        function = editor.functions[call.kernel]
        axis = _axis_of(function, call)
        if axis is not None:
            axes[index] = len(call.writes[0].shape), axis
            if view_kind(function) == SHUFFLE and call.writes[0].storage not in visited_storages:
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
            and _storages(editor, other) & _storages(editor, index)
        ]
    visited_storages.update(editor.calls[index][0].writes[0].storage for index in region)
    return _region_of(editor, axes[region[0]][1], sorted(region))


def _storages(editor: SequenceEditor, index: int) -> set[Storage]:
    [call] = editor.calls[index]
    return {tensor.storage for tensor in call.arguments}


def _axis_of(function: Function, call: Call) -> int | None:
    """The axis on which a call selects indices, or None if the call does something else."""
    mark = view_kind(function)
    if mark == SLICE:
        pair = zip(call.reads[0].shape, call.writes[0].shape, strict=True)
        cut = [axis for axis, (before, after) in enumerate(pair) if before != after]
        return cut[0] if len(cut) == 1 else None
    if mark == SHUFFLE:
        return int(function.attrs[SHUFFLE][0])
    return None if mark is None else int(function.attrs[mark])


def _region_of(editor: SequenceEditor, axis: int, call_numbers: Sequence[int]) -> SelectionRegion:
    """The selections of channels that the calls with the given numbers compute."""
    selections: dict[Storage, ChannelSelection] = {}
    for index in call_numbers:
        [call] = editor.calls[index]
        function = editor.functions[call.kernel]
        channels: list[Channel] = []
        for read in call.reads:
            earlier = selections.get(read.storage)
            if earlier is not None and earlier.tensor == read:
                channels += earlier.channels
            else:
                channels += [(read, index) for index in range(read.shape[axis])]
        start = 0
        if view_kind(function) == SHUFFLE:
            channels = [channels[int(index)] for index in list(function.attrs[SHUFFLE])[1:]]
        elif view_kind(function) == SLICE:
            start = int(function.attrs[SLICE][axis])
        for tensor in call.writes:
            end = start + tensor.shape[axis]
            gathered = tuple(channels[start:end])
            selections[tensor.storage] = ChannelSelection(
                index=index, tensor=tensor, channels=gathered
            )
            start = end
    return SelectionRegion(axis=axis, call_numbers=tuple(call_numbers), selections=selections)


def gather_channels(
    sequence: CallSequence, functions: Mapping[str, Function]
) -> tuple[CallSequence, dict[str, Function]]:
    """Remove channel shuffles if a kernel that reads the result can gather channels."""
    visited_storages: set[Storage] = set()
    while True:
        editor = SequenceEditor(sequence, functions)
        region = find_region(editor, visited_storages)
        if region is None:
            break
        _RegionRewriter(editor, region).resolve()
        sequence, functions = editor.sequence, editor.functions
    left = {
        name: function.without_attr(SHUFFLE) if view_kind(function) == SHUFFLE else function
        for name, function in functions.items()
    }
    return sequence, left


class _RegionRewriter:
    """Replaces the calls of one region in the sequence."""

    def __init__(self, editor: SequenceEditor, region: SelectionRegion) -> None:
        self._editor = editor
        self._region = region
        self._axis = region.axis
        self._copies: dict[int, list[Call]] = {index: [] for index in region.call_numbers}
        """The copies that replace each call of the region."""
        self._moved: dict[Tensor, Tensor] = {}
        """The final places of the tensors that hold the channels."""

    def resolve(self) -> None:
        """Replace the calls of the region if a kernel can gather its channels."""
        selections = self._region.selections
        readers = [
            (index, position, selections[read.storage])
            for index, [call] in enumerate(self._editor.calls)
            for position, read in enumerate(call.reads)
            if index not in self._region.call_numbers and read.storage in selections
        ]
        outputs = [selections[s] for s in self._editor.output_storages if s in selections]
        used = [*(selection for _, _, selection in readers), *outputs]
        sources = dict.fromkeys(source for selection in used for source in selection.sources)
        reshaped = len({source.storage for source in sources}) < len(sources)
        inside = any(source.storage in selections for source in sources)
        apart = all(selection.tensor.fills_storage for selection in selections.values())
        useful = any(self._gather_axis(*reader) is not None for reader in readers)
        if reshaped or inside or not apart or not useful:
            return
        for group in _connected_groups([selection.sources for selection in used]):
            self._join_storage(group)
        gathers = [(*reader, self._gathering_call(*reader)) for reader in readers]
        copied = dict.fromkeys([*outputs, *(use for _, _, use, call in gathers if call is None)])
        for index, position, selection, _ in gathers:
            if selection not in copied:
                # An earlier iteration may have changed another parameter of the call.
                call = self._gathering_call(index, position, selection)
                self._editor.calls[index] = [] if call is None else [call]
        for selection in copied:
            self._copies[selection.index].append(self._copy_call(selection))
        for index, calls in self._copies.items():
            self._editor.calls[index] = calls

    def _join_storage(self, group: Sequence[Tensor]) -> None:
        """Put tensors into one storage, one after another, with rows of equal length."""
        [first, *others], axis = group, self._axis
        if not others:
            self._moved[first] = first
            return
        widest = max(tensor.shape[axis] for tensor in group)
        shape = (*first.shape[:axis], widest, *first.shape[axis + 1 :])
        strides, element = dense_strides(shape), bytes_of((1,), first.dtype)
        # Their distance is a multiple of the axis's stride, so that indices reach all of them.
        unit = math.lcm(strides[axis] * element, ALIGNMENT)
        step = -(-bytes_of(shape, first.dtype) // unit) * unit
        storage = Storage(size=step * len(group))
        for number, source in enumerate(group):
            target = attrs.evolve(source, storage=storage, offset=number * step, strides=strides)
            self._moved[source] = target
            free = source.storage.written and source.storage not in self._editor.output_storages
            if not free or not self._editor.relocate(source, target):
                index, kernel = self._first_reader(source)
                self._copies[index].append(self._editor.copy(kernel, source, target))

    def _first_reader(self, source: Tensor) -> tuple[int, str]:
        """The number and the kernel of the first call of the region that reads a tensor."""
        return next(
            (index, call.kernel)
            for index in self._region.call_numbers
            for call in self._editor.calls[index]
            if source in call.reads
        )

    def _gather_axis(self, index: int, position: int, selection: ChannelSelection) -> int | None:
        """The axis of a parameter that the kernel can gather, or None."""
        [call] = self._editor.calls[index]
        function = self._editor.functions[call.kernel]
        return gather_axis(function, position, selection.tensor.shape, self._axis)

    def _gathering_call(
        self, index: int, position: int, selection: ChannelSelection
    ) -> Call | None:
        """The call of a reader with its channels in place, or None if it needs a copy."""
        [call] = self._editor.calls[index]
        function, shape = self._editor.functions[call.kernel], call.reads[position].shape
        view = self._view(selection)
        if view is not None:
            strides = reshaped_strides(view.shape, view.strides, shape)
            if strides is not None and supports_strides(function, position, strides):
                return _replace_input(
                    call, position, attrs.evolve(view, shape=shape, strides=strides)
                )
        axis = self._gather_axis(index, position, selection)
        if axis is None:
            return None
        whole = self._storage_tensor(selection)
        strides = reshaped_strides(whole.shape, whole.strides, shape)
        if strides is None:
            return None
        # The stride of an axis of extent 1 matters, because the table leads to other indices.
        strides = (*strides[:axis], whole.strides[self._axis], *strides[axis + 1 :])
        reading = _replace_input(call, position, attrs.evolve(whole, shape=shape, strides=strides))
        gather = ChannelGather(position=position, axis=axis, indices=self._index_table(selection))
        return attrs.evolve(reading, gathers=(*reading.gathers, gather))

    def _view(self, selection: ChannelSelection) -> Tensor | None:
        """A view of a selection's channels if they are contiguous, or None."""
        (source, start), *_ = selection.channels
        wanted = tuple((source, start + number) for number in range(len(selection.channels)))
        if selection.channels != wanted:
            return None
        first = [0] * len(source.shape)
        first[self._axis] = start
        return slice_tensor(self._moved[source], selection.tensor.shape, first)

    def _storage_tensor(self, selection: ChannelSelection) -> Tensor:
        """The tensor at the start of the storage, which index tables refer to."""
        moved = self._moved[selection.sources[0]]
        return attrs.evolve(moved, offset=0, shape=selection.tensor.shape)

    def _index_table(self, selection: ChannelSelection) -> Tensor:
        """The index of each channel along the axis, counted from the storage's start."""
        positions = []
        for source, index in selection.channels:
            moved = self._moved[source]
            step = moved.strides[self._axis] * bytes_of((1,), moved.dtype)
            positions.append(moved.offset // step + index)
        indices = np.array(positions, np.int64)
        return Tensor.allocate(indices.shape, "int64", constant=indices)

    def _copy_call(self, selection: ChannelSelection) -> Call:
        """A call that copies the channels of a selection into its tensor."""
        [call] = self._editor.calls[selection.index]
        tensor = selection.tensor
        name = f"{call.kernel}_of_some_of_{'x'.join(map(str, tensor.shape))}_{tensor.dtype}"
        if name not in self._editor.functions:
            self._editor.functions[name] = _gather_function(tensor, self._axis)
        reads = (self._storage_tensor(selection), self._index_table(selection))
        return Call(kernel=name, reads=reads, writes=(tensor,))


def _connected_groups(sets: Sequence[Sequence[Tensor]]) -> list[list[Tensor]]:
    """The connected components of tensors that share a set."""
    groups: list[dict[Tensor, None]] = []
    for tensors in sets:
        overlapping = [group for group in groups if not group.keys().isdisjoint(tensors)]
        groups = [group for group in groups if group not in overlapping]
        groups.append(dict.fromkeys(tensor for part in (*overlapping, tensors) for tensor in part))
    return [list(group) for group in groups]


def _replace_input(call: Call, position: int, tensor: Tensor) -> Call:
    """A call with another tensor as one of its inputs."""
    reads = (*call.reads[:position], tensor, *call.reads[position + 1 :])
    return attrs.evolve(call, reads=reads)


def _gather_function(tensor: Tensor, axis: int) -> Function:
    """A function that copies a tensor whose channels it gathers."""
    # Its loops are final: one channel at a time is faster than gathering vectors.
    shape, extent = tensor.shape, tensor.shape[axis]
    outside, inside = shape[:axis], shape[axis + 1 :]
    rows, row = math.prod(outside), math.prod(inside)
    source = tirx.decl_buffer(shape, tensor.dtype, "source")
    index_table = tirx.decl_buffer([extent], "int64", "places")
    gathered = tirx.decl_buffer(shape, tensor.dtype, "chosen")

    def copied(outer: list[Any], channel: Any) -> Any:
        def element(index: Any) -> Any:
            inner = emit.split(index, inside)
            chosen_channel = emit.load(index_table, [channel])
            value = emit.load(source, [*outer, chosen_channel, *inner])
            return emit.store(gathered, [*outer, channel, *inner], value)

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
    return emit.function([source, index_table, gathered], body)
