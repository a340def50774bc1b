"""Facts about a network before anything is tuned, as the run folder keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs
import cattrs

from chameleon_networks.compile.loop_tasks import CostlyFunction

Facts = dict[str, Any]
"""Facts about a network in a run folder, as JSON values."""


@attrs.frozen(kw_only=True)
class CheckReport:
    """How a network can be delivered.

    Attributes:
        layout: the first one that it can be compiled in.
        max_relative_error: of its answers; None without a reference, or on another CPU.
        reference: the framework that they were compared with, or None.
        conditioning: a sentence if the framework's own rounding makes a larger error right than
            usual.
        refused: what is wrong with the layouts before that one.
        reference_seconds: of one inference of it.
        unscheduled: the shares of the time of kernels that no schedule fits, by name, if large.
        loops: the functions that are worth tuning although they are no products.
        step_seconds: wall-clock of the steps.
    """

    layout: str
    max_relative_error: float | None = None
    reference: str | None = None
    conditioning: str | None = None
    refused: Mapping[str, str] = attrs.field(factory=dict)
    reference_seconds: float | None = None
    unscheduled: Mapping[str, float] = attrs.field(factory=dict)
    loops: tuple[CostlyFunction, ...] = ()
    step_seconds: Mapping[str, float] = attrs.field(factory=dict)

    @property
    def summary(self) -> str:
        """All of it in a sentence."""
        agrees = (
            "it compiles"
            if self.max_relative_error is None
            else f"it compiles, and agrees with {self.reference} "
            f"(error {self.max_relative_error:.0e})"
        )
        return "; ".join(
            [
                f"{agrees} in {self.layout}",
                *([self.conditioning] if self.conditioning else []),
                *(f"not in {layout}: {problem}" for layout, problem in self.refused.items()),
            ]
        )

    def to_json(self) -> Facts:
        """The report as JSON values, with its summary."""
        return {**attrs.asdict(self), "summary": self.summary}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> CheckReport:
        """The inverse of ``to_json``."""
        return cattrs.structure(value, cls)
