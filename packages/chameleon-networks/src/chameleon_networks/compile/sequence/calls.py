"""A static network as a list of kernel calls on tensors, read from its lowered Relax module."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
from chameleon_tvm.quick_tvm import tirx
from numpy.typing import NDArray

from chameleon_networks.graph.constants import array_of
from chameleon_networks.graph.relaxed import known_extents, relax, tvm
from chameleon_networks.graph.strides import Shape, dense_strides, is_dense

Expr = Any

_VIEWS = frozenset(
    f"relax.{name}" for name in ("reshape", "squeeze", "flatten", "expand_dims", "memory.view")
)


class NotStatic(Exception):  # noqa: N818 - no error: the virtual machine runs such networks
    """Something in a network is no call of a kernel with known shapes; the message says what."""


@attrs.frozen(kw_only=True, eq=False)
class Storage:
    """Memory that tensors are parts of: an input, a constant, or memory that kernels write.

    Attributes:
        size: bytes.
        input: position among the network's inputs.
        constant: its value.
    """

    size: int
    input: int | None = None
    constant: NDArray[Any] | None = None

    @property
    def written(self) -> bool:
        """Whether kernels write it, so that memory has to be planned for it."""
        return self.input is None and self.constant is None


@attrs.frozen(kw_only=True)
class Tensor:
    """A part of a storage, or all of it.

    Attributes:
        storage: which it is in.
        offset: bytes from the storage's start.
        shape: extents.
        strides: elements from one index to the next, of each axis.
        dtype: TVM's name of it.
    """

    storage: Storage
    offset: int = 0
    shape: Shape
    strides: Shape
    dtype: str

    @property
    def size(self) -> int:
        """Bytes of its elements."""
        return bytes_of(self.shape, self.dtype)

    @property
    def dense(self) -> bool:
        """Whether its elements lie one after the other."""
        return is_dense(self.shape, self.strides)

    @property
    def whole(self) -> bool:
        """Whether it is its storage, element by element."""
        return self.offset == 0 and self.dense and self.size == self.storage.size


@attrs.frozen(kw_only=True)
class Lookup:
    """A parameter of which a kernel finds each index of one axis through a table.

    Attributes:
        position: the parameter's.
        axis: of the parameter.
        table: of each index of the axis the index that is read, int64 as
            addresses are; it may lie outside of the tensor, in its storage.
    """

    position: int
    axis: int
    table: Tensor


@attrs.frozen(kw_only=True)
class Call:
    """One call of a kernel.

    Attributes:
        kernel: name of the function in the module.
        symbol: name of its compiled function, of which a kernel may have several.
        reads: tensors it is passed first.
        writes: tensors it is passed after them.
        lookups: those of its reads that are looked up; it is passed their tables last.
    """

    kernel: str
    symbol: str = attrs.field()
    reads: tuple[Tensor, ...]
    writes: tuple[Tensor, ...]
    lookups: tuple[Lookup, ...] = ()

    @symbol.default
    def _symbol(self) -> str:
        return self.kernel

    @property
    def arguments(self) -> tuple[Tensor, ...]:
        """All tensors, in the kernel's order."""
        return (*self.reads, *self.writes, *(lookup.table for lookup in self.lookups))


@attrs.frozen(kw_only=True)
class CallSequence:
    """A network that is nothing but kernel calls.

    Attributes:
        inputs: in the order of the network's parameters.
        calls: in the order they are made.
        outputs: what the network returns.
    """

    inputs: tuple[Tensor, ...]
    calls: tuple[Call, ...]
    outputs: tuple[Tensor, ...]


def bytes_of(shape: Sequence[int], dtype: str) -> int:
    """Bytes of a tensor."""
    kind = tvm.DataType(dtype)
    return math.prod(shape) * ((int(kind.bits) * int(kind.lanes) + 7) // 8)


def sequence_of(module: Any) -> CallSequence:
    """The calls of a network's ``main``.

    Args:
        module: an ``IRModule`` in which every operator is a ``call_tir`` or a reshape.

    Raises:
        NotStatic: there is something else in it.
    """
    return _Reader(module).read()


class _Reader:
    def __init__(self, module: Any) -> None:
        self._module = module
        self._main = module["main"]
        self._known: dict[Any, Any] = {}
        """Each variable's tensor, or a tuple of what its fields are."""
        self._constants: dict[Any, Tensor] = {}
        self._calls: list[Call] = []

    def read(self) -> CallSequence:
        inputs = []
        for position, parameter in enumerate(self._main.params):
            tensor = self._fresh(parameter.ty, input=position)
            self._known[parameter] = tensor
            inputs.append(tensor)
        for block in self._main.body.blocks:
            for binding in block.bindings:
                if not isinstance(binding, relax.VarBinding):
                    raise NotStatic("it checks types while it runs")
                self._known[binding.var] = self._value(binding.value, binding.var)
        result = self._value(self._main.body.body, None)
        outputs = result if isinstance(result, tuple) else (result,)
        if not all(isinstance(output, Tensor) for output in outputs):
            raise NotStatic("it returns tuples inside a tuple")
        if not self._calls:
            raise NotStatic("it calls no kernel")
        return CallSequence(inputs=tuple(inputs), calls=tuple(self._calls), outputs=outputs)

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
        raise NotStatic(f"it holds a {type(value).__name__}")

    def _operator(self, call: Any, variable: Any) -> Any:
        name = str(call.op.name)
        if name in _VIEWS:
            return self._viewed(call, variable)
        if name != "relax.call_tir" or len(call.args) != 2:  # noqa: PLR2004 - symbolic extents
            raise NotStatic(f"it calls {name}")
        kernel = call.args[0]
        if not isinstance(self._module[kernel], tirx.PrimFunc):
            raise NotStatic(f"it calls {kernel.name_hint}, which is no kernel")
        reads = self._value(call.args[1], None)
        if not all(isinstance(read, Tensor) for read in reads):
            raise NotStatic(f"{kernel.name_hint} is passed a tuple")
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
            raise NotStatic(f"{call.op.name} changes the number of elements")
        return view

    def _constant(self, value: Any) -> Tensor:
        if value not in self._constants:
            array = np.ascontiguousarray(array_of(value))
            self._constants[value] = self._fresh(value.ty, constant=array)
        return self._constants[value]

    def _fresh(self, kind: Any, **of: Any) -> Tensor:
        shape, dtype = _shape(kind), str(kind.dtype)
        storage = Storage(size=bytes_of(shape, dtype), **of)
        return Tensor(storage=storage, shape=shape, strides=dense_strides(shape), dtype=dtype)


def _shape(kind: Any) -> Shape:
    shape = known_extents(kind)
    if shape is None:
        raise NotStatic("a shape is known only while it runs")
    return shape
