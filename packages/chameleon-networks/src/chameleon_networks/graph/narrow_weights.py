"""Finds fused operators with int8 weights small enough for a faster instruction.

If weights have 7 bits, a sum of a few products of bytes fits into 16 bits. The weights are not
changed, and the faster instruction computes exactly the same sums. The result is thus the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import numpy as np
from chameleon_tvm.instructions.choosing import narrow_weights_pay
from chameleon_tvm.operators.base import is_for_cpu
from chameleon_tvm.operators.specs import DenseSpec, FusedSpec, GroupedSpec, OperatorSpec
from chameleon_tvm.types import COMPUTE, StorageType
from numpy.typing import NDArray

from chameleon_networks.graph.fused_operators import FusedOperator


def shares_data(spec: OperatorSpec) -> bool:
    """Whether several output channels of an operator multiply the same data.

    Only such operators become faster with weights of 7 bits.

    Args:
        spec: Any operator. In a depthwise convolution, for example, each channel has its own data.
    """
    return isinstance(spec, GroupedSpec | DenseSpec)


def specs_for(chain: FusedOperator, target: str) -> Iterator[OperatorSpec]:
    """Yield the operators as which a fused operator can be tuned, the fastest first.

    Some CPUs multiply bytes faster by weights of 7 bits than by weights of 8 bits. On such a CPU,
    the first operator has 7-bit weights, if the weights of the fused operator fit into 7 bits. The
    last operator is always the fused operator's own.

    Args:
        chain: A fused operator of a network.
        target: The resolved target.
    """
    spec, weights = chain.spec, chain.constants.weights
    if isinstance(spec, FusedSpec) and weights is not None and shares_data(spec):
        for kind in COMPUTE.values():
            # Whether the target gains by it is asked last: that looks through its instructions.
            narrow = kind.variant_of == spec.dtype and _fit(weights, kind.weights)
            if narrow and is_for_cpu(target) and narrow_weights_pay(target):
                yield attrs.evolve(spec, dtype=kind.name)
    yield spec


def fastest(chains: Sequence[FusedOperator], target: str) -> list[FusedOperator]:
    """Replace each fused operator by the fastest operator with the same results, if there is one.

    Args:
        chains: The fused operators of a network.
        target: The resolved target.
    """
    return [attrs.evolve(chain, spec=next(specs_for(chain, target))) for chain in chains]


def _fit(weights: NDArray[Any], kind: StorageType) -> bool:
    least, most = np.min(weights, initial=0), np.max(weights, initial=0)
    return bool(least >= kind.low and most <= kind.high)
