"""Which constants of a quantized network stay quantized: the weights of what integers compute."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np

from chameleon_networks.graph.quantized_moves import dequantized_constant
from chameleon_networks.graph.quantized_operators import operands_of
from chameleon_networks.graph.relaxed import relax


def with_real_constants(module: Any) -> Any:
    """The module with every dequantized constant as real numbers but for weights of int8 kernels.

    What multiplies or is added to real numbers is folded, and computed in float32, as any constant.

    Args:
        module: what ``with_small_moves`` returned.
    """
    bindings = [binding for block in module["main"].body.blocks for binding in block.bindings]
    values = {binding.var: binding.value for binding in bindings}
    kept = {binding.value for binding in bindings if operands_of(binding.value, values) is not None}
    folder = _Folder(module, kept)
    variable = module.get_global_var("main")
    folder.builder_.update_func(variable, folder.visit_expr(module["main"]))
    return relax.transform.DeadCodeElimination()(folder.builder_.get())


@relax.expr_functor.mutator
class _Folder(relax.PyExprMutator):
    """Weights that something else reads as well are there in both forms."""

    def __init__(self, module: Any, kept: AbstractSet[Any]) -> None:
        super().__init__(module)
        self._kept = kept
        self._constants: dict[Any, Any] = {}

    def visit_var_binding_(self, binding: Any) -> None:
        found = dequantized_constant(binding.value)
        if found is not None and isinstance(binding.var, relax.DataflowVar):
            self._constants[binding.var] = relax.const(np.ascontiguousarray(found), "float32")
        super().visit_var_binding_(binding)

    def visit_call_(self, call: Any) -> Any:
        weights = call.args[1] if call in self._kept else None
        if weights is None:
            return super().visit_call_(call)
        data = self.visit_expr(call.args[0])
        return relax.Call(
            call.op, [data, super().visit_dataflow_var_(weights)], call.attrs, call.ty_args
        )

    def visit_var_(self, variable: Any) -> Any:
        return self.visit_dataflow_var_(variable)

    def visit_dataflow_var_(self, variable: Any) -> Any:
        constant = self._constants.get(variable)
        return super().visit_dataflow_var_(variable) if constant is None else constant
