"""What moves numbers, computed on bfloat16 tensors rather than on what they are widened to."""

from __future__ import annotations

from typing import Any

from chameleon_tvm.graph.bfloat16_steps import ROUND, WIDEN, Bfloat16Steps, widen_bits
from chameleon_tvm.graph.relaxed import relax, tvm

_MOVES = frozenset(
    f"relax.{name}"
    for name in ("reshape", "permute_dims", "squeeze", "expand_dims", "flatten", "strided_slice")
)
"""Operators of one tensor that compare no numbers: bits are compared otherwise."""
_CONCAT = "relax.concat"


def with_bits_moved(module: Any) -> Any:
    """The module with moves of widened numbers made before they are widened.

    That is done where all that reads the result rounds it, and gets the bits that there were. Other
    moves stay where they are: one function widens and moves, and attention is known by its moves.

    Args:
        module: an ``IRModule`` of Relax functions in normal form.
    """
    mover = _Mover(module)
    variable = module.get_global_var("main")
    mover.builder_.update_func(variable, mover.visit_expr(module["main"]))
    return relax.transform.DeadCodeElimination()(mover.builder_.get())


@relax.expr_functor.mutator
class _Mover(relax.PyExprMutator):
    """Keeps for every widened variable its bits."""

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self._steps = Bfloat16Steps(module)
        self._bits: dict[Any, Any] = {}
        self._rounded = self._rounded_in(module["main"])

    def _rounded_in(self, function: Any) -> set[Any]:
        """The variables that are read to be rounded, or to be moved and then rounded."""
        found: set[Any] = set()
        other = set(relax.analysis.free_vars(function.body.body))
        bindings = [one for block in function.body.blocks for one in block.bindings]
        for binding in reversed(bindings):
            to_be_rounded = self._steps.source(binding.value, ROUND) is not None or (
                _is_move(binding.value) and binding.var in found
            )
            for variable in relax.analysis.free_vars(binding.value):
                (found if to_be_rounded else other).add(variable)
                found -= other
        return found

    def visit_dataflow_block_(self, block: Any) -> Any:
        # A block's variables cannot be read in another one.
        self._bits.clear()
        return super().visit_dataflow_block_(block)

    def visit_var_binding_(self, binding: Any) -> None:
        value = self.visit_expr(binding.value)
        inner = isinstance(binding.var, relax.DataflowVar)
        emit = self.builder_.emit if inner else self.builder_.emit_output
        rounded = self._steps.source(value, ROUND)
        if inner and rounded in self._bits:
            self.set_var_remap(binding.var, self._bits[rounded])
            return
        bits = self._steps.source(value, WIDEN)
        if bits is None:
            bits = self._moved(value) if binding.var in self._rounded else None
            value = value if bits is None else widen_bits(self.builder_, bits)
        made = emit(value)
        if bits is not None:
            self._bits[made] = bits
        self.set_var_remap(binding.var, made)

    def _moved(self, value: Any) -> Any | None:
        """The bits of moved numbers; None where they are none of bfloat16."""
        if not _is_move(value):
            return None
        if str(value.op.name) == _CONCAT:
            fields = value.args[0].fields if isinstance(value.args[0], relax.Tuple) else ()
            parts = [self._bits.get(one) for one in fields]
            if not parts or any(one is None for one in parts):
                return None
            return self.builder_.emit(relax.op.concat(parts, axis=int(value.attrs.axis)))
        bits = self._bits.get(value.args[0])
        if bits is None:
            return None
        arguments = [bits, *value.args[1:]]
        return self.builder_.emit(relax.Call(value.op, arguments, value.attrs, value.ty_args))


def _is_move(value: Any) -> bool:
    if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.Op):
        return False
    return str(value.op.name) in {*_MOVES, _CONCAT}
