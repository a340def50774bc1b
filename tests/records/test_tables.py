"""Measurements as tables for other tools, read back by the readers that there are."""

import csv
import io
import json
import sys

import attrs
import pytest
from chameleon_core._errors import ChameleonError
from chameleon_core.api import RecordStore
from chameleon_records._locations import open_database
from chameleon_records._tables.export import as_parquet, dataframe, write_rows
from chameleon_records._tables.rows import rows_of
from chameleon_runners._replay.readers import tables_at

from .synthetic import key_of, record_of


@pytest.fixture
def export(chameleon_records):
    return lambda *words: chameleon_records("export", *words, "--json")


@pytest.fixture
def database(tmp_path):
    """A database with two operators, of different arguments and knobs, and failures."""
    made = open_database(str(tmp_path / "all.sqlite"))
    other = key_of((5,), operator="other", arguments={"size": 3, "layout": "NHWC", "pads": [1, 2]})
    crashed = record_of((2, 2), (), 7.0, failure="crash", message='gone, "so"\nand so')
    invalid = record_of((3, 2), (), 8.0, failure="invalid", message="no")
    good = [record_of((0, 1), (1e-3, 3e-3, 2e-3), 5.0), record_of((1, 1), (4e-3,), 6.0)]
    made.add({key_of(): [*good, crashed, invalid], other: [record_of((4,), (5e-6,), 9.0)]})
    made.close()
    return tmp_path / "all.sqlite"


def test_csv_has_a_row_for_each_measurement(export, database, tmp_path):
    told = export(tmp_path / "t.csv", "--from", database, "--to", "csv")
    assert told == {"files": [str(tmp_path / "t.csv")], "measurements": 5}
    text = (tmp_path / "t.csv").read_bytes().decode()
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert len(rows) == 5
    [fast] = [row for row in rows if row["seconds"] == "0.002"]
    assert json.loads(fast["repeats"]) == [1e-3, 3e-3, 2e-3]
    assert (fast["operator"], fast["knob.knob0"], fast["knob.knob1"]) == ("synthetic", "0", "1")
    assert json.loads(fast["argument.cardinalities"]) == [9, 9]
    [removed] = [row for row in rows if row["failure"] == "crash"]
    assert removed["message"] == 'gone, "so"\nand so'
    assert removed["seconds"] == ""
    [other] = [row for row in rows if row["operator"] == "other"]
    assert (other["argument.layout"], other["knob.knob1"]) == ("NHWC", "")


def test_parquet_and_frames_keep_types(export, database, tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    pytest.importorskip("pandas")
    export(tmp_path / "t.parquet", "--from", database, "--to", "parquet")
    table = parquet.read_table(tmp_path / "t.parquet").to_pylist()
    frame = dataframe(str(database))
    assert len(table) == len(frame) == 5
    assert sorted(frame["seconds"].dropna()) == pytest.approx([5e-6, 2e-3, 4e-3])
    for written, shown in zip(table, frame.to_dict("records"), strict=True):
        assert written["repeats"] == shown["repeats"]
        assert written["configuration"] == shown["configuration"]
        assert written["failure"] == (None if shown["seconds"] > 0 else shown["failure"])
        assert written["measured_at"] == shown["measured_at"].timestamp()
    assert {row["argument.size"] for row in table} == {None, 3}


def test_a_run_folder_says_where_configurations_came_from(export, run, tmp_path):
    run("one", seed=1)
    rows = rows_of(str(tmp_path / "one"))
    with RecordStore.of_run(tmp_path / "one") as store:
        [stored] = store.tasks()
        kept = store.measurements(stored.id)
        assert [row.origin for row in rows] == store.origins(stored.id)
        assert [dict(row.record.knobs) for row in rows] == store.decoded(stored.id)
    assert [row.record.measurement for row in rows] == kept
    assert {row.task for row in rows} == {stored.task.name}
    assert any(row.origin for row in rows)
    assert export(tmp_path / "one.jsonl", "--from", tmp_path / "one")["records"] == len(kept)


@pytest.mark.parametrize("form", ["kernel-tuner", "t4"])
def test_kernel_tuner_s_files_are_read_back(export, form, database, tmp_path):
    told = export(tmp_path / "tables", "--from", database, "--to", form)
    assert len(told["files"]) == 2
    rows = rows_of(str(database))
    for file in told["files"]:
        [table] = tables_at(file)
        own = [row for row in rows if file.endswith(f"{row.task}.json")]
        assert len(table.measurements) == len(own)
        decoded = [table.space().decode(config) for config in table.configs]
        for row in own:
            values = {name: row.record.knobs[name] for name in decoded[0]}
            outcome = table.measurements[decoded.index(values)]
            assert outcome.seconds == pytest.approx(row.record.measurement.seconds)
            if row.record.measurement.failure is not None:
                kind = {"crash": "run_error", "invalid": "invalid"}[row.record.measurement.failure]
                assert outcome.failure == kind


def test_a_run_is_replayed_from_what_it_exports(export, run, tmp_path):
    run("one", seed=1)
    [recorded] = tables_at(str(tmp_path / "one"))
    for form in ("kernel-tuner", "t4"):
        [file] = export(tmp_path / form, "--from", tmp_path / "one", "--to", form)["files"]
        [table] = tables_at(file)
        assert sorted(table.medians) == pytest.approx(sorted(recorded.medians))


@pytest.mark.parametrize(
    ("library", "made"),
    [("pyarrow", lambda place: as_parquet(rows_of(place))), ("pandas", dataframe)],
)
def test_a_missing_library_is_named(library, made, database, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ChameleonError, match=f"{library} is needed to") as caught:
        made(str(database))
    assert f"pip install {library}" in caught.value.hint


def test_what_cannot_be_exported_is_said(export, tmp_path):
    open_database(str(tmp_path / "none.sqlite")).close()
    with pytest.raises(ChameleonError, match="there are no records at"):
        export(tmp_path / "t.csv", "--from", tmp_path / "none.sqlite", "--to", "csv")
    with pytest.raises(ChameleonError, match=r"does not end with \.jsonl") as caught:
        export(tmp_path / "t.csv", "--from", tmp_path)
    assert "--to csv" in caught.value.hint


def test_each_task_has_a_file_of_its_own(database, tmp_path):
    """Also where two have one name, as in two design spaces, and a third one that of its file."""
    [row, *_] = rows_of(str(database))
    rows = [
        attrs.evolve(row, task=name, key=attrs.evolve(row.key, fingerprint=fingerprint))
        for name, fingerprint in (("a", "1"), ("a_2", "1"), ("a", "2"), ("a 2", "1"), ("a", "3"))
    ]
    files = write_rows(rows, "t4", tmp_path / "t4")
    assert [one.name for one in files] == [
        *("a.json", "a_2.json", "a_3.json", "a_2_2.json", "a_4.json")
    ]
    assert sorted(files) == sorted((tmp_path / "t4").iterdir())
