"""The trajectory of a search: its measurements and rounds over time, as arrays."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

ROUND_FIELDS = ("measured", "steps", "converged", "score", "search", "model", "build", "run")
"""Columns of ``Trajectory.rounds``. Seconds and measurements are totals since the start."""


@attrs.frozen(kw_only=True, eq=False)
class Trajectory:
    """One search on one task, with n measurements.

    Attributes:
        flop: The number of floating-point operations of one evaluation.
        costs: The kernel time of every measurement in seconds, infinity for failures, in order of
            arrival, shape (n,). A rival has the best time of each batch instead.
        failures: The kind of failure of each measurement; empty strings for successes.
        at: The seconds on the run's clock when each measurement arrived, rising, shape (n,).
        count: The number of measurements up to each entry, this one included, shape (n,). It is 1,
            2, 3, ... except for rivals, whose entries are batches.
        rounds: One row per round with the columns ``ROUND_FIELDS``, shape (rounds, 8). The score is
            NaN if the round used no trained cost model.
        best_known: The lowest cost of any configuration in seconds, or None if unknown.
        final_seconds: The winner's time in the final comparison, or None.
        origins: The number of configurations from each ``Measurement.Origin``; empty if not
            recorded.
    """

    operator: str
    flop: float
    costs: Floats
    failures: tuple[str, ...]
    at: Floats
    count: Floats
    rounds: Floats
    best_known: float | None = None
    final_seconds: float | None = None
    origins: Mapping[str, int] = attrs.field(factory=dict)

    @property
    def best_so_far(self) -> Floats:
        """The lowest cost up to each measurement, shape (n,)."""
        best: Floats = np.minimum.accumulate(self.costs) if len(self.costs) else self.costs
        return best

    @property
    def best(self) -> float:
        """The lowest cost in seconds; infinity if no measurement succeeded."""
        return float(np.min(self.costs, initial=np.inf))

    @property
    def measurements(self) -> int:
        """The number of configurations that were measured."""
        return int(self.count[-1]) if len(self.count) else 0

    def to_json(self) -> dict[str, Any]:
        """The trajectory as JSON values, null for infinity and NaN."""
        return {
            "operator": self.operator,
            "flop": self.flop,
            "costs": written(self.costs, 9),
            "failures": {str(i): kind for i, kind in enumerate(self.failures) if kind},
            "at": written(self.at, 7),
            "count": self.count.astype(int).tolist(),
            "rounds": [written(row, 7) for row in self.rounds],
            "best_known": self.best_known,
            "final_seconds": self.final_seconds,
            "origins": dict(self.origins),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Trajectory:
        """The trajectory that ``to_json`` converted."""
        count = len(value["costs"])
        rounds = [[math.nan if x is None else x for x in row] for row in value["rounds"]]
        return cls(
            operator=value["operator"],
            flop=value["flop"],
            costs=np.array([math.inf if x is None else x for x in value["costs"]], float),
            failures=tuple(value["failures"].get(str(index), "") for index in range(count)),
            at=np.array(value["at"], float),
            count=np.array(value["count"], float),
            rounds=np.array(rounds, float).reshape(-1, len(ROUND_FIELDS)),
            best_known=value["best_known"],
            final_seconds=value["final_seconds"],
            origins=value.get("origins", {}),
        )


def written(values: Floats, digits: int) -> list[float | None]:
    """Round numbers to ``digits`` significant digits for JSON.

    Infinity and NaN become None, because JSON does not have them.
    """
    return [float(f"{x:.{digits}g}") if math.isfinite(x) else None for x in values.tolist()]
