"""A fused operator: an operator worth tuning, with the operators that its kernel computes too."""

from __future__ import annotations

from typing import Any

import attrs
from chameleon_tvm.operators.specs import AttentionSpec, FusedSpec, OperatorSpec
from numpy.typing import NDArray


@attrs.frozen(kw_only=True, eq=False)
class Constants:
    """The constants of a fused operator, in the order of the operator's inputs.

    Attributes:
        weights: The weights, output channels first.
        scale: For an operator on integers, the scale of each output channel's integer sums. None
            for other operators.
        bias: The bias of each output channel.
        quantization: For an operator on integers, the zero points and scales that all channels
            share.
    """

    weights: NDArray[Any] | None = None
    scale: NDArray[Any] | None = None
    bias: NDArray[Any] | None = None
    quantization: NDArray[Any] | None = None

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """The constants that are not None."""
        known = (self.weights, self.scale, self.bias, self.quantization)
        return tuple(array for array in known if array is not None)


@attrs.frozen(kw_only=True, eq=False)
class FusedOperator:
    """An operator of a network with the operators that one kernel computes together with it.

    Attributes:
        spec: The operator that the kernel computes, without a name.
        inputs: The expressions that the kernel reads. First comes the data. Then comes the second
            operand of a batched matrix product, or else the residual, if any. Attention has its own
            order.
        constants: The constants that the kernel reads.
        members: The variables that the kernel replaces. The last one is the kernel's result.
        readers: For each operand, the variables of the bindings that read the operand for this
            kernel. An empty tuple means that the first of ``members`` reads all operands. Attention
            may first rearrange its operands, for example by a transposition. If another operator
            reads a rearranged operand too, the whole field is None. Because that operator needs
            float32, the attention then cannot have another dtype.
    """

    spec: OperatorSpec
    inputs: tuple[Any, ...]
    constants: Constants = Constants()
    members: tuple[Any, ...]
    readers: tuple[tuple[Any, ...], ...] | None = ()

    @property
    def operands(self) -> tuple[Any, ...]:
        """The inputs that the operator multiplies, without a residual or a mask, which it adds."""
        spec = self.spec
        if isinstance(spec, FusedSpec):
            return self.inputs[:1]
        masked = isinstance(spec, AttentionSpec) and spec.mask
        return self.inputs[:-1] if masked else self.inputs

    @property
    def last(self) -> Any:
        """The variable of the kernel's result."""
        return self.members[-1]
