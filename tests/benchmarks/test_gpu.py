"""The script for GPUs: what it reads off its results, and all of it with the CPU standing in."""

import json
import sys

import gpu_figures as figures
import pytest
from chameleon_bench._suites.load import load_suite
from programs import completed

from .conftest import BENCHMARKS

SMALL = """
title: small
pipelines:
  SA: local
  AE+AS: {preset: local, explorer: random}
space: template
runner: {name: cuda, cold_bytes: 1048576, compare_rounds: 3, workers: 1}
tasks:
  - name: L0
    operator: {conv2d: {input: [1, 16, 8, 8], filters: 16, kernel: 3, padding: 1}}
budget: {measurements: 8, batch_size: 4}
"""


def side(owner, seconds, seed=0, failure=None, variant=""):
    return {
        "owner": owner,
        "seed": seed,
        "variant": variant,
        "seconds": seconds,
        "failure": failure,
    }


def compared(*sides):
    return {"flop": 2e9, "sides": list(sides)}


def chased(pipeline, task, share, reaches="SA"):
    seconds = None if share is None else {"median": share, "reached": 3, "of": 3}
    return {"pipeline": pipeline, "task": task, "reaches": reaches, "share_of_seconds": seconds}


COMPARISONS = {
    "L1": compared(
        side("cudnn", 4e-3, None, variant="nchw"),
        side("cudnn", 2e-3, None, variant="nhwc"),
        side("AE+AS", 1e-3, 0),
        side("AE+AS", 9e-3, 0),
        side("AE+AS", 3e-3, 1),
        side("AE+AS", 1.5e-3, 2),
        side("SA", 4e-3),
        side("metaschedule", 3e-3),
    ),
    "L2": compared(
        side("cudnn", 1e-3, None),
        side("AE+AS", 2e-3),
        side("SA", None, failure="crash: it ended"),
        side("metaschedule", 1e-3),
    ),
}
PIPELINES = ["SA", "AE+AS", "metaschedule"]


def summed(figures, rows=(), comparisons=COMPARISONS):
    searched = {"catching_up": rows, "pipelines": PIPELINES}
    return figures.figures(comparisons, searched, vendor="cudnn", rival="metaschedule")


def test_a_layer_is_the_median_of_its_seeds_bests_against_the_vendors_best():
    layer = summed(figures)["layers"]["L1"]
    assert layer["AE+AS"]["seconds"] == 1.5e-3
    assert layer["AE+AS"]["seconds_by_seed"] == [1e-3, 3e-3, 1.5e-3]
    assert layer["AE+AS"]["speed_against_vendor"] == pytest.approx(2 / 1.5)
    assert layer["AE+AS"]["speed_against_rival"] == pytest.approx(2.0)
    assert layer["SA"]["gflops"] == pytest.approx(500.0)


def test_shares_are_of_the_layers_on_which_both_have_a_kernel():
    against = summed(figures)["against"]
    assert against["cudnn"]["AE+AS"]["layers"] == 2
    assert against["cudnn"]["AE+AS"]["share"] == 0.5
    assert against["cudnn"]["AE+AS"]["geometric_mean"] == pytest.approx((2 / 1.5 / 2) ** 0.5)
    assert against["cudnn"]["SA"] == {
        "layers": 1,
        "at_least_as_fast": 0,
        "share": 0.0,
        "geometric_mean": 0.5,
    }
    assert "metaschedule" not in against["metaschedule"]


@pytest.mark.parametrize(
    ("shares", "met"), [((0.2, 0.22), True), ((0.2, 0.4), False), ((0.1, None), False)]
)
def test_the_goals(shares, met):
    rows = [chased("AE+AS", f"L{n + 1}", 0.0) for n in range(2)]
    for row, share in zip(rows, shares, strict=True):
        row["share_of_seconds"]["median"] = share
    rows += [chased("SA", "L1", 0.9, reaches="AE+AS"), chased("AE", "L1", 0.5)]
    result = summed(figures, rows)
    ablation = result["ablation"]["AE+AS"]
    assert set(result["ablation"]) == {"AE+AS", "AE"}
    assert ablation["never"] == (["L2"] if shares[1] is None else [])
    assert [goal["met"] for goal in result["goals"]] == [met, True]


def test_what_was_not_measured_meets_no_goal_and_is_listed_with_its_reason():
    broken = {
        "L1": compared(side("cudnn", None, None, "run_error: built without CUDA"), side("SA", 1e-3))
    }
    result = summed(figures, [chased("AE+AS", "L1", None)], broken)
    assert [goal["met"] for goal in result["goals"]] == [None, None]
    assert result["missing"] == [
        "cudnn on L1: run_error: built without CUDA",
        "AE+AS on L1: no search found a kernel",
        "metaschedule on L1: no search found a kernel",
    ]


def test_the_suite_is_table_5_in_float32_for_every_tuner():
    suite = load_suite(BENCHMARKS / "suites" / "gpu.yaml", ["target=cuda -arch=sm_80"])
    assert suite.tasks == [f"L{number}" for number in range(1, 9)]
    assert suite.pipelines == ["SA", "AE", "SA+AS", "AE+AS", "default", "metaschedule"]
    assert {pairing.document["budget"]["wall_time"] for pairing in suite.pairings} == {300.0}
    assert {pairing.document["runner"]["name"] for pairing in suite.pairings} == {"cuda"}


def run(*words, **more):
    return completed([sys.executable, BENCHMARKS / "gpu.py", *words], None, **more)


def test_without_a_gpu_it_says_what_else_there_is(tmp_path):
    done = run(env={"PATH": str(tmp_path)}, cwd=tmp_path)
    assert done.returncode == 1
    assert "--target native" in done.stderr


@pytest.mark.long
def test_the_cpu_stands_in_and_nothing_is_done_twice(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "small.yaml").write_text(SMALL)
    words = ("--target", "native", "--suite", "small.yaml", "--seconds", "20", "--seeds", "1")
    first = run(*words, "--json", "gpu.json", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    value = json.loads((tmp_path / "gpu.json").read_text())
    assert value["stands_in"]
    assert (value["vendor"], value["missing"], value["failed_searches"]) == ("onednn", [], {})
    assert set(value["layers"]["L0"]) == {"onednn", "SA", "AE+AS"}
    assert value["machine"]["versions"]["apache-tvm"]
    assert all(side["max_relative_error"] < 1e-4 for side in value["comparisons"]["L0"]["sides"])
    again = run(*words, "--layers", "L0", cwd=tmp_path)
    assert "comparing" not in again.stderr
    assert json.loads(again.stdout)["layers"] == value["layers"]
    unknown = run(*words, "--layers", "L9", cwd=tmp_path)
    assert "there is no layer L9; there are L0" in unknown.stderr
