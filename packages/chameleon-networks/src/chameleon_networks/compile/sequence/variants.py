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
from chameleon_tvm.quick_tvm import tirx
from tvm_ffi.structural import structural_map, structural_walk

from chameleon_networks.compile.sequence.calls import CallSequence, Tensor, bytes_of
from chameleon_networks.graph.relaxed import tvm
from chameleon_networks.graph.strides import Shape, axis_in, reshaped_strides
from chameleon_networks.runtime.pack import ALIGNMENT

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
    names: dict[Any, str] = {}
    found: dict[str, Function] = {}
    calls = []
    for call in sequence.calls:
        placements = tuple(
            _placement(tensor, given=tensor.storage in given) for tensor in call.arguments
        )
        axes = tuple((one.position, one.axis) for one in call.lookups)
        variant = call.kernel, axes, placements
        if variant not in names:
            name = call.kernel
            while name in found:
                name += "_"
            names[variant] = name
            function = with_tables(functions[call.kernel], dict(axes))
            found[name] = placed(function, placements)
        calls.append(attrs.evolve(call, symbol=names[variant]))
    return attrs.evolve(sequence, calls=tuple(calls)), found


def with_tables(function: Function, axes: Mapping[int, int]) -> Function:
    """The function with an axis of some parameters looked up, in tables that it is passed last.

    Args:
        function: its parameters are buffers.
        axes: what ``accesses.table_axis`` returned, by the parameters' positions.
    """
    if not axes:
        return function
    lookups: dict[Buffer, tuple[Any, Buffer]] = {}
    tables = []
    for position, axis in axes.items():
        parameter = function.params[position]
        table = tirx.decl_buffer([extents(parameter)[axis]], "int64", f"{parameter.name}_places")
        tables.append(table)
        for buffer, place in axis_by_buffer(function, position, axis).items():
            lookups[buffer] = place, table

    def looked_up(load: Any) -> Any:
        if load.source not in lookups:
            return load
        axis, table = lookups[load.source]
        indices = list(load.indices)
        indices[axis] = tirx.BufferLoad(table, [indices[axis]])
        return tirx.BufferLoad(load.source, indices)

    body = structural_map(function.body, (tvm.ir.expr.TensorLoad, looked_up))
    made = tirx.PrimFunc([*function.params, *tables], body, function.ret_type)
    return made.with_attrs(dict(function.attrs))


def axis_by_buffer(function: Function, position: int, axis: int) -> dict[Buffer, int | None]:
    """Where an axis of a parameter is in every shape that a function declares the parameter in.

    Args:
        function: its parameters are buffers.
        position: the parameter's.
        axis: the parameter's.
    """
    parameter = function.params[position]
    shape, shapes = extents(parameter), [parameter, *aliases(function, parameter)]
    return {buffer: axis_in(shape, axis, extents(buffer)) for buffer in shapes}


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
