"""Numbers about one trajectory: when it reached a goal, its quality, and its durations."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from chameleon_core.plugin_api import Measurement

from chameleon_bench._cells.trajectory import ROUND_FIELDS, Floats, Trajectory

SECONDS = ("search", "model", "build", "run", "total")
"""The keys of the mapping that ``seconds`` returns."""

STEPS = ("total", "converged", "converged_per_round")
"""The keys of the mapping that ``steps`` returns."""

_COLUMN = {name: index for index, name in enumerate(ROUND_FIELDS)}


def reached(trajectory: Trajectory, cost: float) -> tuple[float, float]:
    """How many measurements and seconds a search needed to reach a cost.

    ``cost`` is the cost to reach, in seconds.
    """
    # Costs are kept to nine digits: equal ones must stay equal. If no valid configuration is known,
    # the goal is infinite, as is the cost of a failure.
    valid = np.isfinite(trajectory.costs)
    there = np.flatnonzero(valid & (trajectory.costs <= cost * (1 + 1e-8)))
    if not len(there):
        return math.inf, math.inf
    first = there[0]
    return float(trajectory.count[first]), float(trajectory.at[first])


def quality(trajectory: Trajectory, measurements: int, best_known: float) -> float:
    """How close a search came to the best known cost after a number of measurements.

    ``best_known`` is the lowest known cost of the operator in seconds.
    """
    until = int(np.searchsorted(trajectory.count, measurements, side="right"))
    best = float(np.min(trajectory.costs[:until], initial=np.inf))
    return best_known / best if math.isfinite(best) else 0.0


def invalid_share(trajectory: Trajectory) -> float:
    """The share of measurements that failed; NaN if nothing was measured."""
    failed = sum(bool(kind) for kind in trajectory.failures)
    return failed / len(trajectory.failures) if trajectory.failures else math.nan


def fallback_share(trajectory: Trajectory) -> float:
    """The share of a search's configurations that were random replacements of unusable ones."""
    known = sum(trajectory.origins.values())
    return trajectory.origins.get(Measurement.Origin.FALLBACK, 0) / known if known else math.nan


def seconds(trajectory: Trajectory) -> dict[str, float]:
    """The seconds that a search spent on each part of its work, and the total."""
    total = float(trajectory.at[-1]) if len(trajectory.at) else 0.0
    parts = SECONDS[:-1]
    if not len(trajectory.rounds):
        return {**dict.fromkeys(parts, math.nan), "total": total}
    last = trajectory.rounds[-1]
    return {
        **{name: float(last[_COLUMN[name]]) for name in parts},
        # The total includes the time for learning from the last batch, after its last measurement.
        "total": total,
    }


def steps(trajectory: Trajectory) -> dict[str, float]:
    """Count the search steps that the explorer took, and its steps until it converged.

    Figures 2 and 7(a) of Ahn et al. (2020) count in this way.
    """
    rounds = trajectory.rounds
    guided = rounds[np.isfinite(rounds[:, _COLUMN["score"]])]
    if not len(guided):
        return dict.fromkeys(STEPS, math.nan)
    converged = guided[:, _COLUMN["converged"]]
    return {
        "total": float(guided[:, _COLUMN["steps"]].sum()),
        "converged": float(converged.sum()),
        "converged_per_round": float(np.median(converged)),
    }


def best_at(trajectory: Trajectory, grid: Floats, over: str) -> Floats:
    """The lowest cost of a search at each point of a grid, shape (g,).

    ``grid`` has rising numbers of measurements or seconds, shape (g,). ``over`` is ``count`` for
    measurements, or ``at`` for seconds.
    """
    until = np.searchsorted(getattr(trajectory, over), grid, side="right")
    best = np.concatenate([[np.inf], trajectory.best_so_far])
    points: Floats = best[until]
    return points


def band(curves: Sequence[Floats]) -> tuple[Floats, Floats, Floats]:
    """Combine the curves of several seeds: lower quartile, median and upper quartile at each point.

    Args:
        curves: One curve per seed, each of shape (g,), at the same g points.

    Returns:
        The three combined curves, each of shape (g,).
    """
    costs = np.array(curves)
    low, high = np.quantile(costs, [0.25, 0.75], axis=0, method="inverted_cdf")
    return low, np.median(costs, axis=0), high
