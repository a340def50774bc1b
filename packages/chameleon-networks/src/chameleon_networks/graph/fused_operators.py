"""A fused operator of a network: what is worth tuning, with what its kernel computes besides."""

from __future__ import annotations

from typing import Any

import attrs
from chameleon_tvm.operators.specs import AttentionSpec, FusedSpec, OperatorSpec
from numpy.typing import NDArray


@attrs.frozen(kw_only=True, eq=False)
class Constants:
    """The constants of an operator, in the order in which operators take them.

    Attributes:
        weights: logical ones, output channels first.
        scale: of each output channel's sums, of an operator of whole numbers.
        bias: of each output channel.
        quantization: what such an operator needs besides, the same for all channels.
    """

    weights: NDArray[Any] | None = None
    scale: NDArray[Any] | None = None
    bias: NDArray[Any] | None = None
    quantization: NDArray[Any] | None = None

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """Those that there are."""
        known = (self.weights, self.scale, self.bias, self.quantization)
        return tuple(array for array in known if array is not None)


@attrs.frozen(kw_only=True, eq=False)
class FusedOperator:
    """One tuned kernel's place in a network.

    Attributes:
        spec: what the kernel computes; unnamed.
        inputs: expressions of the graph it reads: data, then for a batch of products the right
            side, otherwise the residual if there is one. Attention has its own order.
        constants: what it computes with besides.
        members: the variables that the kernel replaces; the last one is what it computes.
        readers: for each operand the variables of the bindings that read it for the chain, if these
            are not its first member. Attention's operands are rearranged first. None if something
            else reads what an operand is rearranged to.
    """

    spec: OperatorSpec
    inputs: tuple[Any, ...]
    constants: Constants = Constants()
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
