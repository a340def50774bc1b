"""Products of tensors that are quantized with parameters the network computes (dynamically).

A kernel knows its data's zero point when it is compiled. Of another one it can be told afterwards:
``sum((x - z) * w) = sum((x - c) * w) - (z - c) * sum(w)``, where the last sum is a constant.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from chameleon_networks.graph.constants import array_of
from chameleon_networks.graph.moves import shape_of
from chameleon_networks.graph.relaxed import relax, tvm
from chameleon_networks.graph.steps import DECODE, Step, is_call, step_of

_CENTRE = 128
"""The zero point that kernels are compiled with, in the middle of uint8: sums are small with it,
and so is what float32 rounds of them. It is also what int8 is less than uint8."""


def with_known_zero_points(module: Any) -> Any:
    """The module with matrix products of integers whose zero points are constants.

    Args:
        module: an ``IRModule`` whose ``main`` is a quantized network.
    """
    rewriter = _Rewriter(module)
    variable = module.get_global_var("main")
    rewriter.builder_.update_func(variable, rewriter.visit_expr(module["main"]))
    return relax.transform.DeadCodeElimination()(rewriter.builder_.get())


@relax.expr_functor.mutator
class _Rewriter(relax.PyExprMutator):
    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        if not is_call(call, "relax.matmul"):
            return call
        data, weights = (self._value(one) for one in call.args)
        known = step_of(weights, DECODE)
        if known is None or not is_call(data, DECODE) or not _is_computed(data):
            return call
        if not isinstance(known.source, tvm.ir.GenericConst) or not _is_matrix(known):
            return call
        return self._centred(call, data, known)

    def _value(self, variable: Any) -> Any:
        return self.lookup_binding(variable) if isinstance(variable, relax.Var) else None

    def _centred(self, call: Any, data: Any, weights: Step) -> Any:
        emit, op = self.builder_.emit, relax.op
        numbers, scale, zero = data.args
        centre = relax.const(_CENTRE, "int32")
        if str(numbers.ty.dtype) == "int8":
            wide = emit(op.astype(numbers, "int32"))
            numbers = emit(op.astype(emit(op.add(wide, centre)), "uint8"))
            zero = emit(op.add(emit(op.astype(zero, "int32")), centre))
        sums = weights.real(array_of(weights.source)).astype(np.float64).sum(axis=-2)
        centred = emit(op.dequantize(numbers, relax.const(1.0), centre))
        made = emit(relax.Call(call.op, [centred, call.args[1]], call.attrs, call.ty_args))
        apart = emit(op.reshape(emit(op.astype(zero, "float32")), []))
        apart = emit(op.subtract(apart, relax.const(float(_CENTRE))))
        shift = emit(op.multiply(apart, relax.const(sums.astype(np.float32))))
        made = emit(op.subtract(made, shift))
        return op.multiply(made, emit(op.reshape(scale, [])))


def _is_computed(call: Any) -> bool:
    """Whether 8-bit numbers are dequantized with one zero point that is no constant."""
    numbers, scale, zero = call.args
    return (
        str(numbers.ty.dtype) in {"int8", "uint8"}
        and str(call.ty.dtype) == "float32"
        and not isinstance(zero, tvm.ir.GenericConst)
        and all(np.prod(shape_of(one)) == 1 for one in (scale, zero))
    )


def _is_matrix(weights: Step) -> bool:
    """Whether weights are one matrix, with one scale or one for each column."""
    *_, axis = range(len(shape_of(weights.source)))
    return axis == 1 and (weights.whole or weights.axis == axis)
