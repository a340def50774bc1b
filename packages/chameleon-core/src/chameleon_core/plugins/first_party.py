"""The project's own distributions; imports nothing."""

from __future__ import annotations

CORE = "chameleon-tuner-core"

_PARTS = (
    *("bench", "cli", "core", "cost-models", "explorers", "networks", "one-shot", "records"),
    *("runners", "samplers", "system", "testing", "transforms", "tvm"),
)
FIRST_PARTY = frozenset({"chameleon-tuner", *(f"chameleon-tuner-{part}" for part in _PARTS)})
"""Whose implementations are meant by a name that this project wrote, whoever registers it too."""


def how_to_install(distribution: str) -> str:
    """The hint for a distribution that is missing; the project's own are on no index."""
    if distribution not in FIRST_PARTY:
        return f"install {distribution}"
    folder = distribution.replace("chameleon-tuner-", "chameleon-")
    return f"`pip install ./packages/{folder}` in a clone of Chameleon, or the wheel built there"
