"""Reads a static network from its lowered Relax module, as a list of kernel calls on tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
from chameleon_tvm.api import tirx
from numpy.typing import NDArray
from tvm_ffi.structural import structural_walk

from chameleon_networks._graph.constants import array_of
from chameleon_networks._graph.relax_utils import (
    bindings_of,
    relax,
    state_count,
    static_shape,
    tvm,
)
from chameleon_networks._graph.strides import Shape, dense_strides, is_dense

Expr = Any

_VIEWS = frozenset(
    f"relax.{name}" for name in ("reshape", "squeeze", "flatten", "expand_dims", "memory.view")
)


class NotStaticError(Exception):
    """A network is no sequence of kernel calls of static shapes, for the reason given."""


@attrs.frozen(kw_only=True, eq=False)
class Storage:
    """Memory that holds tensors: an input, a constant, or memory that kernels write.

    Attributes:
        size: The size in bytes.
        input: The number of the network's input that this memory holds, or None.
        constant: The value, if it is a constant. Otherwise None.
    """

    size: int
    input: int | None = None
    constant: NDArray[Any] | None = None

    @property
    def written(self) -> bool:
        """Whether kernels write this memory, so that it must be planned."""
        return self.input is None and self.constant is None


@attrs.frozen(kw_only=True)
class Tensor:
    """A tensor that fills a storage or is a strided part of it.

    Attributes:
        offset: Bytes from the start of the storage.
        shape: The extents of the axes.
        strides: The stride of each axis, in elements.
        dtype: The dtype, by TVM's name.
    """

    storage: Storage
    offset: int = 0
    shape: Shape
    strides: Shape
    dtype: str

    @classmethod
    def allocate(cls, shape: Shape, dtype: str, **of: Any) -> Tensor:
        """A dense tensor that fills a new storage."""
        storage = Storage(size=bytes_of(shape, dtype), **of)
        return cls(storage=storage, shape=shape, strides=dense_strides(shape), dtype=dtype)

    @property
    def size(self) -> int:
        """Bytes of its elements."""
        return bytes_of(self.shape, self.dtype)

    @property
    def dense(self) -> bool:
        """Whether the tensor is contiguous."""
        return is_dense(self.shape, self.strides)

    @property
    def fills_storage(self) -> bool:
        """Whether the tensor is contiguous and fills its storage."""
        return self.offset == 0 and self.dense and self.size == self.storage.size


@attrs.frozen(kw_only=True)
class ChannelGather:
    """A parameter of which a kernel reads one axis through an index table.

    Attributes:
        position: The number of the parameter.
        axis: The axis of the parameter.
        indices: For each index of the axis, the int64 index to read instead, which may lie outside
            of the tensor, but inside its storage.
    """

    position: int
    axis: int
    indices: Tensor


@attrs.frozen(kw_only=True)
class Call:
    """One call of a kernel.

    Attributes:
        kernel: The name of the kernel's function in the module.
        symbol: The name of the compiled function. A kernel may have several compiled functions.
        reads: The tensors that the kernel reads, which are its first arguments.
        writes: The tensors that the kernel writes, which are its next arguments.
        gathers: The parameters that the kernel reads through index tables, its last arguments.
    """

    kernel: str
    symbol: str = attrs.field()
    reads: tuple[Tensor, ...]
    writes: tuple[Tensor, ...]
    gathers: tuple[ChannelGather, ...] = ()

    @symbol.default
    def _symbol(self) -> str:
        return self.kernel

    @property
    def arguments(self) -> tuple[Tensor, ...]:
        """All tensors, in the order of the kernel's parameters."""
        return (*self.reads, *self.writes, *(lookup.indices for lookup in self.gathers))


@attrs.frozen(kw_only=True)
class CallSequence:
    """A network that consists of kernel calls only.

    Attributes:
        inputs: The inputs, in the order of the network's parameters.
        calls: The calls, in order.
        outputs: The tensors that the network returns.
        state: The new values of the last inputs, which a caller keeps and passes to the next call.
    """

    inputs: tuple[Tensor, ...]
    calls: tuple[Call, ...]
    outputs: tuple[Tensor, ...]
    state: tuple[Tensor, ...] = ()

    @property
    def results(self) -> tuple[Tensor, ...]:
        """The tensors that must be complete after the last call."""
        return (*self.outputs, *self.state)


