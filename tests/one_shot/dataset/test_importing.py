"""What others have measured: run folders, recorded tables, MetaSchedule databases, data sets."""

import base64
import gzip
import json
import math

import numpy as np
import pytest
from chameleon_core.api import Registry
from chameleon_one_shot._dataset import format as on_disk
from chameleon_one_shot._dataset.importing.sources import import_sources, read_source
from chameleon_one_shot._dataset.tasks import DatasetError
from chameleon_runners import hooks as runner_hooks
from synthetic import run_synthetic, synthetic_document, synthetic_registry

TARGET = {"kind": "cuda", "arch": "sm_80"}
BUFFERS = [["TENSOR", "float32", [1, 4]], ["TENSOR", "float32", [4, 8]]]
FAILED = 1e10


def module(*blocks):
    """A module as TVM writes it: a length, and a graph whose nodes name texts by their place."""
    texts = [{"type_key": "runtime.String", "repr_str": block} for block in blocks]
    nodes = [
        {"type_key": "tir.Block", "attrs": {"name_hint": str(number)}}
        for number in range(len(blocks))
    ]
    graph = json.dumps({"root": 0, "nodes": [*texts, *nodes]}).encode()
    return base64.b64encode(len(graph).to_bytes(8, "little") + graph).decode()


def record(tile, unroll, seconds, workload=0, more=()):
    instructions = [
        ["GetBlock", [], ["T_matmul", "main"], ["b0"]],
        ["SamplePerfectTile", ["l1"], [2, 64], ["v1", "v2"]],
        ["SampleCategorical", [], [[0, 16, 512], [0.3, 0.3, 0.4]], ["v3"]],
        *more,
    ]
    return [workload, [[instructions, [[1, tile], [2, unroll]]], seconds, TARGET, BUFFERS]]


def database(folder, records, *, packed=False):
    folder.mkdir()
    workloads = [["111", module("root", "pad", "T_matmul")], ["222", module("root", "pool")]]
    for name, lines in (("a_workload", workloads), ("a_tuning_record", records)):
        text = "".join(json.dumps(line) + "\n" for line in lines).encode()
        if packed:
            (folder / f"{name}.json.gz").write_bytes(gzip.compress(text))
        else:
            (folder / f"{name}.json").write_bytes(text)
    return folder


@pytest.fixture
def registry():
    return synthetic_registry()


@pytest.mark.parametrize("packed", [False, True])
def test_decisions_of_metaschedule_are_knobs(tmp_path, registry, packed):
    records = [
        record([2, 4], 1, [2e-3, 1e-3, 4e-3]),
        record([8, 1], 2, [FAILED]),
        record([1, 8], 0, [5e-3], workload=1),
        record([2, 4], 1, [9e-3]),
        record([2, 4], 1, [7e-3], more=[["EnterPostproc", [], [], []]]),
    ]
    folder = database(tmp_path / "db", records, packed=packed)
    tasks = {
        task.task.arguments["workload"]: task for task in read_source(folder, registry=registry)
    }
    first = tasks["111"]
    assert (first.task.operator, first.task.arguments["blocks"]) == (
        "metaschedule",
        ["pad", "T_matmul"],
    )
    assert first.task.arguments["buffers"] == [["float32", [1, 4]], ["float32", [4, 8]]]
    assert json.loads(first.task.target) == TARGET
    assert first.task.flop == 2 * 8
    assert first.configs is None
    assert first.device == {"kind": "cuda"}
    assert [(row["tile.0"], row["choice.0"]) for row in first.choices] == [
        ([2, 4], 16),
        ([8, 1], 512),
        ([2, 4], 16),
        ([2, 4], 16),
    ]
    assert first.choices[0] == first.choices[2] != first.choices[3]  # another sketch
    assert first.seconds.tolist() == [2e-3, math.inf, 9e-3, 7e-3]
    assert list(first.failures) == [None, "run_error", None, None]
    assert tasks["222"].seconds.tolist() == [5e-3]


