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
from chameleon_networks.quantize.correction import Means
from chameleon_networks.quantize.eligibility import eligible, reading_as
from chameleon_networks.quantize.ranges import Affine
from chameleon_networks.quantize.reads import Network
from chameleon_networks.quantize.types import with_types

Types = Mapping[int, str]
"""Types of chains by their place in the float32 network; chains without one are in float32."""


@attrs.frozen(kw_only=True, eq=False)
class TypedNetwork:
    """A network with types.

    Attributes:
        module: it, prepared.
        chains: its chains.
        places: for each chain of the float32 network the chain of this one that computes it, None
            where none does.
    """

    module: Any
    chains: Sequence[FusedOperator]
    places: tuple[int | None, ...]

    def chain(self, place: int) -> FusedOperator | None:
        """What computes a chain of the float32 network here; None where no chain does."""
        here = self.places[place]
        return None if here is None else self.chains[here]


class TypedNetworks:
    """The networks that become of one in float32 where its chains get types.

    Args:
        module: what ``prepared`` returned.
        chains: its chains.
        ranges: of its tensors, by name; None for ranges that are all alike, which is enough to see
            what its operators become.
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
        return self._made(types)

    def _made(self, types: Types, *, sketched: bool = False) -> TypedNetwork:
        ranges, means = self._ranges, self._means
        with warnings_once():
            module = with_types(self.module, self.chains, types, ranges, means, sketched=sketched)
            found = chains_of(module)
        return TypedNetwork(module=module, chains=found, places=_places(self.chains, found))

    def uniform(self, kind: str) -> TypedNetwork:
        """What operators become where every chain that can be is in a type; made once.

        Of seven bits it is the one of eight where chains gain nothing by fewer. Its weights are
        sketched (see ``with_types``): it tells of operators, and is not to be compiled.
        """
        if kind not in self._uniform:
            types = {
                place: one
                for one in reading_as(kind)
                for place in eligible(self.chains, one).places
            }
            self._uniform[kind] = self._made(types, sketched=True)
        return self._uniform[kind]

    def able(self, kind: str) -> tuple[int, ...]:
        """Places of the chains that are computed in a type where they get it."""
        made = self.uniform(kind)
        return tuple(
            place
            for place in eligible(self.chains, kind).places
            if (here := made.chain(place)) is not None and is_reduced(here, self.chains[place])
        )


def is_reduced(here: FusedOperator, before: FusedOperator) -> bool:
    """Whether what computes a chain does so in another type than the chain."""
    kinds = (getattr(one.spec, "dtype", FLOAT32) for one in (here, before))
    return len(set(kinds)) > 1


def _places(
    before: Sequence[FusedOperator], now: Sequence[FusedOperator]
) -> tuple[int | None, ...]:
    """Which chain has taken the place of which: types change no order, and seldom how many."""
    if len(before) == len(now):
        return tuple(range(len(now)))
    found: list[int | None] = []
    names = [signatures_of(chain.spec) for chain in now]
    start = 0
    for chain in before:
        own = signatures_of(chain.spec)
        here = next((place for place in range(start, len(now)) if names[place] == own), None)
        found.append(here)
        start = start if here is None else here + 1
    return tuple(found)


__all__ = ["TypedNetwork", "TypedNetworks", "Types", "is_reduced"]
