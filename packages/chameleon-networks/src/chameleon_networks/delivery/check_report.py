"""The result of checking a network before tuning, as the run folder stores it."""

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
    """The result of compiling and checking a network before anything is tuned.

    Attributes:
        layout: The first layout that the network can be compiled in.
        max_relative_error: The error of the network's outputs. None if there is no reference, or if
            the target is another CPU.
        reference: The framework that the outputs were compared with, or None.
        conditioning: A sentence that says why a larger error than usual is accepted: the
            framework's own rounding errors are large. None if the usual limit holds.
        refused: The problem with each layout that was tried before ``layout``.
        reference_seconds: Seconds of one inference with the framework.
        unscheduled: Kernels that no schedule fits, by name, with their share of the network's time.
            Only large shares are listed.
        loops: Functions that are worth tuning although they are no matrix products.
        step_seconds: Wall-clock seconds of each step of the check, by name.
        day: The day on which an earlier run made the report, as ``2026-11-25``; None for this run.
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
    day: str | None = None

    @property
    def summary(self) -> str:
        """The report as one sentence."""
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
                *([f"as an earlier run saw on {self.day}"] if self.day else []),
                *(f"not in {layout}: {problem}" for layout, problem in self.refused.items()),
            ]
        )

    def to_json(self) -> Facts:
        """The report as JSON values, with its summary."""
        return {**attrs.asdict(self), "summary": self.summary}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> CheckReport:
        """Make a report from the result of ``to_json``."""
        return cattrs.structure(value, cls)
