"""``chameleon dataset`` in this process."""

import json

import pytest
from chameleon_cli._main import run as chameleon
from chameleon_core._errors import ExitCode
from chameleon_one_shot._dataset import format as on_disk


@pytest.fixture
def dataset(tmp_path, plugins, dataset_task):
    """Makes a data set of tasks."""

    def make(name, *tasks):
        on_disk.create(tmp_path / name)
        on_disk.write_part(tmp_path / name, tasks, name="part")
        return tmp_path / name

    return make


def told(capsys):
    return json.loads(capsys.readouterr().out)


def test_collect_and_collect_again(plan_file, plugins, tmp_path, capsys):
    command = ["dataset", "collect", str(plan_file()), "--json", "--set", "tasks=2"]
    for _ in range(2):
        assert chameleon(command) == ExitCode.OK
        assert told(capsys) == {
            "dataset": str(tmp_path / "data"),
            "tasks": 2,
            "candidates": 20,
            "failed_runs": [],
        }


def test_collect_says_what_is_wrong_with_a_plan(plan_file, plugins, capsys):
    assert chameleon(["dataset", "collect", str(plan_file(taks=3))]) == ExitCode.USAGE
    assert "did you mean 'tasks'?" in capsys.readouterr().err


def test_merge_and_list(dataset, dataset_task, tmp_path, capsys):
    first = dataset("one", dataset_task(1.0, None))
    two = dataset("two", dataset_task(1.0, number=1, source="there"))
    target = tmp_path / "both"
    command = ["dataset", "merge", str(first), str(two), "--to", str(target), "--json"]
    assert chameleon(command) == ExitCode.OK
    assert [source["candidates"] for source in told(capsys)["sources"]] == [2, 1]
    assert chameleon(["dataset", "list", str(target), "--json"]) == ExitCode.OK
    assert told(capsys) == {
        "dataset": str(target),
        "tasks": 2,
        "candidates": 3,
        "failed": {"crash": 1},
        "operators": {"grid": 2},
        "devices": {"llvm": 3},
        "sources": {"here": 2, "there": 1},
        "threads": {"2": 3},
    }
    assert chameleon(["dataset", "list", str(target)]) == ExitCode.OK
    assert "2 tasks, 3 candidates" in capsys.readouterr().out


def test_merge_takes_data_sets_alone(dataset, dataset_task, tmp_path, capsys):
    first = dataset("one", dataset_task(1.0))
    (tmp_path / "other").mkdir()
    command = ["dataset", "merge", str(first), str(tmp_path / "other"), "--to", str(tmp_path / "x")]
    assert chameleon(command) == ExitCode.USAGE
    assert "is no data set" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_check_says_what_training_needs(dataset, dataset_task, capsys):
    good = dataset("good", dataset_task(1.0, 2.0), dataset_task(1.0, 2.0, number=1))
    assert chameleon(["dataset", "check", str(good), "--json"]) == ExitCode.OK
    assert told(capsys)["errors"] == []
    alone = dataset("alone", dataset_task(1.0, 2.0), dataset_task(1.0, None, number=1, device={}))
    assert chameleon(["dataset", "check", str(alone), "--json"]) == ExitCode.NO_VALID_RESULT
    result = told(capsys)
    assert result["errors"] == [
        "1 of 2 tasks have two valid candidates or more, and training needs 2 such tasks"
    ]
    assert len(result["warnings"]) == 2


def test_check_names_every_part_that_is_damaged(dataset, dataset_task, capsys):
    folder = dataset("some", dataset_task(1.0, 2.0), dataset_task(1.0, 2.0, number=1))
    for name in ("a", "b"):
        (folder / on_disk.PARTS / f"{name}.parquet").write_bytes(b"PAR1")
    assert chameleon(["dataset", "check", str(folder)]) == ExitCode.NO_VALID_RESULT
    out = capsys.readouterr().out
    assert "1 parts, 4 candidates" in out
    assert "a.parquet cannot be read" in out
    assert "b.parquet cannot be read" in out
