"""A network with some of its chains in other types, and what takes which chain's place in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import attrs
from chameleon_tvm.types import FLOAT32

from chameleon_networks.graph.chains import chains_of
from chameleon_networks.graph.fused_operators import FusedOperator
from chameleon_networks.graph.owners import signatures_of
from chameleon_networks.graph.warnings_once import warnings_once
from chameleon_networks.quantize.eligibility import eligible, reading_as
from chameleon_networks.quantize.ranges import Affine
from chameleon_networks.quantize.reads import Network
from chameleon_networks.quantize.types import with_types
from chameleon_networks.quantize.weights import Means

Types = Mapping[int, str]
"""Types of chains by their place in the float32 network; chains without one are in float32."""


@attrs.frozen(kw_only=True, eq=False)
class TypedNetwork:
    """A network with types.

    Attributes:
        module: it, prepared.
        chains: its chains.
        places: for each chain of the float32 network the chain of this one that computes it, None
            if none does.
    """

    module: Any
    chains: Sequence[FusedOperator]
    places: tuple[int | None, ...]

    def chain(self, index: int) -> FusedOperator | None:
        """The chain that computes one of the float32 network here; None if there is none."""
        here = self.places[index]
        return None if here is None else self.chains[here]


class TypedNetworks:
    """The networks that one in float32 becomes if its chains get types.

    Args:
        module: what ``prepared`` returned.
        chains: its chains.
        ranges: of its tensors, by name; None for ranges that are all alike, which is enough to see
            the types of its operators.
        means: of channels of tensors, by name; see ``with_types``.
    """

    def __init__(
        self,
        module: Any,
        chains: Sequence[FusedOperator],
        ranges: Mapping[str, Affine] | None,
        means: Means = MappingProxyType({}),
    ) -> None:
        self.module = module
        self.chains = chains
        self.network = Network(module, chains)
        alike = Affine.between(-1.0, 1.0)
        self._ranges = (
            dict.fromkeys(self.network.names.values(), alike) if ranges is None else ranges
        )
        self._means = means
        self._uniform: dict[str, TypedNetwork] = {}

    def of(self, types: Types) -> TypedNetwork:
        """The network with some types.

        Raises:
            ConfigError: a chain cannot have its type, or a tensor has no range.
        """
        return self._built(types)

    def _built(self, types: Types, *, sketched: bool = False) -> TypedNetwork:
        ranges, means = self._ranges, self._means
        with warnings_once():
            module = with_types(self.module, self.chains, types, ranges, means, sketched=sketched)
            chains = chains_of(module)
        return TypedNetwork(module=module, chains=chains, places=_places(self.chains, chains))

    def uniform(self, kind: str) -> TypedNetwork:
        """The network with every chain in a type that can have it; built once.

        In seven bits, chains that gain nothing by fewer bits have eight. Its weights are sketched
        (see ``with_types``): it tells of operators, and is not to be compiled.
        """
        if kind not in self._uniform:
            types = {
                index: variant
                for variant in reading_as(kind)
                for index in eligible(self.chains, variant).places
            }
            self._uniform[kind] = self._built(types, sketched=True)
        return self._uniform[kind]

    def able(self, kind: str) -> tuple[int, ...]:
        """Places of the chains that are computed in a type if they get it."""
        network = self.uniform(kind)
        return tuple(
            index
            for index in eligible(self.chains, kind).places
            if (here := network.chain(index)) is not None and is_reduced(here, self.chains[index])
        )


def is_reduced(here: FusedOperator, before: FusedOperator) -> bool:
    """Whether what computes a chain does so in another type than the chain."""
    kinds = (getattr(chain.spec, "dtype", FLOAT32) for chain in (here, before))
    return len(set(kinds)) > 1


def _places(
    before: Sequence[FusedOperator], now: Sequence[FusedOperator]
) -> tuple[int | None, ...]:
    """Which chain has taken the place of which: types change no order, and seldom how many."""
    if len(before) == len(now):
        return tuple(range(len(now)))
    places: list[int | None] = []
    names = [signatures_of(chain.spec) for chain in now]
    start = 0
    for chain in before:
        own = signatures_of(chain.spec)
        here = next((index for index in range(start, len(now)) if names[index] == own), None)
        places.append(here)
        start = start if here is None else here + 1
    return tuple(places)
