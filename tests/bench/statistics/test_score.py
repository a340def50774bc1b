"""The published score, against the authors' package on the same trajectories."""

import json
import types
from pathlib import Path

import numpy as np
import pytest
from chameleon_bench._cells.trajectory import Trajectory
from chameleon_bench._pages.suite_report import score_tables
from chameleon_bench._statistics.score import score_on, scores
from chameleon_bench._statistics.summary import Group
from chameleon_bench._suites.recorded import RecordedSpace
from chameleon_core.plugin_api import FailureKind, Measurement

RUNS = 60

PUBLISHED = {"window": (2, 59), "median_rank": 0.3968319, "mean_rank": 0.1974631, "time": 0.2741}
"""Numbers of autotuning_methodology 1.1.0, which ``published`` computes."""


def measured(cost, build, run):
    """A measurement of some seconds; a failure if the cost is infinite."""
    seconds = {"build_seconds": build, "run_seconds": run, "config": ()}
    if np.isfinite(cost):
        return Measurement(seconds=(cost,), **seconds)
    return Measurement(failure=FailureKind.RUN_ERROR, **seconds)


@pytest.fixture(scope="module")
def recorded():
    """600 measurements with two clusters of costs, a tenth of them failed."""
    rng = np.random.default_rng(61)
    costs = 1e-3 * (1 + rng.gamma(2.0, 0.6, 600) + 2 * (rng.random(600) < 0.4))
    costs[rng.random(600) < 0.1] = np.inf
    return [measured(cost, *rng.uniform(0.2, 2.0, 2)) for cost in costs.tolist()]


def trajectory(measurements):
    """The trajectory of some measurements, one after the other."""
    seconds = [one.build_seconds + one.run_seconds for one in measurements]
    return Trajectory(
        operator="table",
        flop=1.0,
        costs=np.array([one.cost for one in measurements]),
        failures=("",) * len(measurements),
        at=np.cumsum(seconds),
        count=np.arange(1.0, len(measurements) + 1),
        rounds=np.empty((0, 8)),
    )


@pytest.fixture(scope="module")
def runs(recorded):
    """Searches that prefer the better half of what they draw."""
    rng = np.random.default_rng(7)
    made = []
    for _ in range(RUNS):
        drawn = rng.permutation(len(recorded))
        better = [i for i in drawn if recorded[i].cost < 2.5e-3 or rng.random() < 0.5]
        made.append(trajectory([recorded[index] for index in better[:60]]))
    return made


def test_it_is_the_score_of_the_package(recorded, runs):
    space = RecordedSpace.of(recorded)
    score = score_on(space, runs)
    assert space.window == PUBLISHED["window"]
    assert score.median_rank == pytest.approx(PUBLISHED["median_rank"], abs=1e-6)
    assert score.evaluations == pytest.approx(PUBLISHED["mean_rank"], abs=1e-6)
    assert score.over_time.mean() == pytest.approx(PUBLISHED["time"], abs=0.01)
    low, high = np.quantile(score.drawn, [0.025, 0.975])
    assert low < score.evaluations < high


def test_random_search_scores_0_and_the_optimum_at_once_1(recorded):
    space = RecordedSpace.of(recorded)
    rng = np.random.default_rng(3)
    draws = [[recorded[index] for index in rng.permutation(600)[:60]] for _ in range(400)]
    # The baseline leaves failures out, so random search with a tenth of failures is below it.
    assert score_on(space, list(map(trajectory, draws))).evaluations == pytest.approx(
        -0.05, abs=0.1
    )
    best = min(recorded, key=lambda one: one.cost)
    score = score_on(space, [trajectory([best, *draws[0]])])
    assert np.isnan(score.drawn).all()
    assert score.evaluations == score.median_rank == 1.0
    assert score.over_time.mean() == pytest.approx(1.0)


def test_runs_without_a_valid_configuration_have_the_worst_rank(recorded):
    failed = [one for one in recorded if not one.ok]
    score = score_on(RecordedSpace.of(recorded), [trajectory(failed[:20])])
    assert score.evaluations < 0
    assert np.isnan(score.over_time).all()


