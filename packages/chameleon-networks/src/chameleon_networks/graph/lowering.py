"""Operators of Relax that TVM's passes or code generators break on, written with others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from chameleon_networks.graph.constants import array_of
from chameleon_networks.graph.relaxed import relax, tvm

_MOST_FACTORS = 4
"""Largest whole power that is written as products."""


def lowered(module: Any) -> Any:
    """The module without operators that later steps cannot deal with.

    Args:
        module: an ``IRModule`` of Relax functions in normal form, as it was imported.
    """
    lowering = _Lowering(module)
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            lowering.builder_.update_func(variable, lowering.visit_expr(function))
    return relax.transform.DeadCodeElimination()(lowering.builder_.get())


@relax.expr_functor.mutator
class _Lowering(relax.PyExprMutator):
    """Replaces calls one by one."""

    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        name = str(call.op.name) if isinstance(call.op, tvm.ir.Op) else ""
        lower = _LOWERINGS.get(name)
        if lower is None or not isinstance(call.ty, relax.TensorType):
            return call
        made = lower(call, self.builder_.emit)
        return call if made is None else made


def _reshape(call: Any, _emit: Any) -> Any:
    """``ConvertLayout`` reads freed memory where an operator that drops an axis has no layout."""
    return relax.op.reshape(call.args[0], call.ty.shape)


def _comparison(call: Any, emit: Any) -> Any:
    """LLVM has no comparison of floating-point numbers that are booleans."""
    if any(str(one.ty.dtype) != "bool" for one in call.args):
        return None
    numbers = [emit(relax.op.astype(one, "int8")) for one in call.args]
    return relax.Call(call.op, numbers, call.attrs, call.ty_args)


def _full(call: Any, emit: Any) -> Any:
    """Infinity has no way into TVM's ``full``."""
    value = call.args[1]
    if not isinstance(value, tvm.ir.GenericConst):
        return None
    number = array_of(value).astype(str(call.ty.dtype))
    if np.isfinite(number).all():
        return None
    return relax.op.broadcast_to(emit(relax.const(number)), call.ty.shape)


def _take(call: Any, _emit: Any) -> Any:
    """TVM's fast mode reads what is not the array's where an index is out of range."""
    if str(call.attrs.mode) != "fast":
        return None
    axis = call.attrs.axis
    return relax.op.take(*call.args, None if axis is None else int(axis), mode="clip")


def _power(call: Any, emit: Any) -> Any:
    """A small whole power as products: ``pow`` is a call for each number, and not of integers."""
    base, exponent = call.args
    if not isinstance(exponent, tvm.ir.GenericConst) or array_of(exponent).size != 1:
        return None
    power = float(array_of(exponent).reshape(()))
    if power not in range(1, _MOST_FACTORS + 1) or list(call.ty.shape) != list(base.ty.shape):
        return None
    made = base
    for _ in range(int(power) - 1):
        made = emit(relax.op.multiply(made, base))
    return made


_COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")

_LOWERINGS: dict[str, Callable[[Any, Any], Any]] = {
    "relax.squeeze": _reshape,
    "relax.expand_dims": _reshape,
    "relax.flatten": _reshape,
    "relax.full": _full,
    "relax.take": _take,
    "relax.power": _power,
    **{f"relax.{name}": _comparison for name in _COMPARISONS},
}
"""What returns an expression to replace a call, or None where the call may stay, by operator."""
