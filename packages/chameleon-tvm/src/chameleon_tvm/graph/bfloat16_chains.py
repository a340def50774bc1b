"""Chains of bfloat16: what is widened, multiplied by weights of bfloat16, and rounded again.

Sums, bias, residual and activation are float32, and what a kernel writes is rounded once. Its
output is of bfloat16 always: chains whose result is also read before it is rounded stay in float32.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
from chameleon_core.errors import ConfigError

from chameleon_tvm.graph.bfloat16_steps import ROUND, WIDEN, Bfloat16Steps
from chameleon_tvm.graph.quantised_steps import is_call
from chameleon_tvm.graph.relaxed import relax
from chameleon_tvm.instructions.bfloat16 import rounded
from chameleon_tvm.operators.bfloat16 import real
from chameleon_tvm.operators.spec import BFLOAT16
from chameleon_tvm.operators.specs import ConvolutionSpec, DenseSpec

if TYPE_CHECKING:
    from chameleon_tvm.graph.chains import Chain


def in_bfloat16(
    chain: Chain,
    steps: Bfloat16Steps,
    values: Mapping[Any, Any],
    users: Mapping[Any, Sequence[Any]],
) -> Chain:
    """A chain of float32 as one of bfloat16 where it is one, else as it is.

    Args:
        chain: with all that follows the product but what rounds it.
        steps: those of the module.
        values: of all variables.
        users: the bindings that read each variable; None among them for the function's result.
    """
    spec = chain.spec
    if not isinstance(spec, ConvolutionSpec | DenseSpec):
        return chain
    inputs = tuple(steps.source(values.get(one), WIDEN) for one in chain.inputs)
    if not all(isinstance(one, relax.Var) for one in inputs):
        return chain
    weights = chain.constants[0]
    if not np.array_equal(real(rounded(weights)), weights):
        return chain
    passed = _rounded_after(chain.last, steps, users)
    if passed is None:
        return chain
    try:
        narrow = attrs.evolve(spec, dtype=BFLOAT16)
    except ConfigError:
        return chain
    return attrs.evolve(chain, spec=narrow, inputs=inputs, members=(*chain.members, *passed))


def _rounded_after(
    variable: Any, steps: Bfloat16Steps, users: Mapping[Any, Sequence[Any]]
) -> tuple[Any, ...] | None:
    """The variables up to the rounding that alone reads a variable; None where others do."""
    passed: list[Any] = []
    while True:
        reading = users[variable]
        if len(reading) != 1 or reading[0] is None:
            return None
        value, variable = reading[0].value, reading[0].var
        passed.append(variable)
        if steps.source(value, ROUND) is not None:
            return tuple(passed)
        if not is_call(value, "relax.reshape"):
            return None
