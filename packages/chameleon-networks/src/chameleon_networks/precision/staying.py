"""Why operators of a network stay in float32 whatever is faster, as sentences."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from chameleon_core.words import listing
from chameleon_tvm.types import FLOAT32, display_name

from chameleon_networks.precision.fronts import Floats
from chameleon_networks.precision.networks import TypedNetworks
from chameleon_networks.quantize.eligibility import eligible


def why_float32(networks: TypedNetworks, kinds: Sequence[str], seconds: Floats) -> list[str]:
    """What keeps operators in float32 before anything is known of their errors.

    Args:
        networks: of the types.
        kinds: types beside float32.
        seconds: of each chain in each type, of shape (chains, types), float32 first; infinite
            where a chain was not measured in the type.

    Returns:
        A sentence without its end for each reason, the most frequent one first.
    """
    able = {place for kind in kinds for place in networks.able(kind)}
    reasons = eligible(networks.chains, kinds[0]).reasons
    named = listing(list(dict.fromkeys(map(display_name, kinds))))
    found: Counter[str] = Counter()
    for place, chain in enumerate(networks.chains):
        if getattr(chain.spec, "dtype", FLOAT32) != FLOAT32:
            continue
        if place not in able:
            found[reasons.get(place, "what is around it keeps it there")] += 1
        elif not np.isfinite(seconds[place, 1:]).any():
            found[f"it was not measured in {named}"] += 1
    return [
        f"{count} of {len(networks.chains)} operators stay in {FLOAT32}, each since {reason}"
        for reason, count in found.most_common()
    ]


__all__ = ["why_float32"]