def test_what_is_there_twice_is_added_once(tmp_path, registry):
    folder = database(tmp_path / "db", [record([2, 4], 1, [1.0]), record([2, 4], 1, [9.0])])
    [added] = import_sources(tmp_path / "data", [folder], registry=registry)
    assert (added.tasks, added.candidates, added.known) == (1, 1, 1)
    [again] = import_sources(tmp_path / "data", [folder], registry=registry)
    assert (again.tasks, again.candidates, again.known) == (0, 0, 2)
    [task] = on_disk.read_dataset(tmp_path / "data").tasks
    assert task.seconds.tolist() == [1.0]
    assert len(on_disk.parts_of(tmp_path / "data")) == 1


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{", "cannot be read"),
        ("[0, [[[], []]]]", "line 2 of .* is no record"),
        (json.dumps(record([1, 8], 9, [1.0])), "line 2 of .* is no record"),
        (json.dumps(record([1, 8], 1, [1.0], workload=7)), "line 2 of .* is no record"),
    ],
)
def test_a_line_that_is_no_record_is_named(tmp_path, registry, line, problem):
    folder = database(tmp_path / "db", [record([2, 4], 1, [1.0])])
    with (folder / "a_tuning_record.json").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(DatasetError, match=problem):
        read_source(folder, registry=registry)


@pytest.mark.parametrize("line", ["{}", "[]", "null", "3", "[" * 100_000])
def test_a_line_that_is_no_workload_is_named(tmp_path, registry, line):
    folder = database(tmp_path / "db", [record([2, 4], 1, [1.0])])
    (folder / "a_workload.json").write_text(line)
    with pytest.raises(DatasetError, match=r"no workload|cannot be read") as caught:
        read_source(folder, registry=registry)
    assert caught.value.hint


def test_a_run_is_imported_with_what_it_depends_on(tmp_path, registry):
    run_synthetic(synthetic_document(tmp_path / "run", operators=[[9, 11]], failing=30))
    [task] = read_source(tmp_path / "run", registry=registry)
    assert (len(task), task.space, task.source) == (20, "synthetic", "run")
    assert task.configs.shape == (20, 2)
    assert task.fingerprint
    assert list(task.choices[0]) == ["knob0", "knob1"]
    failed = np.array([row is not None for row in task.failures])
    assert 0 < failed.sum() < 20
    np.testing.assert_array_equal(np.isinf(task.seconds), failed)


def test_a_recorded_table_is_imported_whole(tmp_path):
    cache = {
        "1,4": {"x": 1, "y": 4, "time": 2.0, "times": [2.0, 2.5, 1.5]},
        "1,8": {"x": 1, "y": 8, "time": "CompilationFailedConfig"},
        "2,4": {"x": 2, "y": 4, "time": 1.0, "times": [1.0]},
    }
    file = tmp_path / "table.json"
    file.write_text(json.dumps({"tune_params_keys": ["x", "y"], "cache": cache}))
    registry = Registry.from_plugins([runner_hooks], with_installed=True)
    [task] = read_source(file, registry=registry)
    assert task.task.operator == "table"
    whole = {
        (row["x"], row["y"]): (seconds, failure)
        for row, seconds, failure in zip(task.choices, task.seconds, task.failures, strict=True)
    }
    assert whole == {(1, 4): (2e-3, None), (1, 8): (math.inf, "build_error"), (2, 4): (1e-3, None)}


def test_data_sets_are_joined(tmp_path, registry, dataset_task):
    for name, tasks in (
        ("a", [dataset_task(1.0, 2.0)]),
        ("b", [dataset_task(7.0, 8.0, 9.0), dataset_task(3.0, number=1)]),
    ):
        on_disk.create(tmp_path / name)
        on_disk.write_part(tmp_path / name, tasks, name="part")
    added = import_sources(tmp_path / "c", [tmp_path / "a", tmp_path / "b"], registry=registry)
    assert [(row.candidates, row.known) for row in added] == [(2, 0), (2, 2)]
    whole = on_disk.read_dataset(tmp_path / "c")
    assert sorted(sorted(task.seconds.tolist()) for task in whole.tasks) == [[1.0, 2.0, 9.0], [3.0]]


@pytest.mark.parametrize("name", ["nothing", "."])
def test_what_is_none_of_these_is_refused(tmp_path, registry, name):
    with pytest.raises(DatasetError) as caught:
        read_source(tmp_path / name, registry=registry)
    assert "MetaSchedule" in caught.value.hint
