"""Places the new values of a network's state in the memory of the old ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from chameleon_networks._compile.sequence.calls import Call, CallSequence, Storage, Tensor
from chameleon_networks._compile.sequence.copy_elision import SequenceEditor

Function = Any


def state_pairs(sequence: CallSequence) -> Iterator[tuple[Tensor, Tensor]]:
    """Pairs of the old and the new value of each part of the state."""
    first = len(sequence.inputs) - len(sequence.state)
    return zip(sequence.inputs[first:], sequence.state, strict=True)


def place_state(
    sequence: CallSequence, functions: Mapping[str, Function]
) -> tuple[CallSequence, dict[str, Function]]:
    """Let kernels write the new state over the old one, if no later kernel reads the old one.

    Other new values are copied after the last call. A network that exchanges parts of its state
    has a kernel that copies them before.
    """
    functions = dict(functions)
    for number in range(len(sequence.state)):
        old, new = list(state_pairs(sequence))[number]
        if _is_free(sequence, old.storage, new):
            sequence = _moved(sequence, new.storage, old.storage)
    editor = SequenceEditor(sequence, functions)
    kept = {old.storage for old, _ in state_pairs(sequence)}
    state, copies = [], []
    for old, new in state_pairs(sequence):
        if new.storage in kept and not (new.storage is old.storage and new.fills_storage):
            result = Tensor.allocate(new.shape, new.dtype)
            copies.append(editor.copy("state", new, result))
            new = result
        state.append(new)
    calls = (*sequence.calls, *copies)
    return attrs.evolve(sequence, calls=calls, state=tuple(state)), editor.functions


def _is_free(sequence: CallSequence, old: Storage, new: Tensor) -> bool:
    """Whether kernels can write a new value over the old one, which nobody reads from then on."""
    others = [tensor for tensor in sequence.results if tensor.storage is new.storage]
    if not new.storage.written or not new.fills_storage or len(others) > 1:
        return False
    writing = [any(t.storage is new.storage for t in call.writes) for call in sequence.calls]
    later = sequence.calls[writing.index(True) :]
    reads = [*(tensor for call in later for tensor in call.reads), *sequence.results]
    return all(tensor.storage is not old for tensor in reads)


def _moved(sequence: CallSequence, source: Storage, target: Storage) -> CallSequence:
    """A sequence with all tensors of a storage in another one of the same size."""

    def moved(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(
            attrs.evolve(one, storage=target) if one.storage is source else one for one in tensors
        )

    def moved_call(call: Call) -> Call:
        return attrs.evolve(call, reads=moved(call.reads), writes=moved(call.writes))

    return attrs.evolve(
        sequence,
        calls=tuple(map(moved_call, sequence.calls)),
        outputs=moved(sequence.outputs),
        state=moved(sequence.state),
    )
