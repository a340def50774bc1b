"""Data sets on disk: what is written is read, and what is damaged is refused by name."""

import json
import sys
from unittest.mock import Mock

import attrs
import numpy as np
import pyarrow.parquet as pq
import pytest
from chameleon_one_shot._dataset import format as on_disk
from chameleon_one_shot._dataset.tasks import DatasetError, canonical


def same(one, other):
    """Whether two tasks are alike in all but their names, which a data set makes their keys."""
    values = [attrs.asdict(task, recurse=False) for task in (one, other)]
    assert len({value.pop("task").key for value in values}) == 1
    np.testing.assert_equal(*values)


def test_what_is_written_is_read(tmp_path, dataset_task):
    tasks = [
        dataset_task(1e-3, None, 2e-3),
        dataset_task(0.5, number=1, configs=None, origins=["initial"]),
    ]
    on_disk.create(tmp_path, {"tasks": 2})
    on_disk.write_part(tmp_path, tasks, name="one")
    result = on_disk.read_dataset(tmp_path)
    assert (result.candidates, result.duplicates, result.plan) == (4, 0, {"tasks": 2})
    by_key = {task.task.key: task for task in result.tasks}
    same(by_key[tasks[0].task.key], tasks[0])
    assert by_key[tasks[1].task.key].configs is None
    assert by_key[tasks[1].task.key].origins == ["initial"]


def test_a_missing_pyarrow_is_named_before_anything_is_measured(tmp_path, monkeypatch):
    on_disk.create(tmp_path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for step in (on_disk.create, lambda folder: on_disk.read_part(folder / "a.parquet")):
        with pytest.raises(DatasetError, match="need pyarrow") as caught:
            step(tmp_path)
        assert "pip install pyarrow" in caught.value.hint


def test_the_first_of_two_measurements_stands(tmp_path, dataset_task):
    on_disk.create(tmp_path)
    on_disk.write_part(tmp_path, [dataset_task(1.0, 2.0)], name="a")
    on_disk.write_part(tmp_path, [dataset_task(5.0, 6.0, 7.0)], name="b")
    [task] = (result := on_disk.read_dataset(tmp_path)).tasks
    assert task.seconds.tolist() == [1.0, 2.0, 7.0]
    assert result.duplicates == 2


@pytest.mark.parametrize(
    "more", [{"device": {"kind": "llvm", "cores": 4}}, {"threads": 1}, {"fingerprint": "g"}]
)
def test_another_device_or_space_is_another_candidate(tmp_path, dataset_task, more):
    on_disk.create(tmp_path)
    on_disk.write_part(tmp_path, [dataset_task(1.0), dataset_task(2.0, **more)], name="a")
    result = on_disk.read_dataset(tmp_path)
    assert (len(result.tasks), result.candidates, result.duplicates) == (2, 2, 0)


def test_the_order_of_keys_tells_no_candidates_apart():
    assert canonical({"a": 1, "b": [2]}) == canonical({"b": [2], "a": 1})


def test_a_part_that_is_cut_off_is_named(tmp_path, dataset_task, monkeypatch):
    on_disk.create(tmp_path)
    file = on_disk.write_part(tmp_path, [dataset_task(1.0, 2.0)], name="a")
    file.write_bytes(file.read_bytes()[:-50])
    with pytest.raises(DatasetError, match=r"a\.parquet cannot be read") as caught:
        on_disk.read_dataset(tmp_path)
    assert "other parts" in caught.value.hint
    monkeypatch.setattr(pq, "read_table", Mock(side_effect=OSError))
    with pytest.raises(DatasetError, match="damaged: OSError"):
        on_disk.read_dataset(tmp_path)
    monkeypatch.setattr(pq, "read_table", Mock(side_effect=OSError("x" * 9999)))
    with pytest.raises(DatasetError, match=r"damaged: x{300}\n"):
        on_disk.read_dataset(tmp_path)


@pytest.mark.parametrize(
    ("column", "value", "problem"),
    [
        ("seconds", float("nan"), "the time inf and no failure"),
        ("seconds", -1.0, "the time -1.0 and no failure"),
        ("failure", "crash", "both a time and a failure"),
        ("failure", "bored", "the failure 'bored'"),
        ("task", "0" * 24, "not that of its task"),
        ("knobs", "{", "has invalid values"),
    ],
)
def test_a_row_that_cannot_be_is_refused(tmp_path, dataset_task, column, value, problem):
    on_disk.create(tmp_path)
    file = on_disk.write_part(tmp_path, [dataset_task(1.0)], name="a")
    table = pq.read_table(file)
    index = table.column_names.index(column)
    field = table.schema.field(index)
    changed = table.set_column(index, column, [[value]])
    assert field.name == column
    pq.write_table(changed, file)
    with pytest.raises(DatasetError, match=problem) as caught:
        on_disk.read_dataset(tmp_path)
    assert str(file) in str(caught.value)


def test_a_time_that_is_none_is_not_written(tmp_path, dataset_task):
    wrong = dataset_task(1.0, 2.0, seconds=np.array([1.0, np.nan]))
    with pytest.raises(DatasetError, match="the time nan and no failure"):
        on_disk.write_part(tmp_path, [wrong], name="a")
    assert on_disk.parts_of(tmp_path) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"format": 99}', "format 99"),
        *((text, "names no format") for text in ("{}", "3")),
        *((text, "cannot be read") for text in ("", "{", "[" * 100_000)),
    ],
)
def test_what_is_no_data_set_of_ours_is_refused(tmp_path, text, problem):
    (tmp_path / on_disk.MANIFEST).write_text(text)
    for use in (on_disk.read_dataset, on_disk.create):
        with pytest.raises(DatasetError, match=problem) as caught:
            use(tmp_path)
        assert caught.value.hint


def test_a_folder_without_a_manifest_is_none(tmp_path):
    with pytest.raises(DatasetError, match="is no data set"):
        on_disk.read_dataset(tmp_path)


def test_a_manifest_keeps_its_plan(tmp_path):
    on_disk.create(tmp_path, {"seed": 1})
    on_disk.create(tmp_path)
    assert json.loads((tmp_path / on_disk.MANIFEST).read_text())["plan"] == {"seed": 1}


def test_a_part_has_a_name_that_is_a_file(tmp_path, dataset_task):
    with pytest.raises(DatasetError, match="no name for a part"):
        on_disk.write_part(tmp_path, [dataset_task(1.0)], name="../a")
