"""The contenders of a final comparison, as results have them."""

from __future__ import annotations

import attrs

TUNED = "tuned"
"""Name of the contenders that are configurations of the space."""


@attrs.frozen(kw_only=True)
class VariantResult:
    """One contender of a final comparison.

    Attributes:
        name: ``tuned`` or the baseline's name.
        variant: which way of computing; empty for a tuned configuration.
        vendor: whether it counts as what a user would otherwise call.
        seconds: its median in seconds, or None where it failed.
        failure: why it has no time, or None.
    """

    name: str
    variant: str = ""
    vendor: bool = False
    seconds: float | None = None
    failure: str | None = None


__all__ = ["TUNED", "VariantResult"]
