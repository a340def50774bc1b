"""Layouts of networks that are quantized: TVM's change of layouts passes through their steps.

``ConvertLayout`` knows neither ``quantize`` nor ``dequantize`` and puts images back into their
framework's layout around each. While it runs, those of whole tensors are written with operators
that it knows: a change of type, and the sum with a number that names the step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from chameleon_networks.graph.layout_error import NEXT_STEP, LayoutError
from chameleon_networks.graph.quantized_steps import DEQUANTIZE, QUANTIZE, Step, is_call, step_of
from chameleon_networks.graph.relaxed import relax, tvm

_ADD, _ASTYPE = "relax.add", "relax.astype"


def with_steps_passed(module: Any, change: Callable[[Any], Any]) -> Any:
    """What a change of layouts makes of a module, with its steps in the new layouts.

    Args:
        module: an ``IRModule`` whose ``main`` is the network.
        change: ``ConvertLayout``, or what else only moves data.

    Raises:
        LayoutError: a step is not in the changed module, so that it would compute something else.
    """
    hider = _Hider(module)
    variable = module.get_global_var("main")
    hider.builder_.update_func(variable, hider.visit_expr(module["main"]))
    if not hider.steps:
        return change(module)
    changed = change(hider.builder_.get())
    shower = _Shower(changed, hider.steps)
    variable = changed.get_global_var("main")
    shower.builder_.update_func(variable, shower.visit_expr(changed["main"]))
    if shower.shown != {*hider.steps}:
        lost = len(hider.steps) - len(shower.shown)
        raise LayoutError(
            f"TVM lost {lost} of {len(hider.steps)} steps of quantization when it changed layouts",
            hint=NEXT_STEP,
        )
    return relax.transform.DeadCodeElimination()(shower.builder_.get())


@relax.expr_functor.mutator
class _Hider(relax.PyExprMutator):
    """Writes steps as sums; ``steps`` has what each number stands for."""

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self.steps: dict[Any, tuple[str, Step]] = {}
        """By the constant that is added: no other constant of the module is the same object."""

    def visit_call_(self, call: Any) -> Any:
        call = self.visit_expr_post_order(call)
        for name in (QUANTIZE, DEQUANTIZE):
            step = step_of(call, name) if is_call(call, name) else None
            if step is None or not step.whole or not isinstance(step.source, relax.Var):
                continue
            mark = relax.const(float(len(self.steps)), "float32")
            self.steps[mark] = name, step
            if name == QUANTIZE:
                return relax.op.astype(
                    self.builder_.emit(relax.op.add(step.source, mark)), step.dtype
                )
            return relax.op.add(self.builder_.emit(relax.op.astype(step.source, "float32")), mark)
        return call


@relax.expr_functor.mutator
class _Shower(relax.PyExprMutator):
    """Puts the steps back where their sums are; ``shown`` has the constants of those it found."""

    def __init__(self, module: Any, steps: dict[Any, tuple[str, Step]]) -> None:
        super().__init__(module)
        self.shown: set[Any] = set()
        self._steps = steps
        self._values: dict[Any, Any] = {}

    def visit_var_binding_(self, binding: Any) -> None:
        self._values[binding.var] = binding.value
        super().visit_var_binding_(binding)

    def visit_call_(self, call: Any) -> Any:
        before: Any = self._values.get(call.args[0]) if call.args else None
        if is_call(call, _ASTYPE):
            found = self._marked(before)
            if found is not None and found[0] == QUANTIZE:
                self.shown.add(before.args[1])
                return found[1].quantize(self.visit_expr(before.args[0]))
        found = self._marked(call)
        if found is not None and found[0] == DEQUANTIZE and is_call(before, _ASTYPE):
            self.shown.add(call.args[1])
            return found[1].dequantize(self.visit_expr(before.args[0]))
        return super().visit_call_(call)

    def _marked(self, value: Any) -> tuple[str, Step] | None:
        """The step that a sum stands for."""
        if not is_call(value, _ADD) or not isinstance(value.args[1], tvm.ir.GenericConst):
            return None
        return self._steps.get(value.args[1])
