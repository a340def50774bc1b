"""Steps to bfloat16 and back in a graph: functions from float32 to 16-bit integers, and from them.

TVM computes with a bfloat16 of its own by rules for each target; here tensors of bfloat16 are what
kernels read and write, the upper halves of float32 numbers in ``uint16``, so that nothing has to
be converted between them.
"""

from __future__ import annotations

from typing import Any

from chameleon_tvm.graph.quantised_steps import is_call
from chameleon_tvm.instructions.bfloat16 import rounding, widening
from chameleon_tvm.quick_tvm import te

ROUND, WIDEN = "round", "widen"
_STEP = "chameleon.bfloat16"
"""Attribute of the functions that are steps: which one it is."""


def round_to_bits(builder: Any, tensor: Any) -> Any:
    """The variable of a float32 tensor's nearest bfloat16 numbers, in ``uint16``.

    Args:
        builder: a ``BlockBuilder`` in a block.
        tensor: a variable.
    """
    return builder.emit(_step(builder, tensor, ROUND))


def widen_bits(builder: Any, bits: Any) -> Any:
    """The call that gives the float32 numbers of a tensor of ``round_to_bits``.

    Args:
        builder: a ``BlockBuilder`` in a block.
        bits: a variable.
    """
    return _step(builder, bits, WIDEN)


def _step(builder: Any, tensor: Any, step: str) -> Any:
    convert = rounding if step == ROUND else widening

    def made(source: te.Tensor) -> te.Tensor:
        return te.compute(source.shape, lambda *place: convert(source(*place), 1), name=step)

    return builder.call_te(
        made, tensor, primfunc_name_hint=f"{step}_bfloat16", primfunc_attrs={_STEP: step}
    )


class Bfloat16Steps:
    """Tells which expressions of a module are steps.

    Args:
        module: it.
    """

    def __init__(self, module: Any) -> None:
        found = ((one, (getattr(f, "attrs", None) or {})) for one, f in module.functions_items())
        self._steps = {
            variable.name_hint: str(attributes[_STEP])
            for variable, attributes in found
            if _STEP in attributes
        }

    def source(self, value: Any, step: str) -> Any | None:
        """What a step converts; None where an expression is not this step.

        Args:
            value: any expression, or None.
            step: ``ROUND`` or ``WIDEN``.
        """
        if not self._steps or not is_call(value, "relax.call_tir"):
            return None
        if self._steps.get(value.args[0].name_hint) != step:
            return None
        [source] = value.args[1].fields
        return source
