"""One chain of a network: an operator worth tuning with what is fused into its kernel."""

from __future__ import annotations

from typing import Any

import attrs
from chameleon_tvm.operators.specs import AttentionSpec, FusedSpec, OperatorSpec
from numpy.typing import NDArray


@attrs.frozen(kw_only=True, eq=False)
class FusedOperator:
    """One tuned kernel's place in a network.

    Attributes:
        spec: what the kernel computes; unnamed.
        inputs: expressions of the graph it reads: data, then for a batch of products the right
            side, otherwise the residual where there is one; for attention, the operator's own.
        constants: logical constants in the operator's order: weights, then the bias; of an int8
            operator weights, scale, bias and quantization, or the last alone of a batch of
            products.
        members: the variables that the kernel replaces; the last one is what it computes.
        readers: for each operand the variables of the bindings that read it for the chain, where
            these are not its first member: attention's operands are rearranged first. None where
            something else reads what an operand is rearranged to.
    """

    spec: OperatorSpec
    inputs: tuple[Any, ...]
    constants: tuple[NDArray[Any], ...] = ()
    members: tuple[Any, ...]
    readers: tuple[tuple[Any, ...], ...] | None = ()

    @property
    def operands(self) -> tuple[Any, ...]:
        """Those of the inputs that are multiplied; not what is added, a residual or a mask."""
        spec = self.spec
        if isinstance(spec, FusedSpec):
            return self.inputs[:1]
        masked = isinstance(spec, AttentionSpec) and spec.mask
        return self.inputs[:-1] if masked else self.inputs

    @property
    def last(self) -> Any:
        """The variable whose value the kernel computes."""
        return self.members[-1]
