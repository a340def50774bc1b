"""A tiny recorded table, and real ones."""

import gzip
import json
from pathlib import Path

import pytest
from chameleon_core._pipeline.load import from_dict
from chameleon_runners._replay.options import TableOptions
from chameleon_runners._replay.stages import TableFrontend

RECORDED = Path(__file__).parents[2] / "data"


def tiny_cache():
    """A cache of 4 x 3 parameter values and one constant, two rows of it absent, two failed."""
    cache = {}
    for x in (8, 16, 32, 4):
        for y in (1, 2, 4):
            if (x, y) in {(4, 4), (8, 1)}:
                continue
            row = {"x": x, "y": y, "constant": 15}
            if (x, y) == (32, 4):
                row |= {"time": "CompilationFailedConfig", "compile_time": 500.0}
            elif (x, y) == (32, 2):
                row |= {"time": "RuntimeFailedConfig", "compile_time": 250.0}
            else:
                times = [x / y + repeat / 10 for repeat in range(5)]
                row |= {
                    "time": sum(times) / 5,
                    "times": times,
                    "compile_time": 1000.0,
                    "benchmark_time": 100.0,
                    "verification_time": 10.0,
                    "framework_time": 1.0,
                    "strategy_time": 7e9,
                    "GFLOP/s": 2.0 / (sum(times) / 5) * 1e3 / 1e9,
                }
            cache[f"{x},{y},15"] = row
    return {
        "tune_params_keys": ["x", "y", "constant"],
        "tune_params": {"x": [8, 16, 32, 4], "y": [1, 2, 4], "constant": [15]},
        "cache": cache,
    }


@pytest.fixture
def tiny(tmp_path):
    """The tiny cache as a compressed file."""
    file = tmp_path / "tiny.json.gz"
    file.write_bytes(gzip.compress(json.dumps(tiny_cache()).encode()))
    return file


@pytest.fixture
def skewed(tmp_path):
    """A T4 file whose best configurations by the objective and by the median differ."""
    rows = [
        {
            "configuration": {"x": x},
            "times": {"compilation": 100.0, "framework": 1.0, "runtimes": runtimes},
            "invalidity": "correct",
            "measurements": [{"name": "time", "value": sum(runtimes) / 3, "unit": "ms"}],
        }
        for x, runtimes in ((1, [2.0, 2.0, 8.0]), (2, [3.0, 3.0, 3.0]))
    ]
    file = tmp_path / "skewed.json"
    file.write_text(json.dumps({"results": rows, "schema_version": "1.0.0"}))
    return file


@pytest.fixture(scope="session")
def recorded():
    """Finds a real table (tests/data/README.md)."""

    def find(name):
        return RECORDED / f"{name}.json.gz"

    return find


def tasks_of(*paths):
    """The tasks that the frontend makes of some files."""
    return TableFrontend(TableOptions(paths=tuple(map(str, paths)))).tasks("native")


def pipeline(table, output, **more):
    """A pipeline that replays a table and needs no TVM, except for reading the target."""
    return from_dict(
        {
            "model": {"table": str(table)},
            "target": "llvm",
            "space": "table",
            "explorer": "random",
            "cost_model": "xgboost",
            "sampler": "greedy",
            "synthesizer": "none",
            "runner": "replay",
            "baselines": [],
            "budget": {"measurements": 48, "batch_size": 16},
            "output": str(output),
            **more,
        }
    )
