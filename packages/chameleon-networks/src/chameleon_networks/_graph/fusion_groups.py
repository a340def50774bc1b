"""Fusion groups: operators to tune, each with the operators that its kernel computes too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import attrs
import numpy as np
from chameleon_core.plugin_api import FLOAT32
from chameleon_tvm.api import (
    BFLOAT16,
    COMPUTE,
    AttentionSpec,
    DenseSpec,
    FusedSpec,
    GroupedSpec,
    OperatorSpec,
    StorageType,
    is_for_cpu,
    narrow_weights_pay,
)
from numpy.typing import NDArray

from chameleon_networks._graph.constants import exact_dtype


@attrs.frozen(kw_only=True, eq=False)
class Constants:
    """The constants of a fusion group, in the order of the operator's inputs.

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

    @cached_property
    def exact_dtype(self) -> str:
        """The 16-bit dtype that holds all weights exactly, or an empty string."""
        return "" if self.weights is None else exact_dtype(self.weights)

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """The constants that are not None."""
        known = (self.weights, self.scale, self.bias, self.quantization)
        return tuple(array for array in known if array is not None)


@attrs.frozen(kw_only=True, eq=False)
class FusionGroup:
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
        merged: The units of the products of the user's model that the operator computes side by
            side; empty if it computes one.
    """

    spec: OperatorSpec
    inputs: tuple[Any, ...]
    constants: Constants = Constants()
    members: tuple[Any, ...]
    readers: tuple[tuple[Any, ...], ...] | None = ()
    merged: tuple[int, ...] = ()

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


def reuses_data(spec: OperatorSpec) -> bool:
    """Whether several output channels multiply the same data, as is needed for 7-bit weights."""
    return isinstance(spec, GroupedSpec | DenseSpec)


def candidate_specs(fusion: FusionGroup, target: str) -> Iterator[OperatorSpec]:
    """Yield the operators as which a fusion group can be tuned, the fastest first."""
    # If weights fit into 7 bits, sums of a few products fit into 16, for which some CPUs have
    # faster instructions.
    spec, weights = fusion.spec, fusion.constants.weights
    if isinstance(spec, GroupedSpec | DenseSpec) and spec.dtype == FLOAT32 and weights is not None:
        exact = fusion.constants.exact_dtype
        # Convolutions have no algorithm for weights in float16.
        used = exact == BFLOAT16 or (exact and isinstance(spec, DenseSpec))
        if used and is_for_cpu(target):
            yield attrs.evolve(spec, exact_weights=exact)
    if isinstance(spec, FusedSpec) and weights is not None and reuses_data(spec):
        for kind in COMPUTE.values():
            # The target is checked last, because that searches its instructions.
            narrow = kind.variant_of == spec.dtype and _fit(weights, kind.weights)
            if narrow and is_for_cpu(target) and narrow_weights_pay(target):
                yield attrs.evolve(spec, dtype=kind.name)
    yield spec


def with_fastest_specs(fusions: Sequence[FusionGroup], target: str) -> list[FusionGroup]:
    """Give each fusion group the first of its candidate operators."""
    return [attrs.evolve(fusion, spec=next(candidate_specs(fusion, target))) for fusion in fusions]


def _fit(weights: NDArray[Any], kind: StorageType) -> bool:
    least, most = np.min(weights, initial=0), np.max(weights, initial=0)
    return bool(least >= kind.low and most <= kind.high)
