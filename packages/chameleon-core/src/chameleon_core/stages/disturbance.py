"""How much other programs disturbed a runner's timing, and how far its ranking can be trusted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import attrs

SHARED, TRUSTED = 0.05, 0.75
"""A run warns if others had more of its cores, or if fewer leaders kept their order."""


@attrs.frozen(kw_only=True)
class Disturbance:
    """How much other programs disturbed the timing.

    All attributes are sums, so those of several processes can be added.

    Attributes:
        core_seconds: wall-clock time of timing, times the number of cores in use.
        stolen_seconds: the part of it in which the host of a virtual machine ran others.
        others_seconds: the part of it that other processes used.
        pairs: pairs of fast configurations whose times clearly differed when timed a second time.
        kept: those pairs whose order was the same in the first timing.
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
        """Share of the cores' time that the host gave to others; None if unknown."""
        return self.stolen_seconds / self.core_seconds if self.core_seconds else None

    @property
    def others(self) -> float | None:
        """Share of the cores' time that other processes used; None if unknown."""
        return self.others_seconds / self.core_seconds if self.core_seconds else None

    @property
    def trust(self) -> float | None:
        """Share of pairs of fast configurations that kept their order; None without pairs."""
        return self.kept / self.pairs if self.pairs else None

    @property
    def disturbed(self) -> bool:
        """Whether the disturbance is large enough to warn about the ranking."""
        shared = (self.stolen or 0.0) + (self.others or 0.0)
        return shared > SHARED or (self.trust is not None and self.trust < TRUSTED)

    @property
    def summary(self) -> str:
        """All figures in sentences on one line; empty if nothing is known."""
        parts = []
        if self.core_seconds:
            parts.append(
                f"During timing, other processes took {self.others:.1%} of the cores' time, and "
                f"other virtual machines took {self.stolen:.1%}."
            )
        if self.pairs:
            parts.append(
                f"The fastest candidates were timed twice; {self.trust:.0%} of {self.pairs} pairs "
                "kept their order."
            )
        if self.disturbed:
            parts.append("Tune on idle cores before you trust small differences.")
        return " ".join(parts)

    def to_json(self) -> dict[str, Any]:
        """The sums and the figures derived from them."""
        shares = {"stolen": self.stolen, "others": self.others, "trust": self.trust}
        return {**shares, "disturbed": self.disturbed, **attrs.asdict(self)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """The disturbance that ``to_json`` wrote."""
        return cls(**{name: value[name] for name in attrs.fields_dict(cls) if name in value})
