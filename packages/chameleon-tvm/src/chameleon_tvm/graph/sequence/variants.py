"""Kernels fitted to where their tensors lie: with the strides of views, and their alignment.

TVM's kernels take tensors without gaps at multiples of 64 bytes for granted. What callers pass
to a network has the alignment of its elements alone, and a part of a larger tensor has the
strides of that one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
from tvm_ffi.structural import structural_map, structural_walk

from chameleon_tvm.graph.relaxed import tvm
from chameleon_tvm.graph.sequence.calls import CallSequence, Tensor, bytes_of
from chameleon_tvm.graph.sequence.plan import ALIGNMENT
from chameleon_tvm.graph.sequence.strides import Shape, reshaped_strides
from chameleon_tvm.quick_tvm import tirx

Function = Any
Buffer = Any


@attrs.frozen(kw_only=True)
class Placement:
    """How a kernel finds a tensor.

    Attributes:
        strides: in elements; None where there are no gaps.
        alignment: of its first element, in bytes.
    """

    strides: Shape | None = None
    alignment: int = ALIGNMENT


def with_variants(
    sequence: CallSequence, functions: Mapping[str, Function]
) -> tuple[CallSequence, dict[str, Function]]:
    """The sequence with a function of its own for all placements that a kernel is called with.

    Args:
        sequence: the calls.
        functions: kernels for tensors without gaps at multiples of ``ALIGNMENT``, by name.

    Returns:
        The calls with their functions' names as symbols, and those functions.
    """
    # Callers allocate inputs and outputs.
    given = {tensor.storage for tensor in (*sequence.inputs, *sequence.outputs)}
    names: dict[tuple[str, tuple[Placement, ...]], str] = {}
    found: dict[str, Function] = {}
    calls = []
    for call in sequence.calls:
        placements = tuple(
            _placement(tensor, given=tensor.storage in given) for tensor in call.arguments
        )
        if (call.kernel, placements) not in names:
            name = call.kernel
            while name in found:
                name += "_"
            names[call.kernel, placements] = name
            found[name] = placed(functions[call.kernel], placements)
        calls.append(attrs.evolve(call, symbol=names[call.kernel, placements]))
    return attrs.evolve(sequence, calls=tuple(calls)), found


def placed(function: Function, placements: Sequence[Placement]) -> Function:
    """The function with its parameters elsewhere.

    Args:
        function: its parameters are buffers, which it may declare again in other shapes.
        placements: one per parameter.

    Raises:
        ValueError: a shape that a parameter is declared in again cannot have its strides.
    """
    new: dict[Buffer, Buffer] = {}
    for parameter, placement in zip(function.params, placements, strict=True):
        if placement == Placement():
            continue
        new[parameter] = _buffer(parameter, placement)
        for alias in aliases(function, parameter):
            strides = placement.strides
            if strides is not None:
                strides = reshaped_strides(extents(parameter), strides, extents(alias))
                if strides is None:
                    raise ValueError(f"{parameter.name} is read in another shape than it has")
            new[alias] = _buffer(alias, attrs.evolve(placement, strides=strides))
    if not new:
        return function
    return structural_map(function, (tvm.ir.Var, lambda one: new.get(one, one)))


def aliases(function: Function, parameter: Buffer) -> list[Buffer]:
    """Buffers of a function that are a parameter in another shape."""
    declared: list[Any] = []
    structural_walk(function, (tirx.DeclBuffer, declared.append), order="pre")
    found = [parameter]
    for one in declared:
        if isinstance(one.data, tvm.ir.Call) and any(
            source.same_as(known) for source in one.data.args for known in found
        ):
            found.append(one.buffer)
    return found[1:]


def extents(buffer: Buffer) -> Shape:
    """A buffer's shape."""
    return tuple(int(extent) for extent in buffer.ty.shape)


def _placement(tensor: Tensor, *, given: bool) -> Placement:
    element = bytes_of((1,), tensor.dtype)
    alignment = element if given else math.gcd(tensor.offset, ALIGNMENT)
    return Placement(strides=None if tensor.dense else tensor.strides, alignment=alignment)


def _buffer(buffer: Buffer, placement: Placement) -> Buffer:
    strides = list(buffer.ty.strides)
    if placement.strides is not None:
        kind = str(buffer.ty.shape[0].ty.dtype)
        strides = [tirx.IntImm(kind, stride) for stride in placement.strides]
    return tirx.decl_buffer(
        buffer.ty.shape,
        str(buffer.ty.dtype),
        str(buffer.name),
        strides=strides,
        elem_offset=buffer.ty.elem_offset,
        offset_factor=int(buffer.ty.offset_factor),
        data_alignment=placement.alignment,
        scope=str(buffer.ty.storage_scope),
    )
