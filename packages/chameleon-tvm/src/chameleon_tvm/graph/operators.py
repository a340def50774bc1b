"""What there is to tune in a network: its distinct chains, with how often each occurs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import attrs

from chameleon_tvm.graph.chains import Chain
from chameleon_tvm.graph.relaxed import relax, tvm
from chameleon_tvm.operators.specs import OperatorSpec


def specs_of(chains: Sequence[Chain]) -> list[OperatorSpec]:
    """The distinct operators of a network's chains.

    Args:
        chains: what ``chains_of`` found in the prepared network.

    Returns:
        Named by kind and first place, weighted, in the network's order.
    """
    counted = Counter(chain.spec for chain in chains)
    return [
        attrs.evolve(spec, name=f"{spec.kind}_{place}", weight=weight)
        for place, (spec, weight) in enumerate(counted.items())
    ]


def left_over(module: Any, chains: Sequence[Chain]) -> dict[str, int]:
    """How often each operator occurs that is in no chain."""
    taken = {member for chain in chains for member in chain.members}
    return dict(
        Counter(
            str(binding.value.op.name).removeprefix("relax.")
            for block in module["main"].body.blocks
            for binding in block.bindings
            if isinstance(binding.value, relax.Call)
            and isinstance(binding.value.op, tvm.ir.Op)
            and binding.var not in taken
        )
    )
