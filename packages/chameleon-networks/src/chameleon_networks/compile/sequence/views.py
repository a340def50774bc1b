"""Concatenations written in place by those who compute their parts, and splits that are views.

A part of a concatenation lies in the result's memory from the start: its producer is compiled for
the result's strides. A part of a split is read where it lies. Where that cannot be, the part is
copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from chameleon_networks.compile.sequence.calls import Call, CallSequence, Tensor
from chameleon_networks.compile.sequence.changes import Changes, part_of
from chameleon_networks.compile.sequence.marks import CONCAT, SLICE, SPLIT, mark_of

Function = Any


def with_views(
    sequence: CallSequence, functions: Mapping[str, Function]
) -> tuple[CallSequence, dict[str, Function]]:
    """The sequence without calls of marked functions.

    Args:
        sequence: the calls.
        functions: the kernels by name.

    Returns:
        The calls that are left, and their functions, among them those that copy.
    """
    changes = Changes(sequence, functions)
    views = _Views(changes)
    views.replace_splits()
    views.replace_concatenations()
    return changes.sequence, changes.functions


class _Views:
    """Replaces the calls of marked functions among the changes."""

    def __init__(self, changes: Changes) -> None:
        self._changes = changes

    def replace_splits(self) -> None:
        """Replace splits and slices, from the first to the last: parts may be split again."""
        for place in range(len(self._changes.calls)):
            [call] = self._changes.calls[place]
            function = self._changes.functions[call.kernel]
            mark = mark_of(function)
            if mark not in {SPLIT, SLICE}:
                continue
            copies: list[Call] = []
            self._changes.calls[place] = copies
            [source] = call.reads
            start = 0
            for part in call.writes:
                if mark == SLICE:
                    first = [int(index) for index in function.attrs[SLICE]]
                else:
                    first = _at(start, int(function.attrs[SPLIT]), part)
                    start += part.shape[int(function.attrs[SPLIT])]
                view = part_of(source, part.shape, first)
                if part.storage in self._changes.returned or not self._changes.moved(part, view):
                    copies.append(self._changes.copy(call.kernel, view, part))

    def replace_concatenations(self) -> None:
        """Replace concatenations, from the last to the first: results may be parts of others."""
        for place in range(len(self._changes.calls) - 1, -1, -1):
            kernels = [call.kernel for call in self._changes.calls[place]]
            if len(kernels) == 1 and mark_of(self._changes.functions[kernels[0]]) == CONCAT:
                self._changes.calls[place] = self._parts_copied(place)

    def _parts_copied(self, place: int) -> list[Call]:
        """Copies of those parts of a concatenation that cannot lie in its result."""
        [call] = self._changes.calls[place]
        axis = int(self._changes.functions[call.kernel].attrs[CONCAT])
        copies = []
        start = 0
        for number in range(len(call.reads)):
            # Where a part is there twice, the second one has moved with the first.
            [call] = self._changes.calls[place]
            part, [result] = call.reads[number], call.writes
            view = part_of(result, part.shape, _at(start, axis, part))
            start += part.shape[axis]
            free = (
                part.storage.written and part.whole and part.storage not in self._changes.returned
            )
            if not free or part.storage is result.storage or not self._changes.moved(part, view):
                copies.append(self._changes.copy(call.kernel, part, view))
        return copies


def _at(start: int, axis: int, part: Tensor) -> list[int]:
    """First indices of a part that starts somewhere on one axis."""
    return [start if one == axis else 0 for one in range(len(part.shape))]
