"""The names of this project's own distributions. The module imports nothing."""

from __future__ import annotations

CORE = "chameleon-tuner-core"

_PARTS = (
    *("bench", "cli", "core", "cost-models", "explorers", "networks", "one-shot", "records"),
    *("runners", "samplers", "system", "testing", "transforms", "tvm"),
)
FIRST_PARTY = frozenset({"chameleon-tuner", *(f"chameleon-tuner-{part}" for part in _PARTS)})
"""This project's distributions. A name that this project wrote means their plugins, even if other
distributions register the same name."""


def how_to_install(distribution: str) -> str:
    """The hint that says how to install a missing distribution.

    Chameleon's own distributions are on no package index. So the hint names the distribution's
    folder in a clone of the repository.

    Args:
        distribution: the name of the missing distribution.
    """
    if distribution not in FIRST_PARTY:
        return f"install {distribution}"
    folder = distribution.replace("chameleon-tuner-", "chameleon-")
    return f"`pip install ./packages/{folder}` in a clone of Chameleon, or the wheel built there"
