"""Chains of bfloat16 and float16: what is widened, multiplied, and perhaps rounded again.

Sums, bias, residual and activation are float32, and what a kernel writes is rounded once, where all
that reads it rounds it; else it is float32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from chameleon_core.errors import ConfigError
from chameleon_tvm.instructions.halves import half_in
from chameleon_tvm.operators.specs import FusedSpec, TypedSpec

from chameleon_networks.graph.fused_operators import FusedOperator
from chameleon_networks.graph.half_steps import ROUND, WIDEN, HalfSteps
from chameleon_networks.graph.quantized_steps import is_call
from chameleon_networks.graph.relaxed import relax


def to_half_precision(
    chain: FusedOperator,
    steps: HalfSteps,
    values: Mapping[Any, Any],
    users: Mapping[Any, Sequence[Any]],
) -> FusedOperator:
    """A chain of float32 as one of a type of two bytes where it is one, else as it is.

    Args:
        chain: with all that follows the product but what rounds it.
        steps: those of the module.
        values: of all variables.
        users: the bindings that read each variable; None among them for the function's result.
    """
    spec = chain.spec
    if not isinstance(spec, TypedSpec):
        return chain
    sources = [steps.source(values.get(one), WIDEN) for one in chain.operands]
    operands = [one for one in sources if isinstance(one, relax.Var)]
    held = {str(one.ty.dtype) for one in operands}
    if not operands or len(operands) < len(sources):
        return chain
    half = half_in(held.pop())
    if half is None or held:
        return chain
    for weights in chain.constants[:1]:
        if not np.array_equal(half.widened(half.rounded(weights)), weights):
            return chain
    rest = chain.inputs[len(operands) :]
    passed = _rounded_after(chain.last, steps, users, half.held)
    if isinstance(spec, FusedSpec) and spec.residual and passed:
        # A residual has the type of the output.
        [residual] = (steps.source(values.get(one), WIDEN) for one in rest)
        if isinstance(residual, relax.Var) and str(residual.ty.dtype) == half.held:
            rest = (residual,)
        else:
            passed = ()
    written = half.name if passed else "float32"
    try:
        narrow = attrs.evolve(spec, dtype=half.name, output_dtype=written)
    except ConfigError:
        return chain
    return attrs.evolve(
        chain, spec=narrow, inputs=(*operands, *rest), members=(*chain.members, *passed)
    )


def _rounded_after(
    variable: Any, steps: HalfSteps, users: Mapping[Any, Sequence[Any]], held: str
) -> tuple[Any, ...]:
    """The variables up to the rounding that alone reads a variable; none where others do."""
    passed: list[Any] = []
    while True:
        reading = users[variable]
        if len(reading) != 1 or reading[0] is None:
            return ()
        value, variable = reading[0].value, reading[0].var
        passed.append(variable)
        if steps.source(value, ROUND) is not None:
            return tuple(passed) if str(variable.ty.dtype) == held else ()
        if not is_call(value, "relax.reshape"):
            return ()
