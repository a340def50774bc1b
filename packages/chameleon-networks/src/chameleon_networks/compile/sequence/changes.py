"""A call sequence while it changes: tensors that move into others' storage, copies."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
from chameleon_tvm.quick_tvm import te

from chameleon_networks.compile.sequence.accesses import takes_strides
from chameleon_networks.compile.sequence.calls import Call, CallSequence, Tensor, bytes_of
from chameleon_networks.compile.sequence.marks import mark_of
from chameleon_networks.graph.relaxed import tvm
from chameleon_networks.graph.strides import Shape, reshaped_strides

Function = Any


class Changes:
    """The sequence while it changes.

    Args:
        sequence: the calls.
        functions: the kernels by name.

    Attributes:
        calls: in the place of each call of the sequence there may be several, or none.
        functions: by name, among them those that copy.
        returned: storages of the network's outputs.
    """

    def __init__(self, sequence: CallSequence, functions: Mapping[str, Function]) -> None:
        self._original = sequence
        self.calls: list[list[Call]] = [[call] for call in sequence.calls]
        self.functions = dict(functions)
        self.returned = {output.storage for output in sequence.outputs}

    @property
    def sequence(self) -> CallSequence:
        """The sequence as it is now."""
        return attrs.evolve(self._original, calls=tuple(itertools.chain(*self.calls)))

    def moved(self, part: Tensor, view: Tensor) -> bool:
        """Put all of a storage elsewhere, if whoever uses it can find it there.

        Args:
            part: all of the storage.
            view: where it is to be.
        """
        moved: dict[int, list[Call]] = {}
        for place, calls in enumerate(self.calls):
            if not any(one.storage is part.storage for call in calls for one in call.arguments):
                continue
            found = [self._with_moved(call, part, view) for call in calls]
            if not all(found):
                return False
            moved[place] = [call for call in found if call is not None]
        for place, calls in moved.items():
            self.calls[place] = calls
        return True

    def _with_moved(self, call: Call, part: Tensor, view: Tensor) -> Call | None:
        """A call that finds a part elsewhere; None where its kernel cannot."""
        function = self.functions[call.kernel]
        arguments = [*call.reads, *call.writes]
        for position, tensor in enumerate(arguments):
            if tensor.storage is not part.storage:
                continue
            strides = None
            if tensor.whole:
                strides = reshaped_strides(view.shape, view.strides, tensor.shape)
            if strides is None or tensor.dtype != part.dtype:
                return None
            arguments[position] = attrs.evolve(
                tensor, storage=view.storage, offset=view.offset, strides=strides
            )
            if mark_of(function) is None and not takes_strides(function, position, strides):
                return None
        reads = len(call.reads)
        return attrs.evolve(call, reads=tuple(arguments[:reads]), writes=tuple(arguments[reads:]))

    def copy(self, kernel: str, source: Tensor, target: Tensor) -> Call:
        """A call that copies one tensor; it is named as the kernel that would move it."""
        key = (source.shape, source.dtype)
        name = f"{kernel}_of_{'x'.join(map(str, source.shape))}_{source.dtype}"
        if name not in self.functions:
            array = te.placeholder(*key, "source")
            made = tvm.topi.identity(array)
            self.functions[name] = te.create_prim_func([array, made]).without_attr("global_symbol")
        return Call(kernel=name, reads=(source,), writes=(target,))


def part_of(whole: Tensor, shape: Shape, first: Sequence[int]) -> Tensor:
    """The part of a tensor that begins at some indices."""
    elements = sum(map(operator.mul, first, whole.strides))
    offset = whole.offset + elements * bytes_of((1,), whole.dtype)
    return attrs.evolve(whole, offset=offset, shape=shape)
