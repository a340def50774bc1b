"""Chooses the library of a delivered network for the CPU of this machine.

This file is copied into the folder of a network with libraries for several levels of CPUs.
"""

import os
from collections.abc import Callable, Sequence

LEVEL = "NETWORK_LEVEL"
"""The environment variable that names the level to run."""


def chosen_level(names: Sequence[str], refusal: Callable[[str], str]) -> tuple[str, str]:
    """Choose the first level that this machine executes.

    Args:
        names: The levels, the best first.
        refusal: A function that says why this machine cannot run a level, or returns "".

    Returns:
        The level, and the reason why none before it runs.

    Raises:
        RuntimeError: This machine executes none of the levels, or not the one that the environment
            names.
    """
    asked = os.environ.get(LEVEL, "")
    if asked and asked not in names:
        raise RuntimeError(f"{LEVEL} is {asked!r}, and the levels are {', '.join(names)}")
    reasons: dict[str, str] = {}
    for name in [asked] if asked else names:
        reason = refusal(name)
        if not reason:
            own = f"{LEVEL} names it" if asked else next(iter(reasons.values()), "")
            return name, own
        reasons[name] = reason
    listed = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    raise RuntimeError(f"this machine can run the network in none of its levels: {listed}")
