"""How well timings repeat over fresh runs of the runner: the same kernel, and a ranking.

`python benchmarks/timing.py` searches the template space of the quickstart's operator for ten
candidates within 5 % of each other, spread as evenly as they come, then measures them in 16 fresh
runs of the runner. It prints the coefficient of variation of each candidate's cost over the runs
and Kendall's tau between the rankings of every two runs.
"""

from __future__ import annotations

import itertools

import numpy as np
import pipeline_job
from chameleon_core.stages import Runner


def measure(
    runner: Runner, subject: pipeline_job.Subject, configs: list[tuple[int, ...]]
) -> dict[tuple[int, ...], float]:
    """The cost of every configuration in seconds."""
    return {m.config: m.cost for m in runner.measure(subject.job(configs))}


def kendall_tau(one: np.ndarray, other: np.ndarray) -> float:
    """Kendall's rank correlation of two lists of costs (no ties to speak of)."""
    upper = np.triu_indices(len(one), 1)
    signs = np.sign(np.subtract.outer(one, one)) * np.sign(np.subtract.outer(other, other))
    return float(signs[upper].mean())


def close_candidates(
    subject: pipeline_job.Subject, drawn: int, count: int, within: float, seed: int
) -> list[tuple[int, ...]]:
    """Candidates within a fraction of the fastest, spread evenly over it.

    The spread is judged on a second measurement of its own: picking by the very numbers that
    put a candidate near a mark would pick their errors.
    """
    with subject.runner() as runner:
        first = measure(runner, subject, subject.draw(drawn, seed))
        shortlist = sorted(first, key=first.__getitem__)[: 3 * count]
        costs = measure(runner, subject, shortlist)
    fastest = min(costs.values())
    near = {c: cost for c, cost in costs.items() if cost <= fastest * (1.0 + within)}
    chosen: list[tuple[int, ...]] = []
    for mark in np.linspace(fastest, fastest * (1.0 + within), count):
        left = [config for config in near if config not in chosen]
        if left:
            chosen.append(min(left, key=lambda config: abs(near[config] - mark)))
    return chosen


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = pipeline_job.parser(__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=16, help="fresh runs of the runner")
    parser.add_argument("--candidates", type=int, default=10)
    parser.add_argument("--within", type=float, default=0.05, help="how close they are")
    parser.add_argument("--drawn", type=int, default=64, help="candidates searched for them")
    arguments = parser.parse_args()
    subject = pipeline_job.subject_of(arguments)
    configs = close_candidates(
        subject, arguments.drawn, arguments.candidates, arguments.within, arguments.seed
    )
    rows = []
    for _ in range(arguments.runs):
        with subject.runner() as runner:
            costs = measure(runner, subject, configs)
        rows.append([costs[config] for config in configs])
    table = np.array(rows)
    variation = table.std(axis=0, ddof=1) / table.mean(axis=0)
    taus = [kendall_tau(a, b) for a, b in itertools.combinations(table, 2)]
    middle = np.median(table, axis=0)
    pipeline_job.report(
        arguments,
        {
            "operator": subject.task.name,
            "runs": len(table),
            "candidates": len(configs),
            "spread_of_candidates": float(middle.max() / middle.min() - 1.0),
            "coefficient_of_variation_median": float(np.median(variation)),
            "coefficient_of_variation_worst": float(variation.max()),
            "kendall_tau_mean": float(np.mean(taus)),
            "kendall_tau_worst": float(np.min(taus)),
            "milliseconds": [[round(1e3 * cost, 4) for cost in row] for row in rows],
        },
    )


if __name__ == "__main__":
    main()
