"""The tables that come with the tests are small, and come of the command that is named there."""

import gzip
import importlib.util
import json

import pytest

MOST_BYTES = 200_000


@pytest.fixture(scope="module")
def cut(root):
    spec = importlib.util.spec_from_file_location("cut_table", root / "tests/data/cut_table.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.cut


def tables(root):
    return sorted((root / "tests" / "data").glob("*.json.gz"))


def test_they_are_small_and_named_with_their_command(root):
    readme = (root / "tests" / "data" / "README.md").read_text()
    assert tables(root)
    assert sum(file.stat().st_size for file in tables(root)) <= MOST_BYTES
    for file in tables(root):
        assert f"{file.name} tests/data/{file.name}\n" in readme


def test_cutting_what_was_cut_changes_nothing(root, cut):
    for file in tables(root):
        table = json.loads(gzip.decompress(file.read_bytes()))
        means_alone = not any("times" in row for row in table["cache"].values())
        assert cut(table, means_alone=means_alone) == table


def test_the_median_of_the_repeats_stays(cut):
    parameters = {"x": 1}
    times = [float(row) for row in range(32, 0, -1)]
    rows = {
        "1": {**parameters, "time": 16.5, "times": times, "compile_time": 918.6, "GFLOP/s": 7.0},
        "2": {"x": 2, "time": "RuntimeFailedConfig", "compile_time": 250.0, "framework_time": 13.0},
    }
    result = cut({"tune_params_keys": ["x"], "cache": rows, "extra": 1}, means_alone=False)
    assert result == {
        "tune_params_keys": ["x"],
        "cache": {
            "1": {
                **parameters,
                "time": 16.5,
                "times": [8.0, 16.0, 17.0, 25.0],
                "compile_time": 920.0,
                "GFLOP/s": 7.0,
            },
            "2": {
                "x": 2,
                "time": "RuntimeFailedConfig",
                "compile_time": 250.0,
                "benchmark_time": 10.0,
            },
        },
    }
