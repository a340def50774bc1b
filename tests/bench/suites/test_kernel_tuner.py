"""Kernel Tuner's strategies as rivals on a recorded table, which is written as a cache file."""

import json
import math
import sys
import types
from pathlib import Path

import pytest
from chameleon_bench._rivals import KernelTunerOptions
from chameleon_bench._rivals.kernel_tuner import KernelTuner
from chameleon_bench._suites.load import load_suite
from chameleon_core._errors import ConfigError
from chameleon_core.plugin_api import create_stage

SUITE = """\
score: true
pipelines:
  random: {explorer: random, cost_model: none, sampler: greedy, synthesizer: none}
  pso: {rival: kernel-tuner, strategy: pso}
tasks: [{name: small, table: small.json}]
"""


@pytest.fixture
def table(tmp_path):
    """A T4 file of 6 x 30 configurations, one in seven of which failed."""
    rows = []
    for x in range(6):
        for y in range(30):
            time = 1 + abs(x - 2) + abs(y - 17) / 9
            failed = (x + 3 * y) % 7 == 0
            rows.append(
                {
                    "configuration": {"x": 2**x, "y": y},
                    "times": {"compilation": 900.0, "benchmark": 100.0},
                    "invalidity": "runtime" if failed else "correct",
                    "measurements": [{"name": "time", "value": time, "unit": "ms"}],
                }
            )
    file = tmp_path / "small.json"
    file.write_text(json.dumps({"results": rows, "schema_version": "1.0.0"}))
    return file


@pytest.fixture
def task(table):
    (task,) = create_stage("frontends", {"name": "table", "paths": str(table)}).tasks("")
    return task


def tuned(task, strategy, **limits):
    given = {"measurements": 25, "wall_seconds": None, "seed": 3, **limits}
    return KernelTuner(KernelTunerOptions(strategy=strategy)).tune(task, **given)


def test_results_become_points_and_the_cache_has_the_whole_table(task, monkeypatch):
    def tune_kernel(*given, cache, strategy_options, **_more):
        tune_params = given[-1]
        rows = json.loads(Path(cache).read_text(encoding="utf-8"))["cache"]
        assert list(rows) == [f"{x},{y}" for x in tune_params["x"] for y in tune_params["y"]]
        assert strategy_options == {"max_fevals": 25}
        chosen = [rows[key] for key in ("1,0", "4,17", "4,17", "1,1", "4,16")]
        return [{**row, "strategy_time": 500.0} for row in chosen], {}

    fake = types.SimpleNamespace(tune_kernel=tune_kernel)
    monkeypatch.setitem(sys.modules, "kernel_tuner", fake)
    monkeypatch.setitem(sys.modules, "constraint", types.SimpleNamespace(FunctionConstraint=str))
    trace = tuned(task, "pso")
    # Each evaluation takes a second, and each answer of the strategy half a second.
    assert trace.at_seconds == pytest.approx((1.5, 3.0, 5.0, 6.5))
    assert trace.measurements == (1, 2, 3, 4)
    assert trace.best_seconds == pytest.approx((math.inf, 1e-3, 1e-3, 1e-3))
    assert (trace.failed, trace.final_seconds) == (1, pytest.approx(1e-3))


def test_without_kernel_tuner_the_message_says_how_to_install_it(task, monkeypatch):
    monkeypatch.setitem(sys.modules, "kernel_tuner", None)
    with pytest.raises(ConfigError, match="cannot be imported") as caught:
        tuned(task, "pso")
    assert "pip install kernel_tuner==" in caught.value.hint


def test_a_suite_with_a_score_has_the_budget_of_the_space_and_replays_rivals(table):
    file = table.with_name("suite.yaml")
    file.write_text(SUITE)
    suite = load_suite(file)
    space = suite.spaces["small"]
    assert (space.size, len(space.values)) == (180, 154)
    assert {row.pipeline: row.measurements for row in suite.pairings} == {
        "random": space.budget,
        "pso": space.budget,
    }
    assert not any(row.measures_hardware for row in suite.pairings)


@pytest.mark.full
@pytest.mark.parametrize(
    "strategy",
    ["genetic_algorithm", "simulated_annealing", "pso", "hybrid_vndx", "adaptive_tabu_greywolf"],
)
def test_strategies_of_kernel_tuner_repeat_with_a_seed(task, strategy):
    pytest.importorskip("kernel_tuner")
    first, again = tuned(task, strategy), tuned(task, strategy)
    assert first.best_seconds == again.best_seconds
    assert 2 <= len(first.measurements) <= 25
    assert first.final_seconds < 5e-3
