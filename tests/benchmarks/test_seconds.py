"""Quality over seconds, read off what a run's events say."""

import argparse

import seconds
from chameleon_core._events import BestImproved, Measured, RunStarted
from chameleon_core._measurement import Spending


def _improved(listener, task, best, spent):
    listener.chameleon_measured(
        Measured(task=task, config=(0,), seconds=best, failure=None, spent=Spending(measure=spent))
    )
    listener.chameleon_best_improved(
        BestImproved(task=task, seconds=best, gflops=1.0, measured=1, knobs={})
    )


def test_the_sum_is_known_once_every_operator_has_a_time():
    listener = seconds.Improvements()
    started = RunStarted(
        folder="",
        seed=0,
        tasks=[],
        batch_size=1,
        total_measurements=None,
        settled={"wall_seconds": 5.0},
    )
    listener.chameleon_run_started(started)
    _improved(listener, "a", 4e-3, 10.0)
    _improved(listener, "b", 2e-3, 20.0)
    _improved(listener, "a", 1e-3, 30.0)
    assert [note.at for note in listener.notes] == [15.0, 35.0, 55.0]
    rows = seconds.quality(listener.notes, {"a": 1, "b": 2}, [10, 30, 40, 60])
    assert [row["operators_timed"] for row in rows] == [0, 1, 2, 2]
    assert [row["kernels_ms"] for row in rows] == [None, None, 8.0, 5.0]
    assert [row["quality"] for row in rows] == [None, None, 0.625, 1.0]


def test_one_budget_for_the_network_whatever_the_file_says(tmp_path):
    file = tmp_path / "p.yaml"
    file.write_text(
        "model: {builtin: {network: resnet_small}}\ntarget: native\nscheduler: gradient\n"
        "budget: {measurements: 400, batch_size: 4}\n"
    )
    for network in (str(file), "resnet_small"):
        options = argparse.Namespace(network=network, seed=0)
        budget = seconds.pipeline_of(options, 30.0, tmp_path / "run").budget
        assert (budget.measurements, budget.wall_time) == (None, 30.0)
        assert budget.scope == "network"
        assert budget.batch_size == (4 if network == str(file) else None)
