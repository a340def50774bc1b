"""Numbers for each channel multiplied into the weights of the convolution before them.

That is what batch normalisation is at inference, and what some networks write by hand. TVM's own
pass knows 2-D convolutions without a bias alone.
"""

from __future__ import annotations

from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from chameleon_tvm.graph.constants import array_of, per_channel
from chameleon_tvm.graph.matching_convolutions import Convolution, convolution_of
from chameleon_tvm.graph.readers import readers
from chameleon_tvm.graph.relaxed import relax, tvm

_SCALES = frozenset({"relax.multiply", "relax.divide"})
_SHIFTS = frozenset({"relax.add", "relax.subtract"})


def scaled_weights(module: Any) -> Any:
    """The module with scales and shifts after convolutions made one scale and one shift.

    The scale is part of the weights; the shift is added, as a bias is.

    Args:
        module: an ``IRModule`` of Relax functions in normal form, its constants folded.
    """
    scaler = _Scaler(module)
    for variable, function in module.functions_items():
        if isinstance(function, relax.Function):
            scaler.read_by = readers(function)
            scaler.builder_.update_func(variable, scaler.visit_expr(function))
    return relax.transform.DeadCodeElimination()(scaler.builder_.get())


@attrs.frozen(kw_only=True, eq=False)
class _Scaled:
    """A convolution's output, times a scale, plus a shift; both have shape (O,)."""

    source: Convolution
    scale: NDArray[np.float64]
    shift: NDArray[np.float64]


@relax.expr_functor.mutator
class _Scaler(relax.PyExprMutator):
    """Keeps for every variable that is a scaled and shifted convolution what it is."""

    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self.read_by: dict[Any, int] = {}
        self._known: dict[Any, _Scaled] = {}

    def visit_var_binding_(self, binding: Any) -> None:
        value = binding.value
        found = convolution_of(value)
        if found is not None:
            channels = found.output_channels
            self._known[binding.var] = _Scaled(
                source=found, scale=np.ones(channels), shift=np.zeros(channels)
            )
        scaled = self._continued(value)
        if scaled is None:
            super().visit_var_binding_(binding)
            return
        self._known[binding.var] = scaled
        if (scaled.scale == 1.0).all():
            super().visit_var_binding_(binding)
            return
        out = self._emitted(scaled)
        if not isinstance(binding.var, relax.DataflowVar):
            out = self.builder_.emit_output(out)
        self.set_var_remap(binding.var, out)

    def _continued(self, call: Any) -> _Scaled | None:
        """What a call makes of a scaled convolution that nothing else reads."""
        name = str(call.op.name) if _is_operator(call) else ""
        if name not in _SCALES | _SHIFTS:
            return None
        left, right = call.args
        # A constant may come first where the order does not matter.
        if isinstance(left, tvm.ir.GenericConst) and name in {"relax.add", "relax.multiply"}:
            left, right = right, left
        known = self._known.get(left)
        if known is None or self.read_by[left] != 1 or not isinstance(right, tvm.ir.GenericConst):
            return None
        source = known.source
        numbers = per_channel(
            array_of(right),
            rank=source.rank + 2,
            axis=source.channel_axis,
            channels=source.output_channels,
        )
        if numbers is None:
            return None
        if name in _SHIFTS:
            numbers = numbers if name == "relax.add" else -numbers
            return attrs.evolve(known, shift=known.shift + numbers)
        factor = numbers if name == "relax.multiply" else 1.0 / numbers.astype(np.float64)
        return attrs.evolve(known, scale=known.scale * factor, shift=known.shift * factor)

    def _emitted(self, scaled: _Scaled) -> Any:
        source = scaled.source
        data = self.visit_expr(source.call.args[0])
        call = source.scaled(scaled.scale)
        made = relax.Call(call.op, [data, call.args[1]], call.attrs, call.ty_args)
        shape = [1] * (source.rank + 2)
        shape[source.channel_axis] = -1
        shift = relax.const(scaled.shift.reshape(shape).astype(np.float32))
        return self.builder_.emit(relax.op.add(self.builder_.emit(made), shift))


def _is_operator(value: Any) -> bool:
    return isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op)
