"""What moves or selects numbers, computed on quantized ones; and one type of them, uint8.

``dequantize`` commutes with whatever only moves or selects: where a network dequantizes, pools by
the maximum and quantizes again with equal parameters, the numbers are those that were there before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import numpy as np

from chameleon_networks.graph.constants import array_of, evaluate
from chameleon_networks.graph.moves import axes_of, shape_of
from chameleon_networks.graph.quantized_steps import DEQUANTIZE, QUANTIZE, Step, is_call, step_of
from chameleon_networks.graph.relaxed import relax, tvm
from chameleon_networks.graph.strides import axis_in

_SHIFT = 128
"""What is added to int8 to make uint8 of it."""
_MOVES = frozenset(
    f"relax.{name}"
    for name in (
        *("reshape", "permute_dims", "strided_slice", "broadcast_to"),
        *("nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d"),
    )
)
"""Operators of one tensor whose every result is one of its numbers."""
_BOUNDS = frozenset({"relax.maximum", "relax.minimum"})


def with_small_moves(module: Any) -> Any:
    """The module with moves and selections of dequantized numbers made before ``dequantize``.

    A ``quantize`` behind a ``dequantize`` of equal parameters vanishes, moves of dequantized
    constants are computed, and quantized int8 becomes uint8, which is what kernels read.

    Args:
        module: an ``IRModule`` of Relax functions in normal form.
    """
    mover = _Mover(module)
    variable = module.get_global_var("main")
    mover.builder_.update_func(variable, mover.visit_expr(module["main"]))
    return relax.transform.DeadCodeElimination()(mover.builder_.get())


@relax.expr_functor.mutator
class _Mover(relax.PyExprMutator):
    """Keeps for every variable that is dequantized what it is made of."""

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self._made: dict[Any, Step] = {}
        """For dequantized variables their steps."""
        self._unsigned: dict[Any, Any] = {}
        """For variables of int8 the same numbers in uint8, with 128 added."""
        self._quantized_steps: dict[Any, list[tuple[Step, Any]]] = {}
        """For variables what they were quantized to."""
        self._clipped: dict[Any, tuple[Step, Any, Any]] = {}
        """For what was clipped the step before, and the bounds."""
        self._padded: dict[Any, Step] = {}
        """For what was padded with zeros the step before: it is among what that step gives, too."""
        self._real: dict[Any, Any] = {}
        """For what was quantized of those the variable before."""
        self._rewrites: dict[str, Callable[[Any], Any | None]] = {
            **dict.fromkeys(_MOVES, self._moved),
            **dict.fromkeys(_BOUNDS, self._limited),
            "relax.concat": self._concatenated,
            "relax.nn.relu": self._positive,
            "relax.clip": self._clip,
            "relax.nn.pad": self._pad,
        }

    def visit_dataflow_block_(self, block: Any) -> Any:
        # A block's variables cannot be read in another one.
        self._made.clear()
        self._unsigned.clear()
        self._quantized_steps.clear()
        self._clipped.clear()
        self._padded.clear()
        self._real.clear()
        return super().visit_dataflow_block_(block)

    def visit_var_binding_(self, binding: Any) -> None:
        value = self.visit_expr(binding.value)
        made = self._rewritten(value)
        inner = isinstance(binding.var, relax.DataflowVar)
        if made is None:
            made = self.builder_.emit(value) if inner else self.builder_.emit_output(value)
        elif not inner:
            made = self.builder_.emit_output(made)
        self.set_var_remap(binding.var, made)

    def _rewritten(self, value: Any) -> Any | None:
        """The variable of a value that was computed otherwise; None where it is to stay."""
        if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.Op):
            return None
        name = str(value.op.name)
        rewrite = self._rewrites.get(name)
        if name not in {QUANTIZE, DEQUANTIZE}:
            return None if rewrite is None else rewrite(value)
        step = step_of(value, name)
        if step is None or not (step.scale > 0).all():
            return None  # such a scale keeps no order
        return self._quantized(step) if name == QUANTIZE else self._dequantized(step)

    # -- steps ------------------------------------------------------------------------------

    def _dequantized(self, step: Step) -> Any:
        source = step.source
        if step.dtype == "int8" and step.whole and isinstance(source, relax.Var):
            step = attrs.evolve(
                step,
                source=self._in_uint8(source),
                zero_point=step.zero_point + _SHIFT,
                dtype="uint8",
            )
        padded = self._real.get(step.source)
        if padded is not None and self._padded[padded].same(step):
            return padded
        made = self.builder_.emit(step.dequantize(step.source))
        self._made[made] = step
        return made

    def _quantized(self, step: Step) -> Any:
        for earlier, made in self._quantized_steps.get(step.source, ()):
            if earlier.same(step):
                return made
        made = self._quantized_anew(step)
        self._quantized_steps.setdefault(step.source, []).append((step, made))
        return made

    def _quantized_anew(self, step: Step) -> Any:
        if isinstance(step.source, tvm.ir.GenericConst):
            return self.builder_.emit(relax.const(step.quantized(array_of(step.source))))
        if step.dtype == "int8" and step.whole:
            shifted = attrs.evolve(step, zero_point=step.zero_point + _SHIFT, dtype="uint8")
            unsigned = self._quantized(shifted)
            signed = self.builder_.emit(_in_int8(self.builder_.emit, unsigned))
            self._unsigned[signed] = unsigned
            return signed
        if step.source in self._clipped:
            before, low, high = self._clipped[step.source]
            if before.same(step):
                # Rounding never changes an order, so that the bounds may be rounded instead.
                bounds = step.quantized(np.array([low, high], np.float32))
                return self._between(before.source, *bounds)
        known = self._made.get(step.source)
        if known is not None and known.same(step) and isinstance(known.source, relax.Var):
            return known.source
        made = self.builder_.emit(step.quantize(step.source))
        if step.source in self._padded:
            self._real[made] = step.source
        return made

    def _in_uint8(self, source: Any) -> Any:
        """A variable of int8 with 128 added, in uint8."""
        known = self._unsigned.get(source)
        if known is None:
            emit = self.builder_.emit
            wide = emit(relax.op.astype(source, "int32"))
            shifted = emit(relax.op.add(wide, relax.const(_SHIFT, "int32")))
            known = self._unsigned[source] = emit(relax.op.astype(shifted, "uint8"))
        return known

    # -- moves ------------------------------------------------------------------------------

    def _moved(self, call: Any) -> Any | None:
        source, *others = call.args
        signed = self._unsigned.get(source)
        if signed is not None:
            return self._signed(relax.Call(call.op, [signed, *others], call.attrs, call.ty_args))
        step = self._made.get(source)
        axis = None if step is None else _axis_after(call, step)
        if step is None or axis is None:
            return None
        moved = relax.Call(call.op, [step.source, *others], call.attrs, call.ty_args)
        if isinstance(step.source, tvm.ir.GenericConst):
            moved = self.builder_.normalize(moved)
            array = evaluate(moved, {})
            if array is None:
                return None
            constant = np.ascontiguousarray(array)
            return self._dequantized(
                attrs.evolve(step, source=relax.const(constant, step.dtype), axis=axis)
            )
        if not step.whole:
            return None
        return self._dequantized(attrs.evolve(step, source=self.builder_.emit(moved)))

    def _concatenated(self, call: Any) -> Any | None:
        fields = call.args[0].fields if isinstance(call.args[0], relax.Tuple) else ()
        axis = int(call.attrs.axis)
        if fields and all(field in self._unsigned for field in fields):
            parts = [self._unsigned[field] for field in fields]
            return self._signed(relax.op.concat(parts, axis=axis))
        steps = [self._made.get(field) for field in fields]
        first = steps[0] if steps else None
        if first is None or not all(_alike(first, one) for one in steps):
            return None
        parts = [step.source for step in steps if step is not None]
        made = self.builder_.emit(relax.op.concat(parts, axis=axis))
        return self._dequantized(attrs.evolve(first, source=made))

    def _limited(self, call: Any) -> Any | None:
        """A bound of quantized numbers, as torch has of fewer than their type has."""
        unsigned, bound = self._unsigned.get(call.args[0]), call.args[1]
        if unsigned is None or not isinstance(bound, tvm.ir.GenericConst):
            return None
        shifted = relax.const((array_of(bound).astype(np.int32) + _SHIFT).astype(np.uint8))
        return self._signed(relax.Call(call.op, [unsigned, shifted], call.attrs, call.ty_args))

    def _positive(self, call: Any) -> Any | None:
        """A ReLU of quantized numbers."""
        step = self._made.get(call.args[0])
        if step is None or not _is_computed(step):
            return None
        bounded = self._between(step.source, step.zero_point[0], None)
        return self._dequantized(attrs.evolve(step, source=bounded))

    def _clip(self, call: Any) -> Any | None:
        """Other bounds, of which it is noted what they are: those of the type may be nearer."""
        step = self._made.get(call.args[0])
        if step is None or not _is_computed(step):
            return None
        made = self.builder_.emit(call)
        low, high = (float(one.value) for one in call.args[1:])
        self._clipped[made] = step, low, high
        return made

    def _pad(self, call: Any) -> Any | None:
        """Padding with zeros, which may become part of a convolution."""
        step = self._made.get(call.args[0])
        constant = str(call.attrs.pad_mode) == "constant" and float(call.attrs.pad_value) == 0.0
        if step is None or not step.whole or not constant:
            return None
        made = self.builder_.emit(call)
        self._padded[made] = step
        return made

    def _between(self, numbers: Any, low: Any, high: Any) -> Any:
        """Quantized numbers between bounds, as far as these are not those of their type."""
        dtype = str(numbers.ty.dtype)
        limits = np.iinfo(dtype)
        if int(low) > limits.min:
            bound = relax.const(min(int(low), limits.max), dtype)
            numbers = self.builder_.emit(relax.op.maximum(numbers, bound))
        if high is not None and int(high) < limits.max:
            numbers = self.builder_.emit(relax.op.minimum(numbers, relax.const(int(high), dtype)))
        return numbers

    def _signed(self, call: Any) -> Any:
        """Moved numbers of int8, which are moved in uint8."""
        unsigned = self.builder_.emit(call)
        signed = self.builder_.emit(_in_int8(self.builder_.emit, unsigned))
        self._unsigned[signed] = unsigned
        return signed


def _in_int8(emit: Any, unsigned: Any) -> Any:
    wide = emit(relax.op.astype(unsigned, "int32"))
    return relax.op.astype(emit(relax.op.subtract(wide, relax.const(_SHIFT, "int32"))), "int8")


def _is_computed(step: Step) -> bool:
    return step.whole and isinstance(step.source, relax.Var)


def _alike(first: Step, other: Step | None) -> bool:
    return other is not None and first.same(other) and isinstance(other.source, relax.Var)


def _axis_after(call: Any, step: Step) -> int | None:
    """The axis of a step's parameters behind a move; None where they cannot follow it."""
    if step.whole:
        return 0
    before = shape_of(step.source)
    if is_call(call, "relax.permute_dims"):
        return axes_of(call).index(step.axis)
    if is_call(call, "relax.reshape"):
        after = shape_of(call)
        found = axis_in(before, step.axis, after)
        return found if found is not None and after[found] == len(step.scale) else None
    return None


def dequantized_constant(value: Any) -> np.ndarray[Any, Any] | None:
    """What a dequantized constant stands for; None for another expression."""
    step = step_of(value, DEQUANTIZE)
    if step is None or not isinstance(step.source, tvm.ir.GenericConst):
        return None
    return step.real(array_of(step.source))
