"""Constant folding in NumPy.

Relax's ``FoldConstant`` compiles a function for every operator it evaluates, which for a network
full of batch normalisations takes longer than tuning one of its layers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chameleon_networks.graph.constant_operators import BINARY, UNARY, evaluate_other
from chameleon_networks.graph.extents import extents_of
from chameleon_networks.graph.relaxed import operator_name, relax, rewritten, tvm

Array = NDArray[Any]

_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "relax.add": np.add,
    "relax.subtract": np.subtract,
    "relax.multiply": np.multiply,
    "relax.divide": np.divide,
    "relax.maximum": np.maximum,
    "relax.minimum": np.minimum,
    "relax.power": np.power,
    **BINARY,
}
_UNARY: dict[str, Callable[[Any], Any]] = {
    "relax.sqrt": np.sqrt,
    "relax.rsqrt": lambda x: 1.0 / np.sqrt(x),
    "relax.negative": np.negative,
    "relax.exp": np.exp,
    "relax.abs": np.abs,
    **UNARY,
}
_TERNARY: dict[str, Callable[[Any, Any, Any], Any]] = {
    "relax.clip": np.clip,
    "relax.where": np.where,
}
_ELEMENTWISE: dict[str, Callable[..., Any]] = {**_BINARY, **_UNARY, **_TERNARY}
"""Operators that compute each number from those at its place."""


def _leaky_relu(value: Array, call: Any) -> Array:
    return np.where(value < 0, float(call.attrs.alpha) * value, value)


_WITH_ATTRIBUTES: dict[str, Callable[[Array, Any], Array]] = {"relax.nn.leakyrelu": _leaky_relu}
"""The same of operators that get the call as well."""


_IN_NUMPY = frozenset(
    f"{kind}{bits}" for kind in ("int", "uint", "float") for bits in (8, 16, 32, 64)
)
"""Types that NumPy has as well."""


def _reshaped(value: Array, call: Any) -> Array:
    return value.reshape(extents_of(call.ty))


def _broadcast(value: Array, call: Any) -> Array:
    return np.broadcast_to(value, extents_of(call.ty))


def _permuted(value: Array, call: Any) -> Array:
    axes = call.attrs.axes
    return value.transpose(None if axes is None else [int(axis) for axis in axes])


_MOVES: dict[str, Callable[[Array, Any], Array]] = {
    "relax.reshape": _reshaped,
    "relax.expand_dims": _reshaped,
    "relax.squeeze": _reshaped,
    "relax.flatten": _reshaped,
    "relax.permute_dims": _permuted,
    "relax.broadcast_to": _broadcast,
    "relax.astype": lambda value, call: value.astype(str(call.ty.dtype)),
}


def fold_constants(module: Any) -> Any:
    """The module with every cheap operator on constants replaced by its value.

    Args:
        module: an ``IRModule`` of Relax functions.
    """
    return rewritten(module, _ConstantFolder(module))


@relax.expr_functor.mutator
class _ConstantFolder(relax.PyExprMutator):
    """Evaluates calls as it meets them; what it folded earlier is a constant to what follows."""

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self._known: dict[Any, Array] = {}
        self._constants: dict[Any, Any] = {}

    def visit_var_binding_(self, binding: Any) -> None:
        inner = isinstance(binding.var, relax.DataflowVar)
        value = self._evaluated(binding.value) if inner else None
        if value is None:
            super().visit_var_binding_(binding)
            return
        self._known[binding.var] = value

    def visit_var_(self, variable: Any) -> Any:
        return self.visit_dataflow_var_(variable)

    def visit_dataflow_var_(self, variable: Any) -> Any:
        value = self._known.get(variable)
        if value is None:
            return super().visit_dataflow_var_(variable)
        if variable not in self._constants:
            # Copied for what stays: most of what is folded is read by nothing but what is, too.
            # Without a type it would make 32 bits of integers of 64.
            self._constants[variable] = relax.const(value, str(value.dtype))
        return self._constants[variable]

    def _evaluated(self, value: Any) -> Array | None:
        found = evaluate(value, self._known) if operator_name(value) else None
        return None if found is None else np.asarray(found, str(value.ty.dtype), order="C")


def single_matrix(array: NDArray[Any]) -> NDArray[Any] | None:
    """An array as one matrix, which may be repeated for every sample; None for a batch of them.

    PyTorch writes a linear layer on permuted states of several samples as such a batch.

    Args:
        array: of two axes at least.
    """
    matrices = array.reshape(-1, *array.shape[-2:])
    return matrices[0] if (matrices == matrices[:1]).all() else None


def evaluate(call: Any, known: dict[Any, Array]) -> Array | None:
    """The value of a call whose tensor arguments are constants; None where it is not one.

    Args:
        call: a call of a Relax operator.
        known: values of variables.
    """
    name = str(call.op.name)
    of_call = {**_MOVES, **_WITH_ATTRIBUTES}.get(name)
    if name not in _ELEMENTWISE and of_call is None:
        return evaluate_other(call, lambda argument: _constant(argument, known))
    operands = []
    for argument in call.args[: None if of_call is None else 1]:
        operand = _constant(argument, known)
        if operand is None:
            return None
        operands.append(operand)
    if not operands:
        return None
    return np.asarray(
        _ELEMENTWISE[name](*operands) if of_call is None else of_call(operands[0], call)
    )


def is_elementwise(value: Any) -> bool:
    """Whether an expression is a call whose numbers ``evaluate`` computes place by place."""
    return operator_name(value) in {*_ELEMENTWISE, *_WITH_ATTRIBUTES}


def _constant(argument: Any, known: dict[Any, Array]) -> Array | None:
    if isinstance(argument, tvm.ir.GenericConst):
        return array_of(argument)
    if isinstance(argument, relax.Var):
        return known.get(argument)
    if isinstance(argument, tvm.tirx.FloatImm | tvm.tirx.IntImm):
        return np.asarray(argument.value, str(argument.ty))
    return None


def per_channel(constant: Array, *, rank: int, axis: int, channels: int) -> Array | None:
    """A constant operand as one number per channel; None where it is something else.

    Args:
        constant: what is broadcast to a tensor.
        rank: number of the tensor's axes.
        axis: of its channels.
        channels: how many there are.

    Returns:
        Shape (channels,).
    """
    shape = (1,) * (rank - constant.ndim) + constant.shape
    if shape == (1,) * rank:
        return np.full(channels, constant.reshape(()), constant.dtype)
    wanted = tuple(channels if place == axis else 1 for place in range(rank))
    return np.ascontiguousarray(constant.reshape(channels)) if shape == wanted else None


def array_of(constant: Any) -> Array:
    """A Relax constant as an array, which must not be written: its memory is the constant's."""
    if str(constant.value.dtype) not in _IN_NUMPY:
        copy: Array = constant.value.numpy()
        return copy
    value = np.from_dlpack(constant.value)
    value.flags.writeable = False
    return value
