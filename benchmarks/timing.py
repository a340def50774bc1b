"""How well timings repeat over fresh runs of the runner: the same kernel, and a ranking.

`python benchmarks/timing.py` searches the template space of the quickstart's operator for ten
candidates within 5 % of each other, spread as evenly as they come, then measures them in 16 fresh
runs of the runner. It prints the coefficient of variation of each candidate's cost over the runs
and Kendall's tau between the rankings of every two runs.
"""

from __future__ import annotations

import argparse
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


def spread_out(
    costs: dict[tuple[int, ...], float], reach: float, count: int
) -> list[tuple[int, ...]]:
    """Candidates whose costs lie evenly between the lowest and ``reach`` times the lowest."""
    fastest = min(costs.values())
    left = {config: cost for config, cost in costs.items() if cost <= reach * fastest}
    picked = []
    for mark in np.linspace(fastest, reach * fastest, min(count, len(left))):
        nearest = min(left, key=lambda config: abs(left[config] - mark))
        del left[nearest]
        picked.append(nearest)
    return picked


def close_candidates(
    subject: pipeline_job.Subject, arguments: argparse.Namespace
) -> list[tuple[int, ...]]:
    """Candidates within a fraction of the fastest, spread evenly over it.

    Random candidates first, then neighbours of the fastest ones until enough are close. Those
    that look close are measured once more before some are picked: picking by the very numbers
    that put a candidate near a mark would pick their errors.
    """
    generator = np.random.default_rng(arguments.seed)
    reach = 1.0 + arguments.within
    with subject.runner() as runner:
        known = measure(runner, subject, subject.draw(arguments.drawn, arguments.seed))
        for _ in range(arguments.rounds):
            ranked = sorted(known, key=known.__getitem__)
            close = [c for c in ranked if known[c] <= reach * known[ranked[0]]]
            if len(close) >= 4 * arguments.candidates:
                break
            seeds = spread_out(known, 1.02 * reach, 8)
            around = np.concatenate([subject.space.neighbours(c) for c in seeds])
            fresh = {tuple(row) for row in around.tolist()} - set(known)
            order = generator.permutation(len(fresh))[: arguments.drawn]
            chosen = [sorted(fresh)[place] for place in order]
            known |= measure(runner, subject, chosen)
        shortlist = spread_out(known, reach * 1.02, 2 * arguments.candidates)
        costs = measure(runner, subject, shortlist)
    picked = spread_out(costs, reach, arguments.candidates)
    if len(picked) < arguments.candidates:
        raise SystemExit(
            f"only {len(picked)} candidates are within {arguments.within:.0%} of the fastest; "
            "raise --drawn or --rounds"
        )
    return picked


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = pipeline_job.parser(__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=16, help="fresh runs of the runner")
    parser.add_argument("--candidates", type=int, default=10)
    parser.add_argument("--within", type=float, default=0.05, help="how close they are")
    parser.add_argument("--drawn", type=int, default=64, help="candidates measured a round")
    parser.add_argument("--rounds", type=int, default=6, help="rounds of search for them at most")
    arguments = parser.parse_args()
    subject = pipeline_job.subject_of(arguments)
    configs = close_candidates(subject, arguments)
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
