"""Makes networks in which some operators have reduced dtypes.

For each operator of the float32 network, they know the operator that replaces it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import attrs
from chameleon_core.plugin_api import FLOAT32

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
        places: For each fusion group of the float32 network, the index of the operator of this
            network that computes it, or None.
    """

    module: Any
    fusions: Sequence[FusionGroup]
    places: tuple[int | None, ...]

    def fusion(self, index: int) -> FusionGroup | None:
        """The operator of this network that replaces an operator of the float32 network, or None.

        None means that this network has no such operator, because other dtypes led to other fused
        operators.

        Args:
            index: The index of the fusion group in the float32 network.
        """
        here = self.places[index]
        return None if here is None else self.fusions[here]


class TypedNetworks:
    """Makes networks with other dtypes from a network in float32.

    Args:
        module: The module that ``prepared`` returned.
        fusions: The fusion groups of the network.
        ranges: The range of each tensor, by tensor name. None uses the same range for all, which is
            enough to see the dtypes of the operators.
        means: The mean of each channel of tensors, by tensor name; see ``apply_dtypes``.
    """

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
        alike = Affine.between(-1.0, 1.0)
        self._ranges = (
            dict.fromkeys(self.network.names.values(), alike) if ranges is None else ranges
        )
        self._means = means
        self._uniform: dict[str, TypedNetwork] = {}

    def of(self, types: Types, *, sketched: bool = False) -> TypedNetwork:
        """Make the network in which some fusion groups have reduced dtypes.

        Args:
            types: The dtypes of these operators, by index.
            sketched: Whether weights only get the right shapes and dtypes, as in ``apply_dtypes``.

        Raises:
            ConfigError: An operator cannot have its dtype, or a tensor has no range.
        """
        ranges, means = self._ranges, self._means
        with warnings_once():
            module = apply_dtypes(
                self.module, self.fusions, types, ranges, means, sketched=sketched
            )
            fusions = find_fusions(module)
        return TypedNetwork(
            module=module, fusions=fusions, places=_match_fusions(self.fusions, fusions)
        )

    def uniform(self, kind: str) -> TypedNetwork:
        """The network with one dtype for every operator that can have it.

        Later calls for the same dtype return the same network.

        For int7, operators that int7 makes no faster than int8 have int8. Do not compile this
        network: its weights are not the real ones, only of the right shapes and dtypes
        (``sketched`` in ``apply_dtypes``).
        """
        if kind not in self._uniform:
            types = {
                index: variant
                for variant in dtypes_with_same_data(kind)
                for index in find_eligible(self.fusions, variant).places
            }
            self._uniform[kind] = self.of(types, sketched=True)
        return self._uniform[kind]

    def able(self, kind: str) -> tuple[int, ...]:
        """Indices of the fusion groups that can compute in a dtype.

        Args:
            kind: The name of the dtype.
        """
        network = self.uniform(kind)
        return tuple(
            index
            for index in find_eligible(self.fusions, kind).places
            if (here := network.fusion(index)) is not None and is_reduced(here, self.fusions[index])
        )


def is_reduced(here: FusionGroup, before: FusionGroup) -> bool:
    """Whether a fusion group has another dtype than the float32 operator that it replaces.

    Args:
        here: The operator in the network with reduced dtypes.
        before: The operator in the float32 network.
    """
    kinds = (getattr(fusion.spec, "dtype", FLOAT32) for fusion in (here, before))
    return len(set(kinds)) > 1


def _match_fusions(
    before: Sequence[FusionGroup], now: Sequence[FusionGroup]
) -> tuple[int | None, ...]:
    """For each fusion group before, the index of the one that replaces it, or None.

    Dtypes do not change the order of operators, and seldom their number.
    """
    if len(before) == len(now):
        return tuple(range(len(now)))
    places: list[int | None] = []
    names = [signatures_of(fusion.spec) for fusion in now]
    start = 0
    for fusion in before:
        own = signatures_of(fusion.spec)
        here = next((index for index in range(start, len(now)) if names[index] == own), None)
        places.append(here)
        start = start if here is None else here + 1
    return tuple(places)
