"""Who reads the variables of a graph."""

from __future__ import annotations

from collections import Counter
from typing import Any

from chameleon_networks.graph.relaxed import relax


def readers(function: Any) -> Counter[Any]:
    """How many bindings read each variable; what the function returns is read once more.

    Args:
        function: a Relax function in normal form.
    """
    counted: Counter[Any] = Counter([function.body.body])
    for block in function.body.blocks:
        for binding in block.bindings:
            counted.update(set(relax.analysis.free_vars(binding.value)))
    return counted
