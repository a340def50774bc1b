"""Places the new values of a network's state in the memory of the old ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs
from chameleon_tvm.api import emit, tirx

from chameleon_networks._compile.sequence.calls import Call, CallSequence, Storage, Tensor
from chameleon_networks._compile.sequence.copy_elision import SequenceEditor
from chameleon_networks._graph.relax_utils import UPDATE_ATTRIBUTE, tvm

Function = Any


def state_pairs(sequence: CallSequence) -> Iterator[tuple[Tensor, Tensor]]:
    """Pairs of the old and the new value of each part of the state."""
    first = len(sequence.inputs) - len(sequence.state)
    return zip(sequence.inputs[first:], sequence.state, strict=True)


def place_state(
    sequence: CallSequence, functions: Mapping[str, Function]
) -> tuple[CallSequence, dict[str, Function]]:
    """Let kernels write the new state over the old one, if no later kernel reads the old one.

    Kernels that write rows then write them alone. Other new values are copied after the last call.
    A network that exchanges parts of its state has a kernel that copies them before.
    """
    functions = dict(functions)
    for number in range(len(sequence.state)):
        old, new = list(state_pairs(sequence))[number]
        values = _values(sequence, functions, new)
        if _may_overwrite(sequence, functions, values, old.storage):
            sequence = _placed(sequence, functions, values, old.storage)
    editor = SequenceEditor(sequence, functions)
    kept = {old.storage for old, _ in state_pairs(sequence)}
    state, copies = [], []
    for old, new in state_pairs(sequence):
        result = new
        if new.storage in kept and not (new.storage is old.storage and new.fills_storage):
            result = Tensor.allocate(new.shape, new.dtype)
            copies.append(editor.copy("state", new, result))
        state.append(result)
    calls = (*sequence.calls, *copies)
    return attrs.evolve(sequence, calls=calls, state=tuple(state)), editor.functions


def _values(
    sequence: CallSequence, functions: Mapping[str, Function], new: Tensor
) -> list[tuple[int, Storage]]:
    """The memory of values that can be one after the other in the memory of the old one.

    Each comes with the number of the first call that writes it, the new value last. A call that
    writes rows is the only reason for more than one value.
    """
    values: list[tuple[int, Storage]] = []
    tensor = new
    while tensor.storage.written and tensor.fills_storage:
        writers = (
            number
            for number, call in enumerate(sequence.calls)
            if any(written.storage is tensor.storage for written in call.writes)
        )
        values.insert(0, (next(writers), tensor.storage))
        call = sequence.calls[values[0][0]]
        if UPDATE_ATTRIBUTE not in (functions[call.kernel].attrs or {}):
            break
        [tensor, *_] = call.reads
    return values


def _may_overwrite(
    sequence: CallSequence,
    functions: Mapping[str, Function],
    values: Sequence[tuple[int, Storage]],
    old: Storage,
) -> bool:
    """Whether nobody reads a value after the call that writes the next one."""
    storages = [old, *(storage for _, storage in values)]
    for (writer, _), storage in zip(values, storages, strict=False):
        call = sequence.calls[writer]
        reads = call.reads[_updates(functions, call, storage) :]
        later = (tensor for call in sequence.calls[writer + 1 :] for tensor in call.reads)
        if any(tensor.storage is storage for tensor in (*reads, *later, *sequence.results)):
            return False
    return bool(values)


def _updates(functions: Mapping[str, Function], call: Call, storage: Storage) -> bool:
    """Whether a call writes rows into a copy of what a storage holds."""
    if UPDATE_ATTRIBUTE not in (functions[call.kernel].attrs or {}):
        return False
    return call.reads[0].storage is storage and call.reads[0].fills_storage


def _placed(
    sequence: CallSequence,
    functions: dict[str, Function],
    values: Sequence[tuple[int, Storage]],
    target: Storage,
) -> CallSequence:
    """A sequence with values in the memory of an old one, and with kernels that write rows."""
    calls = list(sequence.calls)
    storages = [target, *(storage for _, storage in values)]
    for (writer, _), storage in zip(values, storages, strict=False):
        call = calls[writer]
        if _updates(functions, call, storage):
            name = f"{call.kernel}_in_place"
            functions[name] = _writing_rows(functions[call.kernel])
            calls[writer] = Call(kernel=name, reads=call.reads[1:], writes=call.writes)

    def moved(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(
            attrs.evolve(one, storage=target) if one.storage in storages else one for one in tensors
        )

    def moved_call(call: Call) -> Call:
        return attrs.evolve(call, reads=moved(call.reads), writes=moved(call.writes))

    return attrs.evolve(
        sequence,
        calls=tuple(map(moved_call, calls)),
        outputs=moved(sequence.outputs),
        state=moved(sequence.state),
    )


def _writing_rows(function: Function) -> Function:
    """A kernel that writes rows into a tensor that is there, without the copy before."""
    root = function.body.block
    rows = root.body.seq[1]
    block = tvm.s_tir.SBlock([], [], [], root.name_hint, rows)
    body = tvm.s_tir.SBlockRealize([], tirx.const(True), block)
    return emit.function(function.params[1:], body).with_attr(dict(function.attrs))
