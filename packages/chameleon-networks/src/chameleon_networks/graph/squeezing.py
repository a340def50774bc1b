"""Squeezed axes counted from the front, as TVM's change of layouts needs them.

``ConvertLayout`` takes an axis of ``squeeze`` for its place in the layout: with a negative one,
which is what torch's poolings of one spatial axis are imported with, it runs out of memory.
"""

from __future__ import annotations

from typing import Any

from chameleon_networks.graph.moves import shape_of
from chameleon_networks.graph.relaxed import relax, tvm


def with_positive_axes(module: Any) -> Any:
    """The module with no negative axis in any ``squeeze``.

    Args:
        module: an ``IRModule`` of Relax functions in normal form.
    """
    rewriter = _Rewriter(module)
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            rewriter.builder_.update_func(variable, rewriter.visit_expr(function))
    return rewriter.builder_.get()


@relax.expr_functor.mutator
class _Rewriter(relax.PyExprMutator):
    def visit_call_(self, call: Any) -> Any:
        call = super().visit_call_(call)
        if not isinstance(call.op, tvm.ir.Op) or str(call.op.name) != "relax.squeeze":
            return call
        axes = call.attrs.axis
        if axes is None or all(int(axis) >= 0 for axis in axes):
            return call
        rank = len(shape_of(call.args[0]))
        return relax.op.squeeze(call.args[0], [int(axis) % rank for axis in axes])
