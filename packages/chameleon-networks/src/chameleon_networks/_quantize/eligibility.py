"""Decides which fusion groups can be computed in a dtype, and why the others cannot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs
from chameleon_core.plugin_api import FLOAT32, ConfigError
from chameleon_tvm.api import (
    COMPUTE,
    LARGEST_DIFFERENCES,
    LARGEST_PRODUCT,
    LARGEST_SUM,
    REDUCED,
    BatchMatmulSpec,
    FusedSpec,
    TypedSpec,
)

from chameleon_networks._graph.fusion_groups import FusionGroup, reuses_data
from chameleon_networks._graph.relax_utils import relax
from chameleon_networks._quantize.weights import overflows


def dtypes_with_same_data(kind: str) -> tuple[str, ...]:
    """The dtypes that read data in the same format: int8 and int7 for int7."""
    variant_of = COMPUTE[kind].variant_of
    return (variant_of, kind) if variant_of else (kind,)


@attrs.frozen(kw_only=True)
class EligibleFusions:
    """The fusion groups that can be computed in a dtype, and the reasons why others cannot.

    Attributes:
        indices: Indices of the operators that can be computed in the dtype, in order.
        reasons: For each other operator, by index, a phrase that says why it cannot be computed so.
    """

    indices: tuple[int, ...]
    reasons: Mapping[int, str]


def find_eligible(fusions: Sequence[FusionGroup], kind: str) -> EligibleFusions:
    """Find the fusion groups that can be computed in a dtype."""
    if kind not in REDUCED:
        raise ConfigError(
            f"there is no precision {kind!r}", hint=f"Known ones: {FLOAT32}, {', '.join(REDUCED)}."
        )
    reasons = {index: _obstacle(fusion, kind) for index, fusion in enumerate(fusions)}
    return EligibleFusions(
        indices=tuple(index for index, reason in reasons.items() if reason is None),
        reasons={index: reason for index, reason in reasons.items() if reason is not None},
    )


def _obstacle(fusion: FusionGroup, kind: str) -> str | None:
    spec = fusion.spec
    if not isinstance(spec, TypedSpec):
        return f"{spec.kind} is computed in {FLOAT32} alone"
    if spec.dtype != FLOAT32:
        return f"it is computed in {spec.dtype} already"
    if not all(isinstance(operand, relax.Var) for operand in fusion.operands):
        return "its input is no tensor of the network that could be observed"
    if fusion.readers is None:
        return "its inputs are rearranged for other operators, too"
    return (
        _integer_obstacle(spec, kind)
        if COMPUTE[kind].quantized
        else _float_obstacle(fusion, spec, kind)
    )


def _float_obstacle(fusion: FusionGroup, spec: TypedSpec, kind: str) -> str | None:
    """The reason why an operator cannot have a floating-point dtype, or None."""
    weights, stored = fusion.constants.weights, COMPUTE[kind].weights
    if weights is not None and not stored.whole and overflows(weights, stored):
        return f"its weights are larger than what {kind} holds"
    try:
        attrs.evolve(spec, dtype=kind, output_dtype="")
    except ConfigError as error:
        return str(error)
    return None


def _integer_obstacle(spec: TypedSpec, kind: str) -> str | None:
    """The reason why int8 is impossible or int7 gains nothing, or None."""
    variant_of = COMPUTE[kind].variant_of
    if variant_of and not reuses_data(spec):
        return f"weights of fewer bits than those of {variant_of} make it no faster"
    if isinstance(spec, FusedSpec):
        sums, largest = spec.reduced, LARGEST_PRODUCT
    elif isinstance(spec, BatchMatmulSpec):
        sums, largest = spec.a[2], LARGEST_DIFFERENCES
    else:
        return f"{spec.kind} is no sum of products alone"
    if sums * largest > LARGEST_SUM:
        return f"{sums} products of eight bits can be more than 32 bits hold"
    return None
