"""Chains whose weights, stored as 8-bit integers, are small enough for a faster instruction.

A sum of a few products of bytes fits into 16 bits where weights have 7 bits. Numbers stay what they
are, and so does every sum: that is a property of weights that are there, and no other precision.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import numpy as np
from chameleon_tvm.instructions.choosing import narrow_weights_pay
from chameleon_tvm.operators.specs import DenseSpec, FusedSpec, GroupedSpec, OperatorSpec
from chameleon_tvm.types import INT7, INT8, STORAGE
from numpy.typing import NDArray

from chameleon_networks.graph.fused_operators import FusedOperator


def shares_data(spec: OperatorSpec) -> bool:
    """Whether output channels read the same data, so that weights are what instructions differ by.

    Args:
        spec: any operator; convolutions of every channel alone are computed in float32 vectors.
    """
    return isinstance(spec, GroupedSpec | DenseSpec)


def specs_for(chain: FusedOperator, target: str) -> Iterator[OperatorSpec]:
    """The operators that compute a chain, the fastest first.

    Args:
        chain: of a network.
        target: the resolved target.
    """
    spec = chain.spec
    if (
        isinstance(spec, FusedSpec)
        and spec.dtype == INT8
        and shares_data(spec)
        and json.loads(target)["kind"] == "llvm"
        and _are_small(chain.constants.weights)
        and narrow_weights_pay(target)
    ):
        yield attrs.evolve(spec, dtype=INT7)
    yield spec


def fastest(chains: Sequence[FusedOperator], target: str) -> list[FusedOperator]:
    """Chains as the operators that they are tuned as.

    Args:
        chains: of a network.
        target: the resolved target.
    """
    return [attrs.evolve(chain, spec=next(specs_for(chain, target))) for chain in chains]


def _are_small(weights: NDArray[Any] | None) -> bool:
    if weights is None:
        return False
    largest = STORAGE[INT7].magnitude
    return bool(np.min(weights, initial=0) >= -largest and np.max(weights, initial=0) <= largest)


__all__ = ["fastest", "shares_data", "specs_for"]
