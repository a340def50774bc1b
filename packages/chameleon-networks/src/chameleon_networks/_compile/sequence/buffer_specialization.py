"""Specializes kernels for the strides and alignments of their arguments.

TVM's kernels assume dense tensors at multiples of 64 bytes.
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
from chameleon_networks._graph.relax_utils import tvm
from chameleon_networks._graph.strides import Shape, axis_in, reshaped_strides

Function = Any
Buffer = Any


@attrs.frozen(kw_only=True)
class BufferLayout:
    """The strides and the alignment of a tensor that a kernel is called with.

    Attributes:
        strides: The strides in elements. None if there are no gaps.
        alignment: The alignment of the first element, in bytes.
    """

    strides: Shape | None = None
    alignment: int = ALIGNMENT


def specialize_buffers(
    sequence: CallSequence, functions: Mapping[str, Function]
) -> tuple[CallSequence, dict[str, Function]]:
    """Specialize each kernel for each combination of layouts that it is called with."""
    # Callers allocate inputs and outputs.
    external = {tensor.storage for tensor in (*sequence.inputs, *sequence.outputs)}
    names: dict[Any, str] = {}
    variants: dict[str, Function] = {}
    calls = []
    for call in sequence.calls:
        layouts = tuple(_layout_of(t, external=t.storage in external) for t in call.arguments)
        axes = tuple((gather.position, gather.axis) for gather in call.gathers)
        variant = call.kernel, axes, layouts
        if variant not in names:
            name = call.kernel
            while name in variants:
                name += "_"
            names[variant] = name
            function = with_gather_indices(functions[call.kernel], dict(axes))
            variants[name] = specialize(function, layouts)
        calls.append(attrs.evolve(call, symbol=names[variant]))
    return attrs.evolve(sequence, calls=tuple(calls)), variants


def with_gather_indices(function: Function, axes: Mapping[int, int]) -> Function:
    """Let a kernel read axes through index tables, which become its last parameters."""
    if not axes:
        return function
    gathers: dict[Buffer, tuple[Any, Buffer]] = {}
    index_tables = []
    for position, axis in axes.items():
        parameter = function.params[position]
        index_table = tirx.decl_buffer(
            [buffer_shape(parameter)[axis]], "int64", f"{parameter.name}_places"
        )
        index_tables.append(index_table)
        for buffer, dimension in axis_by_buffer(function, position, axis).items():
            gathers[buffer] = dimension, index_table

    def gather_index(load: Any) -> Any:
        if load.source not in gathers:
            return load
        axis, index_table = gathers[load.source]
        indices = list(load.indices)
        indices[axis] = tirx.BufferLoad(index_table, [indices[axis]])
        return tirx.BufferLoad(load.source, indices)

    body = structural_map(function.body, (tvm.ir.expr.TensorLoad, gather_index))
    reader = tirx.PrimFunc([*function.params, *index_tables], body, function.ret_type)
    return reader.with_attrs(dict(function.attrs))


def axis_by_buffer(function: Function, position: int, axis: int) -> dict[Buffer, int | None]:
    """A parameter's axis in each aliasing buffer, None if a reshape splits or merges it."""
    parameter = function.params[position]
    shape, shapes = buffer_shape(parameter), [parameter, *aliases(function, parameter)]
    return {buffer: axis_in(shape, axis, buffer_shape(buffer)) for buffer in shapes}


def specialize(function: Function, layouts: Sequence[BufferLayout]) -> Function:
    """Change the strides and alignments that a function assumes for its parameters."""
    new: dict[Buffer, Buffer] = {}
    for parameter, layout in zip(function.params, layouts, strict=True):
        if layout == BufferLayout():
            continue
        new[parameter] = _buffer(parameter, layout)
        for alias in aliases(function, parameter):
            strides = layout.strides
            if strides is not None:
                strides = reshaped_strides(buffer_shape(parameter), strides, buffer_shape(alias))
                if strides is None:
                    raise ValueError(f"{parameter.name} is read in another shape than it has")
            new[alias] = _buffer(alias, attrs.evolve(layout, strides=strides))
    if not new:
        return function
    return structural_map(function, (tvm.ir.Var, lambda buffer: new.get(buffer, buffer)))


def aliases(function: Function, parameter: Buffer) -> list[Buffer]:
    """The buffers by which a function declares a parameter again in other shapes."""
    declared: list[Any] = []
    structural_walk(function, (tirx.DeclBuffer, declared.append), order="pre")
    buffers = [parameter]
    for view in declared:
        if isinstance(view.data, tvm.ir.Call) and any(
            source.same_as(known) for source in view.data.args for known in buffers
        ):
            buffers.append(view.buffer)
    return buffers[1:]


def buffer_shape(buffer: Buffer) -> Shape:
    """A buffer's shape."""
    return tuple(int(extent) for extent in buffer.ty.shape)


def _layout_of(tensor: Tensor, *, external: bool) -> BufferLayout:
    element = bytes_of((1,), tensor.dtype)
    alignment = element if external else math.gcd(tensor.offset, ALIGNMENT)
    return BufferLayout(strides=None if tensor.dense else tensor.strides, alignment=alignment)


def _buffer(buffer: Buffer, layout: BufferLayout) -> Buffer:
    strides = list(buffer.ty.strides)
    if layout.strides is not None:
        kind = str(buffer.ty.shape[0].ty.dtype)
        strides = [tirx.IntImm(kind, stride) for stride in layout.strides]
    return tirx.decl_buffer(
        buffer.ty.shape,
        str(buffer.ty.dtype),
        str(buffer.name),
        strides=strides,
        elem_offset=buffer.ty.elem_offset,
        offset_factor=int(buffer.ty.offset_factor),
        data_alignment=layout.alignment,
        scope=str(buffer.ty.storage_scope),
    )
