"""Steps to types of two bytes and back in a graph: functions from float32 and to it.

TVM computes with a bfloat16 of its own by rules for each target; here tensors of bfloat16 are what
kernels read and write, the upper halves of float32 numbers in ``uint16``, so that nothing has to
be converted between them. Those of float16 have that type.
"""

from __future__ import annotations

from typing import Any

from chameleon_tvm.instructions.conversions import rounding, widening
from chameleon_tvm.quick_tvm import te
from chameleon_tvm.types import FLOATING_IN, StorageType

from chameleon_networks.graph.quantized_steps import is_call

ROUND, WIDEN = "round", "widen"
_STEP = "chameleon.half"
"""Attribute of the functions that are steps: which one it is."""


def round_to(builder: Any, tensor: Any, half: StorageType) -> Any:
    """The variable of a float32 tensor's nearest numbers of a type, as buffers hold them.

    Args:
        builder: a ``BlockBuilder`` in a block.
        tensor: a variable.
        half: the type.
    """
    return builder.emit(_step(builder, tensor, half, ROUND))


def widen(builder: Any, tensor: Any) -> Any:
    """The call that gives the float32 numbers of a tensor of ``round_to``.

    Args:
        builder: a ``BlockBuilder`` in a block.
        tensor: a variable.
    """
    return _step(builder, tensor, FLOATING_IN[str(tensor.ty.dtype)], WIDEN)


def _step(builder: Any, tensor: Any, half: StorageType, step: str) -> Any:
    convert = rounding if step == ROUND else widening

    def made(source: te.Tensor) -> te.Tensor:
        return te.compute(source.shape, lambda *place: convert(half, source(*place)), name=step)

    return builder.call_te(
        made, tensor, primfunc_name_hint=f"{step}_{half.name}", primfunc_attrs={_STEP: step}
    )


class HalfSteps:
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