def bytes_of(shape: Sequence[int], dtype: str) -> int:
    """The size of a dense tensor in bytes."""
    kind = tvm.DataType(dtype)
    return math.prod(shape) * ((int(kind.bits) * int(kind.lanes) + 7) // 8)


def read_call_sequence(module: Any) -> CallSequence:
    """Read the kernel calls of a network's function ``main``."""
    return _SequenceReader(module).read()


class _SequenceReader:
    def __init__(self, module: Any) -> None:
        self._module = module
        self._main = module["main"]
        self._known: dict[Any, Any] = {}
        """The tensor of each variable. For a tuple, a tuple of the tensors of its fields."""
        self._constants: dict[Any, Tensor] = {}
        self._calls: list[Call] = []

    def read(self) -> CallSequence:
        inputs = []
        for position, parameter in enumerate(self._main.params):
            tensor = self._fresh(parameter.ty, input=position)
            self._known[parameter] = tensor
            inputs.append(tensor)
        for binding in bindings_of(self._main):
            if not isinstance(binding, relax.VarBinding):
                raise NotStaticError("it checks types while it runs")
            self._known[binding.var] = self._value(binding.value, binding.var)
        result = self._value(self._main.body.body, None)
        outputs = result if isinstance(result, tuple) else (result,)
        if not all(isinstance(output, Tensor) for output in outputs):
            raise NotStaticError("it returns tuples inside a tuple")
        if not self._calls:
            raise NotStaticError("it calls no kernel")
        first = len(outputs) - state_count(self._main)
        return CallSequence(
            inputs=tuple(inputs),
            calls=tuple(self._calls),
            outputs=outputs[:first],
            state=outputs[first:],
        )

    def _value(self, value: Expr, variable: Any) -> Any:
        if isinstance(value, relax.Var):
            return self._known[value]
        if isinstance(value, tvm.ir.GenericConst):
            return self._constant(value)
        if isinstance(value, relax.Tuple):
            return tuple(self._value(field, None) for field in value.fields)
        if isinstance(value, relax.TupleGetItem):
            return self._value(value.tuple_value, None)[value.index]
        if isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op):
            return self._operator(value, variable)
        raise NotStaticError(f"it holds a {type(value).__name__}")

    def _operator(self, call: Any, variable: Any) -> Any:
        name = str(call.op.name)
        if name in _VIEWS:
            return self._viewed(call, variable)
        if name != "relax.call_tir" or len(call.args) != 2:  # noqa: PLR2004 - a third one: symbolic extents
            raise NotStaticError(f"it calls {name}")
        kernel = call.args[0]
        function = self._module[kernel]
        if not isinstance(function, tirx.PrimFunc):
            raise NotStaticError(f"it calls {kernel.name_hint}, which is no kernel")
        if _calls_tvm(function):
            raise NotStaticError(f"{kernel.name_hint} calls a function of TVM")
        reads = self._value(call.args[1], None)
        if not all(isinstance(read, Tensor) for read in reads):
            raise NotStaticError(f"{kernel.name_hint} is passed a tuple")
        kinds = call.ty_args[0]
        several = hasattr(kinds, "fields")
        writes = tuple(self._fresh(kind) for kind in (kinds.fields if several else [kinds]))
        self._calls.append(Call(kernel=str(kernel.name_hint), reads=reads, writes=writes))
        return writes if several else writes[0]

    def _viewed(self, call: Any, variable: Any) -> Tensor:
        source: Tensor = self._value(call.args[0], None)
        shape = _shape(variable.ty if variable is not None else call.ty)
        view = attrs.evolve(source, shape=shape, strides=dense_strides(shape))
        if view.size != source.size:
            raise NotStaticError(f"{call.op.name} changes the number of elements")
        return view

    def _constant(self, value: Any) -> Tensor:
        if value not in self._constants:
            array = np.ascontiguousarray(array_of(value))
            self._constants[value] = self._fresh(value.ty, constant=array)
        return self._constants[value]

    def _fresh(self, kind: Any, **of: Any) -> Tensor:
        return Tensor.allocate(_shape(kind), str(kind.dtype), **of)


def _calls_tvm(function: Any) -> bool:
    """Whether a kernel calls a function of TVM's run time, which delivered libraries lack."""
    operators: set[str] = set()
    structural_walk(
        function.body,
        [(tvm.ir.Call, lambda call: operators.add(str(getattr(call.op, "name", ""))))],
    )
    return any("call_packed" in operator for operator in operators)


def _shape(kind: Any) -> Shape:
    shape = static_shape(kind)
    if shape is None:
        raise NotStaticError("a shape is known only while it runs")
    return shape
