"""The types that chains can be computed in, and why some cannot."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import attrs
from chameleon_core.dtypes import BFLOAT16, FLOAT16, FLOAT32, INT8
from chameleon_core.errors import ConfigError

from chameleon_tvm.graph.chains import Chain
from chameleon_tvm.graph.relaxed import relax
from chameleon_tvm.operators.specs import ConvolutionSpec, DenseSpec

REDUCED = (INT8, BFLOAT16, FLOAT16)
"""Types that a float32 network's chains may be computed in instead."""

_LARGEST_PRODUCT = 255 * 128
_SUMS = 2**31
"""Sums of int8 products are int32: what could reach this is computed in another type."""


@attrs.frozen(kw_only=True)
class Eligible:
    """Which chains can be computed in a type.

    Attributes:
        places: of those that can, in order.
        reasons: of each other one, why not, as half a sentence.
    """

    places: tuple[int, ...]
    reasons: Mapping[int, str]


def eligible(chains: Sequence[Chain], kind: str) -> Eligible:
    """The chains that can be computed in a type.

    Args:
        chains: of a prepared float32 network.
        kind: one of ``REDUCED``.

    Raises:
        ConfigError: there is no such type.
    """
    if kind not in REDUCED:
        raise ConfigError(
            f"there is no precision {kind!r}", hint=f"Known ones: {FLOAT32}, {', '.join(REDUCED)}."
        )
    reasons = {place: _reason(chain, kind) for place, chain in enumerate(chains)}
    return Eligible(
        places=tuple(place for place, reason in reasons.items() if reason is None),
        reasons={place: reason for place, reason in reasons.items() if reason is not None},
    )


def _reason(chain: Chain, kind: str) -> str | None:
    spec = chain.spec
    if not isinstance(spec, ConvolutionSpec | DenseSpec):
        return f"{spec.kind} has no weights that could be stored in {kind}"
    if spec.dtype != FLOAT32:
        return f"it is computed in {spec.dtype} already"
    if not isinstance(chain.inputs[0], relax.Var):
        return "its input is no tensor of the network that could be observed"
    sums = spec.input[1] if isinstance(spec, DenseSpec) else math.prod(spec.filter_shape[1:])
    if kind == INT8 and sums * _LARGEST_PRODUCT >= _SUMS:
        return f"{sums} products of eight bits can be more than 32 bits hold"
    return None


__all__ = ["BFLOAT16", "FLOAT16", "FLOAT32", "INT8", "REDUCED", "Eligible", "eligible"]
