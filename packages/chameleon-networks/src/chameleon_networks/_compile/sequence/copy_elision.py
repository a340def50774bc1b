"""Elides concatenations, splits and slices by placing tensors in parts of other tensors."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
from chameleon_tvm.api import te

from chameleon_networks._compile.sequence.buffer_accesses import supports_strides
from chameleon_networks._compile.sequence.calls import Call, CallSequence, Tensor, bytes_of
from chameleon_networks._compile.sequence.view_candidates import CONCAT, SLICE, SPLIT, view_kind
from chameleon_networks._graph.relax_utils import tvm
from chameleon_networks._graph.strides import Shape, reshaped_strides

Function = Any


def elide_copies(
    sequence: CallSequence, functions: Mapping[str, Function]
) -> tuple[CallSequence, dict[str, Function]]:
    """Replace concatenations, splits and slices by views, or by copies if views do not fit."""
    editor = SequenceEditor(sequence, functions)
    _replace_splits(editor)
    _replace_concatenations(editor)
    return editor.sequence, editor.functions


def _replace_splits(editor: SequenceEditor) -> None:
    """Replace splits and slices, from the first to the last, because parts may be split again."""
    for position in range(len(editor.calls)):
        [call] = editor.calls[position]
        function = editor.functions[call.kernel]
        kind = view_kind(function)
        if kind not in {SPLIT, SLICE}:
            continue
        copies: list[Call] = []
        editor.calls[position] = copies
        [source] = call.reads
        start = 0
        for part in call.writes:
            if kind == SLICE:
                first = [int(index) for index in function.attrs[SLICE]]
            else:
                first = _first_index(start, int(function.attrs[SPLIT]), part)
                start += part.shape[int(function.attrs[SPLIT])]
            view = slice_tensor(source, part.shape, first)
            if part.storage in editor.output_storages or not editor.relocate(part, view):
                copies.append(editor.copy(call.kernel, view, part))


def _replace_concatenations(editor: SequenceEditor) -> None:
    """Replace concatenations, from last to first, because results may be concatenated again."""
    for position in range(len(editor.calls) - 1, -1, -1):
        kernels = [call.kernel for call in editor.calls[position]]
        if len(kernels) == 1 and view_kind(editor.functions[kernels[0]]) == CONCAT:
            editor.calls[position] = _copy_parts(editor, position)


def _copy_parts(editor: SequenceEditor, position: int) -> list[Call]:
    """Calls that copy the parts of a concatenation that cannot be computed in place."""
    [call] = editor.calls[position]
    axis = int(editor.functions[call.kernel].attrs[CONCAT])
    copies = []
    start = 0
    for number in range(len(call.reads)):
        # If a part occurs twice, both have moved together.
        [call] = editor.calls[position]
        part, [result] = call.reads[number], call.writes
        view = slice_tensor(result, part.shape, _first_index(start, axis, part))
        start += part.shape[axis]
        free = (
            part.storage.written
            and part.fills_storage
            and part.storage not in editor.output_storages
        )
        if not free or part.storage is result.storage or not editor.relocate(part, view):
            copies.append(editor.copy(call.kernel, part, view))
    return copies


def _first_index(start: int, axis: int, part: Tensor) -> list[int]:
    """The first index on each axis of a part that starts at ``start`` on axis ``axis``."""
    return [start if dimension == axis else 0 for dimension in range(len(part.shape))]


class SequenceEditor:
    """Changes a call sequence: moves tensors into other storages, and replaces calls.

    Attributes:
        calls: For each call of the original sequence, the calls that replace it.
        functions: The kernels and the functions that copy, by name.
        output_storages: The storages of the network's outputs and of its new state.
    """

    def __init__(self, sequence: CallSequence, functions: Mapping[str, Function]) -> None:
        self._original = sequence
        self.calls: list[list[Call]] = [[call] for call in sequence.calls]
        self.functions = dict(functions)
        self.output_storages = {output.storage for output in sequence.results}

    @property
    def sequence(self) -> CallSequence:
        """The sequence with all changes so far."""
        return attrs.evolve(self._original, calls=tuple(itertools.chain(*self.calls)))

    def relocate(self, part: Tensor, view: Tensor) -> bool:
        """Move a tensor into another storage, if all kernels that use it can access it there."""
        moved: dict[int, list[Call]] = {}
        for position, calls in enumerate(self.calls):
            if not any(array.storage is part.storage for call in calls for array in call.arguments):
                continue
            replaced = [self._with_moved(call, part, view) for call in calls]
            if not all(replaced):
                return False
            moved[position] = [call for call in replaced if call is not None]
        for position, calls in moved.items():
            self.calls[position] = calls
        return True

    def _with_moved(self, call: Call, part: Tensor, view: Tensor) -> Call | None:
        """A call with a tensor in its new storage, or None if the kernel cannot use it."""
        function = self.functions[call.kernel]
        arguments = [*call.reads, *call.writes]
        for position, tensor in enumerate(arguments):
            if tensor.storage is not part.storage:
                continue
            strides = None
            if tensor.fills_storage:
                strides = reshaped_strides(view.shape, view.strides, tensor.shape)
            if strides is None or tensor.dtype != part.dtype:
                return None
            arguments[position] = attrs.evolve(
                tensor, storage=view.storage, offset=view.offset, strides=strides
            )
            if view_kind(function) is None and not supports_strides(function, position, strides):
                return None
        reads = len(call.reads)
        return attrs.evolve(call, reads=tuple(arguments[:reads]), writes=tuple(arguments[reads:]))

    def copy(self, kernel: str, source: Tensor, target: Tensor) -> Call:
        """Make the call that copies a tensor, by a function named after ``kernel``."""
        key = (source.shape, source.dtype)
        name = f"{kernel}_of_{'x'.join(map(str, source.shape))}_{source.dtype}"
        if name not in self.functions:
            array = te.placeholder(*key, "source")
            copy = tvm.topi.identity(array)
            self.functions[name] = te.create_prim_func([array, copy]).without_attr("global_symbol")
        return Call(kernel=name, reads=(source,), writes=(target,))


def slice_tensor(whole: Tensor, shape: Shape, first: Sequence[int]) -> Tensor:
    """The part of a tensor that begins at the given indices."""
    elements = sum(map(operator.mul, first, whole.strides))
    offset = whole.offset + elements * bytes_of((1,), whole.dtype)
    return attrs.evolve(whole, offset=offset, shape=shape)
