"""How much other programs disturbed the timing, and whether the ranking of kernels is reliable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Self

import attrs

SHARED, TRUSTED = 0.05, 0.75
"""Limits for a warning. The first is the largest share of the cores' time for other programs. The
second is the smallest share of pairs of fast configurations that kept their order."""

_SAME_SPEED = 1.2
"""Speeds of the cores that differ by at most this factor count as the same."""


@attrs.frozen(kw_only=True)
class Disturbance:
    """How much other programs disturbed the timing of a run.

    Attributes are sums, so the disturbances of several processes can be added.

    Attributes:
        core_seconds: the wall-clock time of timing in seconds, times the number of cores in use.
        stolen_seconds: the part of ``core_seconds`` in which the host of a virtual machine ran
            other work.
        others_seconds: the part of ``core_seconds`` that other processes used.
        pairs: the number of pairs of fast configurations whose times clearly differed in a second
            timing.
        kept: the number of these pairs that had the same order in the first timing.
        speeds: the number of timings at each speed of the cores. The outer keys are names of
            instructions, the inner keys are rates in 10**9 operations per second as text, from
            ``Kernel.clock``.
        usual_speeds: by instructions, the operations per second at the usual speed, to which times
            are scaled. A sum has those of the first process.
        timed_again: the number of timings that were repeated because the speed changed.
    """

    core_seconds: float = 0.0
    stolen_seconds: float = 0.0
    others_seconds: float = 0.0
    pairs: int = 0
    kept: int = 0
    speeds: Mapping[str, Mapping[str, int]] = attrs.field(factory=dict)
    usual_speeds: Mapping[str, float] = attrs.field(factory=dict)
    timed_again: int = 0

    def __add__(self, other: Self) -> Self:
        theirs = attrs.asdict(other)
        sums = {
            name: value + theirs[name]
            for name, value in attrs.asdict(self).items()
            if not isinstance(value, Mapping)
        }
        speeds = {
            name: dict(Counter(self.speeds.get(name, {})) + Counter(other.speeds.get(name, {})))
            for name in (*self.speeds, *other.speeds)
        }
        usual = {**other.usual_speeds, **self.usual_speeds}
        return type(self)(**sums, speeds=speeds, usual_speeds=usual)

    @property
    def stolen(self) -> float | None:
        """The share of the cores' time that the host of a virtual machine gave to other work.

        The value is None if it is unknown.
        """
        return self.stolen_seconds / self.core_seconds if self.core_seconds else None

    @property
    def others(self) -> float | None:
        """The share of the cores' time that other programs used during timing; None if unknown."""
        return self.others_seconds / self.core_seconds if self.core_seconds else None

    @property
    def trust(self) -> float | None:
        """Share of pairs of fast configurations that two timings put in the same order.

        With 1, the second timing always confirmed which configuration is faster. The value is None
        if no pair was timed twice.
        """
        return self.kept / self.pairs if self.pairs else None

    @property
    def disturbed(self) -> bool:
        """Whether the disturbance is so large that the ranking of kernels may be wrong."""
        shared = (self.stolen or 0.0) + (self.others or 0.0)
        return shared > SHARED or (self.trust is not None and self.trust < TRUSTED)

    @property
    def clock(self) -> str:
        """A sentence about the speeds of the cores during timing; empty if they are unknown."""
        if not any(map(any, self.speeds.values())):
            return ""
        name, counts = max(self.speeds.items(), key=lambda item: sum(item[1].values()))
        usual = self.usual_speeds[name] / 1e9
        parts = [f"Clock: usual {usual:.0f} GFLOP/s ({name})"]
        total = sum(counts.values())
        for word, of_state in (
            ("slower", {r: n for r, n in counts.items() if _SAME_SPEED * float(r) < usual}),
            ("faster", {r: n for r, n in counts.items() if float(r) > _SAME_SPEED * usual}),
        ):
            if of_state:
                often = max(of_state, key=lambda rate: of_state[rate])
                share = sum(of_state.values()) / total
                parts.append(f"{share:.0%} of the timings {word}, most at {float(often):.0f}")
        if self.timed_again:
            parts.append(f"{self.timed_again} timed again")
        return f"{'; '.join(parts)}."

    @property
    def summary(self) -> str:
        """Sentences with all known numbers about the disturbance; empty if nothing is known."""
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
        if self.clock:
            parts.append(self.clock)
        if self.disturbed:
            parts.append("Tune on idle cores before you trust small differences.")
        return " ".join(parts)

    def to_json(self) -> dict[str, Any]:
        """The sums, and the shares derived from them, as JSON values."""
        shares = {"stolen": self.stolen, "others": self.others, "trust": self.trust}
        return {**shares, "disturbed": self.disturbed, **attrs.asdict(self)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Read a disturbance from the output of ``to_json``."""
        return cls(**{name: value[name] for name in attrs.fields_dict(cls) if name in value})