def test_scores_are_means_over_spaces_of_the_pipelines_that_have_all(recorded, runs):
    space = RecordedSpace.of(recorded)
    best = min(recorded, key=lambda one: one.cost)
    ideal = [trajectory([best, *recorded[:60]])] * 2
    searches = {"plain": runs[:10], "ideal": ideal, "part": runs[:10]}
    groups = [
        Group(
            pipeline=pipeline,
            task=task,
            budget=None,
            best_known=best.cost,
            exhaustive=True,
            runs=dict(enumerate(made)),
            failures={},
        )
        for task in ("one", "two")
        for pipeline, made in searches.items()
        if (pipeline, task) != ("part", "two")
    ]
    report = scores(groups, {"one": space, "two": space})
    first, second = report["pipelines"]
    assert (first["pipeline"], first["evaluations"]) == ("ideal", 1.0)
    plain = score_on(space, runs[:10])
    assert second["evaluations"] == pytest.approx(plain.evaluations)
    assert (second["lead"], report["leader"]) == (None, "plain")
    assert first["lead"]["mean"] == pytest.approx(plain.evaluations - 1)
    assert first["lead"]["low"] <= first["lead"]["mean"] <= first["lead"]["high"] < 0
    assert report["spaces"]["one"]["evaluations"] == 59
    total, each = score_tables(report).values()
    assert total.header[-1] == "less than plain"
    assert [row[0] for row in total.rows] == ["ideal", "plain"]
    assert each.rows[1][4] == "-"


@pytest.mark.full
def test_the_numbers_of_the_package(recorded, runs, tmp_path):
    pytest.importorskip("autotuning_methodology")
    computed = published(recorded, runs, tmp_path)
    assert computed.pop("window") == PUBLISHED["window"]
    for name, value in computed.items():
        assert value == pytest.approx(PUBLISHED[name], abs=1e-6 if name != "time" else 0.005)


def published(recorded, runs, folder):
    """The numbers that autotuning_methodology computes of the same trajectories."""
    from autotuning_methodology.baseline import RandomSearchCalculatedBaseline  # noqa: PLC0415
    from autotuning_methodology.curves import StochasticOptimizationAlgorithm  # noqa: PLC0415
    from autotuning_methodology.report_experiments import (  # noqa: PLC0415
        get_strategies_aggregated_performance,
    )
    from autotuning_methodology.searchspace_statistics import SearchspaceStatistics  # noqa: PLC0415

    file = folder / "t4.json"
    rows = [
        {
            "times": {"compilation": one.build_seconds, "runtimes": [one.run_seconds]},
            "measurements": [
                {"name": "time", "value": one.cost if one.ok else "RuntimeFailedConfig"}
            ],
        }
        for one in recorded
    ]
    file.write_text(
        json.dumps(
            {"schema_version": "1.0.0", "results": rows, "metadata": {"timeunit": "seconds"}}
        )
    )
    stats = SearchspaceStatistics(
        "kernel", "device", True, ["compilation", "runtimes"], ["time"], Path(file), False
    )
    first, last, begin, end = stats.cutoff_point_fevals_time_start_end(0.01, 0.95)
    best = np.array([run.best_so_far for run in runs]).T
    best[np.isinf(best)] = np.nan
    at = np.array([run.at for run in runs]).T
    results = types.SimpleNamespace(
        fevals_results=np.array([run.count for run in runs]).T,
        objective_time_results=at,
        objective_time_results_per_key=at[None],
        objective_performance_best_results=best,
        objective_performance_results_per_key=best[None],
    )
    names = dict.fromkeys(("group_name", "device_name", "application_name"), "a")
    about = {**names, "stochastic": True, "minimization": True, "get_results": lambda: results}
    curve = StochasticOptimizationAlgorithm(types.SimpleNamespace(**about))
    baseline = RandomSearchCalculatedBaseline(stats)
    times, counts = np.linspace(begin, end, 10_000), np.arange(first, last + 1)
    values = stats.objective_performances_total_sorted
    over = curve.get_curve_over_fevals(counts, values, 0.95, return_split=False)[2]
    ranks = np.nanmean(np.where(np.isnan(best), np.nan, np.searchsorted(values, best)), axis=1)
    means = values[np.rint(ranks[counts - 1]).astype(int)]
    spaces = [(baseline, [curve], stats, times, counts)]
    over_time = [get_strategies_aggregated_performance(spaces, 0.95)[0][0] for _ in range(50)]
    return {
        "window": (first, last),
        "median_rank": float(baseline.get_standardised_curve(counts, over, "fevals").mean()),
        "mean_rank": float(baseline.get_standardised_curve(counts, means, "fevals").mean()),
        "time": float(np.mean(over_time)),
    }
