"""Lists the operators to tune in a network: its distinct fused operators, with their counts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import attrs
from chameleon_tvm.operators.specs import OperatorSpec
from chameleon_tvm.words import identifier

from chameleon_networks.graph.fused_operators import FusedOperator
from chameleon_networks.graph.moves import shape_of
from chameleon_networks.graph.relaxed import bindings_of, operator_name, relax


def specs_of(chains: Sequence[FusedOperator], owners: Sequence[str] = ()) -> list[OperatorSpec]:
    """The distinct operators of a network, with names and weights.

    Args:
        chains: The fused operators that ``chains_of`` found in the prepared network.
        owners: For each fused operator, the result of ``owners.owners``. Empty if none is known.

    Returns:
        The operators in the network's order. The weight of an operator is its number of
        occurrences. Its name is the name of its first owner with the sizes (``layer4.0.conv1
        512x512 3x3 @7x7``). If the owner is not known, the name has the operator's kind and
        position instead.
    """
    counted = Counter(chain.spec for chain in chains)
    first: dict[OperatorSpec, str] = {}
    for chain, owner in zip(chains, owners or [""] * len(chains), strict=True):
        first.setdefault(chain.spec, owner)
    names: Counter[str] = Counter()
    specs = []
    for position, (spec, weight) in enumerate(counted.items()):
        name = f"{first[spec] or f'{spec.kind}_{position}'} {spec.sizes}"
        # A module may be called twice, with another activation behind it.
        names[identifier(name)] += 1
        calls = names[identifier(name)]
        again = f" ({calls})" if calls > 1 else ""
        specs.append(attrs.evolve(spec, name=name + again, weight=weight))
    return specs


def left_over(module: Any, chains: Sequence[FusedOperator]) -> dict[str, int]:
    """Count the operators of a network that remain outside of its fused operators, by name.

    Operators whose results nothing reads do not count.

    Args:
        module: The prepared network, a Relax ``IRModule``.
        chains: The fused operators of the network.
    """
    names = [operator_name(binding.value) for binding in _outside(module, chains)]
    return dict(Counter(name.removeprefix("relax.") for name in names if name))


def moved_elements(module: Any, chains: Sequence[FusedOperator]) -> int:
    """Count the elements that a network moves by permutations outside of its fused operators.

    The choice of a layout uses this number.

    Args:
        module: The prepared network, a Relax ``IRModule``.
        chains: The fused operators of the network.
    """
    return sum(
        math.prod(shape_of(binding.value))
        for binding in _outside(module, chains)
        if operator_name(binding.value) == "relax.permute_dims"
    )


def _outside(module: Any, chains: Sequence[FusedOperator]) -> list[Any]:
    """The bindings of a network outside of all fused operators that are still read."""
    function = module["main"]
    placed = {chain.last: chain for chain in chains}
    read = set(relax.analysis.free_vars(function.body.body))
    bindings = []
    for binding in reversed(bindings_of(function)):
        if binding.var not in read:
            continue
        chain = placed.get(binding.var)
        for expression in (binding.value,) if chain is None else chain.inputs:
            read.update(relax.analysis.free_vars(expression))
        if chain is None:
            bindings.append(binding)
    return bindings[::-1]
