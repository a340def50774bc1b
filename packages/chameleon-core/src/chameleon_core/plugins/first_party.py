"""The project's own distributions; imports nothing."""

from __future__ import annotations

CORE = "chameleon-tuner-core"

FIRST_PARTY = frozenset(
    {
        CORE,
        "chameleon-tuner",
        "chameleon-tuner-bench",
        "chameleon-tuner-cli",
        "chameleon-tuner-cost-models",
        "chameleon-tuner-explorers",
        "chameleon-tuner-networks",
        "chameleon-tuner-one-shot",
        "chameleon-tuner-records",
        "chameleon-tuner-runners",
        "chameleon-tuner-samplers",
        "chameleon-tuner-system",
        "chameleon-tuner-testing",
        "chameleon-tuner-transforms",
        "chameleon-tuner-tvm",
    }
)
"""Whose implementations are meant by a name that this project wrote, whoever registers it too."""


def how_to_install(distribution: str) -> str:
    """The hint for a distribution that is missing; the project's own are on no index."""
    if distribution not in FIRST_PARTY:
        return f"install {distribution}"
    folder = distribution.replace("chameleon-tuner-", "chameleon-")
    return f"`pip install ./packages/{folder}` in a clone of Chameleon, or the wheel built there"
