"""Adapts kernels to the places of their tensors in memory: strides and alignment.

TVM's kernels assume tensors without gaps at multiples of 64 bytes. But tensors that callers pass to
a network are only aligned to their elements. A part of a larger tensor has the strides of
the larger tensor.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
from chameleon_tvm.api import tirx
from tvm_ffi.structural import structural_map, structural_walk

from chameleon_networks._c_runtime.pack import ALIGNMENT
from chameleon_networks._compile.sequence.calls import CallSequence, Tensor, bytes_of
from chameleon_networks._graph.relaxed import tvm
from chameleon_networks._graph.strides import Shape, axis_in, reshaped_strides

Function = Any
Buffer = Any


@attrs.frozen(kw_only=True)
class Placement:
    """The strides and the alignment of a tensor that a kernel is called with.

    Attributes:
        strides: The strides in elements. None if there are no gaps.
        alignment: The alignment of the first element, in bytes.
    """

    strides: Shape | None = None
    alignment: int = ALIGNMENT


def with_variants(
    sequence: CallSequence, functions: Mapping[str, Function]
) -> tuple[CallSequence, dict[str, Function]]:
    """Adapt kernels to the strides and alignments of the tensors that they are called with.

    If a kernel is called with several combinations, it becomes a separate function for each.

    Args:
        sequence: The calls.
        functions: The kernels, by name. They expect that each tensor has no gaps between its
            elements, and begins at a multiple of ``ALIGNMENT`` bytes.

    Returns:
        The calls, whose symbols are the names of the new functions, and the new functions.
    """
    # Callers allocate inputs and outputs.
    passed = {tensor.storage for tensor in (*sequence.inputs, *sequence.outputs)}
    names: dict[Any, str] = {}
    variants: dict[str, Function] = {}
    calls = []
    for call in sequence.calls:
        placements = tuple(
            _placement(tensor, passed=tensor.storage in passed) for tensor in call.arguments
        )
        axes = tuple((lookup.position, lookup.axis) for lookup in call.lookups)
        variant = call.kernel, axes, placements
        if variant not in names:
            name = call.kernel
            while name in variants:
                name += "_"
            names[variant] = name
            function = with_tables(functions[call.kernel], dict(axes))
            variants[name] = placed(function, placements)
        calls.append(attrs.evolve(call, symbol=names[variant]))
    return attrs.evolve(sequence, calls=tuple(calls)), variants


def with_tables(function: Function, axes: Mapping[int, int]) -> Function:
    """Let a kernel look up the indices of some of its parameters' axes in tables.

    The tables become additional parameters at the end.

    Args:
        function: A function whose parameters are buffers.
        axes: For each such parameter, the number of the axis (the result of
            ``accesses.table_axis``), by the number of the parameter.
    """
    if not axes:
        return function
    lookups: dict[Buffer, tuple[Any, Buffer]] = {}
    tables = []
    for position, axis in axes.items():
        parameter = function.params[position]
        table = tirx.decl_buffer([extents(parameter)[axis]], "int64", f"{parameter.name}_places")
        tables.append(table)
        for buffer, dimension in axis_by_buffer(function, position, axis).items():
            lookups[buffer] = dimension, table

    def looked_up(load: Any) -> Any:
        if load.source not in lookups:
            return load
        axis, table = lookups[load.source]
        indices = list(load.indices)
        indices[axis] = tirx.BufferLoad(table, [indices[axis]])
        return tirx.BufferLoad(load.source, indices)

    body = structural_map(function.body, (tvm.ir.expr.TensorLoad, looked_up))
    reader = tirx.PrimFunc([*function.params, *tables], body, function.ret_type)
    return reader.with_attrs(dict(function.attrs))


def axis_by_buffer(function: Function, position: int, axis: int) -> dict[Buffer, int | None]:
    """Find an axis of a parameter in all buffers by which a function accesses the parameter.

    A function may declare further buffers for the memory of a parameter, with reshaped shapes.

    Args:
        function: A function whose parameters are buffers.
        position: The number of the parameter.
        axis: The axis of the parameter.

    Returns:
        For each buffer, the number of the same axis in its shape. None if the buffer's shape splits
        the axis or merges it with another one.
    """
    parameter = function.params[position]
    shape, shapes = extents(parameter), [parameter, *aliases(function, parameter)]
    return {buffer: axis_in(shape, axis, extents(buffer)) for buffer in shapes}


def placed(function: Function, placements: Sequence[Placement]) -> Function:
    """Change the strides and alignments that a function assumes for its parameters.

    Args:
        function: A function whose parameters are buffers. It may declare them again in other
            shapes.
        placements: One placement for each parameter.

    Raises:
        ValueError: A parameter is declared again in a shape that cannot have the strides.
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
    return structural_map(function, (tvm.ir.Var, lambda buffer: new.get(buffer, buffer)))


def aliases(function: Function, parameter: Buffer) -> list[Buffer]:
    """The buffers with which a function declares one of its parameters again in other shapes.

    Args:
        function: A function whose parameters are buffers.
        parameter: The buffer of the parameter.
    """
    declared: list[Any] = []
    structural_walk(function, (tirx.DeclBuffer, declared.append), order="pre")
    buffers = [parameter]
    for view in declared:
        if isinstance(view.data, tvm.ir.Call) and any(
            source.same_as(known) for source in view.data.args for known in buffers
        ):
            buffers.append(view.buffer)
    return buffers[1:]


def extents(buffer: Buffer) -> Shape:
    """A buffer's shape."""
    return tuple(int(extent) for extent in buffer.ty.shape)


def _placement(tensor: Tensor, *, passed: bool) -> Placement:
    element = bytes_of((1,), tensor.dtype)
    alignment = element if passed else math.gcd(tensor.offset, ALIGNMENT)
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
