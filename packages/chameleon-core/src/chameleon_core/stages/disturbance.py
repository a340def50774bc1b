"""How much a runner was disturbed while it timed, and how far its ranking can be trusted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import attrs

SHARED, TRUSTED = 0.05, 0.75
"""A run warns if others had more of its cores, or if fewer leaders kept their order."""


@attrs.frozen(kw_only=True)
class Disturbance:
    """Sums over all that was timed; those of several processes add up.

    Attributes:
        core_seconds: wall-clock of timing, times the number of cores that kernels ran on.
        stolen_seconds: of these the host of a virtual machine kept for others.
        others_seconds: of these other processes used.
        pairs: pairs of leaders whose times, when they were timed again, could be told apart.
        kept: pairs of these that came in the same order at their first timing.
    """

    core_seconds: float = 0.0
    stolen_seconds: float = 0.0
    others_seconds: float = 0.0
    pairs: int = 0
    kept: int = 0

    def __add__(self, other: Self) -> Self:
        theirs = attrs.asdict(other)
        sums = {name: value + theirs[name] for name, value in attrs.asdict(self).items()}
        return type(self)(**sums)

    @property
    def stolen(self) -> float | None:
        """Share of the cores' time that the host kept for others; None if nobody knows."""
        return self.stolen_seconds / self.core_seconds if self.core_seconds else None

    @property
    def others(self) -> float | None:
        """Share of the cores' time that other processes used; None if nobody knows."""
        return self.others_seconds / self.core_seconds if self.core_seconds else None

    @property
    def trust(self) -> float | None:
        """Share of pairs of leaders that kept their order; None if there were none."""
        return self.kept / self.pairs if self.pairs else None

    @property
    def disturbed(self) -> bool:
        """Whether somebody who trusts the ranking should know."""
        shared = (self.stolen or 0.0) + (self.others or 0.0)
        return shared > SHARED or (self.trust is not None and self.trust < TRUSTED)

    @property
    def summary(self) -> str:
        """All of it in sentences on one line; empty if nothing is known."""
        parts = []
        if self.core_seconds:
            parts.append(
                f"While kernels were timed, other processes used {self.others:.1%} of their cores, "
                f"and the host of this virtual machine took {self.stolen:.1%}."
            )
        if self.pairs:
            parts.append(
                f"Fast candidates that were timed twice kept their order in {self.trust:.0%} of "
                f"{self.pairs} pairs."
            )
        if self.disturbed:
            parts.append("Tune on idle cores before you trust small differences.")
        return " ".join(parts)

    def to_json(self) -> dict[str, Any]:
        """The sums and what they say."""
        shares = {"stolen": self.stolen, "others": self.others, "trust": self.trust}
        return {**shares, "disturbed": self.disturbed, **attrs.asdict(self)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """The inverse of ``to_json``."""
        return cls(**{name: value[name] for name in attrs.fields_dict(cls) if name in value})
