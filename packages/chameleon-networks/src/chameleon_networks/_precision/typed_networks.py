"""Makes networks with reduced dtypes, whose operators are matched with those in float32."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import attrs
from chameleon_core.plugin_api import FLOAT32

from chameleon_networks._graph.cancellations import cancellations_in, with_cancellations
from chameleon_networks._graph.fusion import find_fusions
from chameleon_networks._graph.fusion_groups import FusionGroup
from chameleon_networks._graph.operators import signatures_of
from chameleon_networks._graph.tvm_warnings import warnings_once
from chameleon_networks._quantize.apply_dtypes import apply_dtypes
from chameleon_networks._quantize.data_flow import DataFlow
from chameleon_networks._quantize.eligibility import dtypes_with_same_data, find_eligible
from chameleon_networks._quantize.ranges import Affine
from chameleon_networks._quantize.weights import Means

Types = Mapping[int, str]
"""The dtypes of fusion groups, by index in the float32 network. Operators that are missing here
are in float32."""


@attrs.frozen(kw_only=True, eq=False)
class TypedNetwork:
    """A network in which some fusion groups have other dtypes than float32.

    Attributes:
        module: The prepared module of the network.
        fusions: The fusion groups of the network.
        replacements: For each fusion group of the float32 network, the index of the one that
            replaces it, or None.
    """

    module: Any
    fusions: Sequence[FusionGroup]
    replacements: tuple[int | None, ...]

    def fusion(self, index: int) -> FusionGroup | None:
        """The fusion group that replaces one of the float32 network, or None."""
        replacement = self.replacements[index]
        return None if replacement is None else self.fusions[replacement]


class TypedNetworks:
    """Makes networks with other dtypes from a network in float32."""

    def __init__(
        self,
        module: Any,
        fusions: Sequence[FusionGroup],
        ranges: Mapping[str, Affine] | None,
        means: Means = MappingProxyType({}),
    ) -> None:
        self.module = module
        self.fusions = fusions
        self.network = DataFlow(module, fusions)
        same_range = Affine.between(-1.0, 1.0)
        self._ranges = (
            dict.fromkeys(self.network.names.values(), same_range) if ranges is None else ranges
        )
        self._means = means
        self._uniform: dict[str, TypedNetwork] = {}

    def of(self, types: Types, *, placeholders: bool = False) -> TypedNetwork:
        """Make the network in which some fusion groups have reduced dtypes."""
        ranges, means = self._ranges, self._means
        with warnings_once():
            module = apply_dtypes(
                self.module, self.fusions, types, ranges, means, placeholders=placeholders
            )
            fusions = with_cancellations(find_fusions(module), cancellations_in(self.fusions))
        return TypedNetwork(
            module=module, fusions=fusions, replacements=_match_fusions(self.fusions, fusions)
        )

    def uniform(self, kind: str) -> TypedNetwork:
        """The cached network with one dtype for all operators that can have it."""
        # The dtype int8 replaces int7 if int7 is no faster. Do not compile it: its weights are
        # placeholders.
        if kind not in self._uniform:
            types = {
                index: variant
                for variant in dtypes_with_same_data(kind)
                for index in find_eligible(self.fusions, variant).indices
            }
            self._uniform[kind] = self.of(types, placeholders=True)
        return self._uniform[kind]

    def reducible(self, kind: str) -> tuple[int, ...]:
        """Indices of the fusion groups that can compute in a dtype."""
        network = self.uniform(kind)
        return tuple(
            index
            for index in find_eligible(self.fusions, kind).indices
            if (replacement := network.fusion(index)) is not None
            and is_reduced(replacement, self.fusions[index])
        )


def is_reduced(replacement: FusionGroup, before: FusionGroup) -> bool:
    """Whether a fusion group has another dtype than the float32 operator that it replaces."""
    kinds = (getattr(fusion.spec, "dtype", FLOAT32) for fusion in (replacement, before))
    return len(set(kinds)) > 1


def _match_fusions(
    before: Sequence[FusionGroup], now: Sequence[FusionGroup]
) -> tuple[int | None, ...]:
    """For each fusion group before, the index of the one that replaces it, or None."""
    # Dtypes do not change the order of operators, and seldom their number.
    if len(before) == len(now):
        return tuple(range(len(now)))
    places: list[int | None] = []
    names = [signatures_of(fusion.spec) for fusion in now]
    start = 0
    for fusion in before:
        signature = signatures_of(fusion.spec)
        replacement = next((i for i in range(start, len(now)) if names[i] == signature), None)
        places.append(replacement)
        start = start if replacement is None else replacement + 1
    return tuple(places)
