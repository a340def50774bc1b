"""Figures of one trajectory: when it reached a goal, how good it was, where its time went."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from chameleon_core.loop.round.batch import Origin

from chameleon_bench.cells.trajectory import ROUND_FIELDS, Floats, Trajectory

SECONDS = ("search", "model", "build", "run", "total")
"""The keys of what ``seconds`` returns."""

STEPS = ("total", "converged", "converged_per_round")
"""The keys of what ``steps`` returns."""

_COLUMN = {name: index for index, name in enumerate(ROUND_FIELDS)}


def reached(trajectory: Trajectory, cost: float) -> tuple[float, float]:
    """Measurements and seconds until a cost was reached; infinity if it never was.

    Args:
        trajectory: the search.
        cost: in seconds.
    """
    # Costs are kept to nine digits: equal ones must stay equal.
    # Where nothing is known to be valid the goal is infinite, as the cost of a failure is.
    valid = np.isfinite(trajectory.costs)
    there = np.flatnonzero(valid & (trajectory.costs <= cost * (1 + 1e-8)))
    if not len(there):
        return math.inf, math.inf
    first = there[0]
    return float(trajectory.count[first]), float(trajectory.at[first])


def quality(trajectory: Trajectory, measurements: int, best_known: float) -> float:
    """Best known cost over the lowest cost after so many measurements, 0 if there was none.

    A search that ended earlier keeps what it had.
    """
    until = int(np.searchsorted(trajectory.count, measurements, side="right"))
    best = float(np.min(trajectory.costs[:until], initial=np.inf))
    return best_known / best if math.isfinite(best) else 0.0


def invalid_share(trajectory: Trajectory) -> float:
    """The share of measurements that gave no time; NaN if nothing was measured."""
    failed = sum(bool(kind) for kind in trajectory.failures)
    return failed / len(trajectory.failures) if trajectory.failures else math.nan


def fallback_share(trajectory: Trajectory) -> float:
    """The share of measurements that no stage proposed; NaN if nobody recorded it."""
    known = sum(trajectory.origins.values())
    return trajectory.origins.get(Origin.FALLBACK, 0) / known if known else math.nan


def seconds(trajectory: Trajectory) -> dict[str, float]:
    """The seconds of search, model, build and run, and all of them; NaN if nobody knows.

    Workers build in parallel, so the parts can be more than the whole.
    """
    total = float(trajectory.at[-1]) if len(trajectory.at) else 0.0
    parts = SECONDS[:-1]
    if not len(trajectory.rounds):
        return {**dict.fromkeys(parts, math.nan), "total": total}
    last = trajectory.rounds[-1]
    return {
        **{name: float(last[_COLUMN[name]]) for name in parts},
        # Learning from the last batch comes after its last measurement.
        "total": total,
    }


def steps(trajectory: Trajectory) -> dict[str, float]:
    """Search steps: in all, until convergence in all, and until convergence in a round (median).

    Convergence as in figures 2 and 7(a) of the paper: the step after which the surrogate score
    of the best candidate rises no more. Rounds without a trained model have none.
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
    """The lowest cost at points of a grid of measurements or seconds, infinity before the first.

    Args:
        trajectory: the search.
        grid: rising, shape (g,).
        over: ``count`` or ``at``.
    """
    until = np.searchsorted(getattr(trajectory, over), grid, side="right")
    best = np.concatenate([[np.inf], trajectory.best_so_far])
    points: Floats = best[until]
    return points


def band(curves: Sequence[Floats]) -> tuple[Floats, Floats, Floats]:
    """Lower quartile, median and upper quartile over seeds at every point; each shape (g,).

    The median is that of ``estimate``: the mean of the middle two if their number is even.
    """
    costs = np.array(curves)
    low, high = np.quantile(costs, [0.25, 0.75], axis=0, method="inverted_cdf")
    return low, np.median(costs, axis=0), high
