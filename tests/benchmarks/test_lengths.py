"""Sizes that are drawn after a build, and the table of their times."""

import pytest
from lengths import rows_of, sizes_of


def test_sizes_are_within_the_buckets():
    axes = {"length": [[0, 1, 0.0]], "batch": [[0, 0, None]]}
    buckets = {"length": [32, 128], "batch": [1, 8]}
    dimensions = [{"name": n, "buckets": buckets[n], "axes": axes[n]} for n in axes]
    drawn = [
        dict(pair.split("=") for pair in size.split(","))
        for size in sizes_of({"dimensions": dimensions}, 200, 0)
    ]
    assert {int(size["batch"]) for size in drawn} == {1, 8}, "without padding, a bucket itself"
    lengths = [int(size["length"]) for size in drawn]
    assert 1 <= min(lengths) < 8
    assert 96 < max(lengths) <= 128


def test_the_best_framework_computes_in_float32():
    times = {"network": 2e-3, "torch": 5e-3, "openvino": 3e-3, "openvino as it comes": 1e-3}
    rows = {name: {"median_seconds": seconds} for name, seconds in times.items()}
    rows["openvino as it comes"]["precision"] = "bfloat16"
    [row] = rows_of({"length=7": {"contenders": rows}})
    assert row == ("length=7", 2e-3, "openvino", 3e-3, pytest.approx(1.5))
