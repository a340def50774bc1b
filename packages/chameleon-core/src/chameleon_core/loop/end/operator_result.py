"""The result of one operator, and of the contenders of its final comparison."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attr
import attrs
import cattrs

from chameleon_core.spending import Spending

TUNED = "tuned"
"""Name of the contenders that are configurations of the space."""

_FLAGS = {"recorded", "predicted"}
"""Keys that are in JSON only if they are true."""


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


@attrs.frozen(kw_only=True)
class OperatorResult:
    """The outcome of one task. Times are in seconds, None where there is none.

    Attributes:
        name: the task's name.
        task: the task as JSON values.
        space: name of the space provider.
        fingerprint: the design space's.
        config: knob indices of the winner, or None where nothing succeeded.
        alternatives: other configurations nearly as fast; what else a network may be tried with.
        best: the winner decoded, or None.
        search_seconds: the winner's cost when it was found; ``tuned_seconds`` is the later,
            interleaved measurement.
        max_relative_error: of the winner's outputs (``Measurement.max_relative_error``).
        guesses: what else there is where the winner was not checked here, the best ones first.
        recorded: whether the winner was built, checked and timed in another run alone.
        predicted: whether nothing was measured and the first of ``guesses`` is what the cost model,
            trained beforehand, predicts to be best.
        measurements: configurations measured, failures included.
        origins: how many came from where (``loop.round.batch.Origin``), as far as recorded.
        failed: failures by kind.
        failure: the first failure of the most frequent kind in words, or None.
        ended: why it got no further batch, as half a sentence; None where an earlier version did
            not say.
        spending: where the wall-clock went.
        variants: the final comparison.
    """

    name: str
    task: Mapping[str, Any]
    space: str
    fingerprint: str
    config: tuple[int, ...] | None = None
    alternatives: tuple[tuple[int, ...], ...] = ()
    best: Mapping[str, Any] | None = None
    search_seconds: float | None = None
    max_relative_error: float | None = None
    guesses: tuple[tuple[int, ...], ...] = ()
    recorded: bool = False
    predicted: bool = False
    measurements: int = 0
    origins: Mapping[str, int] = attrs.field(factory=dict)
    failed: Mapping[str, int] = attrs.field(factory=dict)
    failure: str | None = None
    ended: str | None = None
    spending: Spending = attrs.field(factory=Spending)
    variants: tuple[VariantResult, ...] = ()

    def seconds_of(self, name: str) -> float | None:
        """The best time of a baseline, over its variants."""
        return _fastest(v.seconds for v in self.variants if v.name == name)

    @property
    def tuned_seconds(self) -> float | None:
        """The winner's time in the final comparison."""
        return self.seconds_of(TUNED)

    @property
    def untuned_seconds(self) -> float | None:
        """The fastest baseline that is no vendor's."""
        return _fastest(v.seconds for v in self.variants if v.name != TUNED and not v.vendor)

    @property
    def vendor_seconds(self) -> float | None:
        """The fastest of the vendors' baselines."""
        return _fastest(v.seconds for v in self.variants if v.vendor)

    @property
    def ratio(self) -> float | None:
        """Vendor's time over the tuned one: above 1 the tuned kernel is faster."""
        tuned, vendor = self.tuned_seconds, self.vendor_seconds
        return vendor / tuned if tuned and vendor else None

    @property
    def gflops(self) -> float | None:
        """Speed of the tuned kernel in GFLOP/s."""
        tuned = self.tuned_seconds
        return float(self.task["flop"]) / tuned / 1e9 if tuned else None

    def to_json(self) -> dict[str, Any]:
        """What ``run --json`` prints of an operator, and what ``from_json`` needs."""
        values = attr.asdict(self, filter=lambda field, value: field.name not in _FLAGS or value)
        return {
            "name": self.name,
            "untuned_seconds": self.untuned_seconds,
            "tuned_seconds": self.tuned_seconds,
            "vendor_seconds": self.vendor_seconds,
            "ratio": self.ratio,
            "gflops": self.gflops,
            "wall_seconds": self.spending.total,
            "spent_seconds": values.pop("spending"),
            **values,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> OperatorResult:
        """The inverse of ``to_json``."""
        return cattrs.structure({**value, "spending": value["spent_seconds"]}, cls)


def _fastest(seconds: Any) -> float | None:
    return min((value for value in seconds if value is not None), default=None)
