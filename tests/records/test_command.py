"""``chameleon records``, and ``records:`` of a pipeline and of the command line."""

import time

import pytest
from chameleon_core._errors import ChameleonError
from chameleon_core._pipeline.load import from_dict
from chameleon_records import hooks
from chameleon_records._commands.group import command
from chameleon_records._locations import default_place, open_database, user_location
from click.testing import CliRunner
from synthetic import synthetic_document, synthetic_registry

from .synthetic import contents, key_of, record_of


@pytest.fixture
def full(tmp_path):
    """A database of three keys: another compiler's, another target's, and one like neither."""
    database = open_database(str(tmp_path / "full.sqlite"))
    old = key_of(conditions={"versions": {"apache-tvm": "0.26.0"}})
    there = key_of(target='{"kind":"llvm","mcpu":"znver2"}')
    now = time.time()
    crashed = record_of((2, 2), (), now, failure="crash", message="gone")
    records = [record_of((i, 0), (1e-3 * (1 + i),), now) for i in range(5)]
    aged = record_of((0, 1), (1e-4,), now - 7200.0)
    database.add({old: records[:1], there: records[:2], key_of(): [*records, aged, crashed]})
    database.close()
    return tmp_path / "full.sqlite"


def test_a_run_s_measurements_are_added_merged_and_exported(chameleon_records, run, tmp_path):
    run("one", seed=1)
    run("two", seed=2)
    runs = (tmp_path / "one", tmp_path / "two")
    told = chameleon_records("add", *runs, "--to", tmp_path / "a.sqlite", "--json")
    ((_, records),) = contents(open_database(told["database"])).items()
    assert told["changed"] == len(records) > 20
    again = chameleon_records("add", *runs, "--to", tmp_path / "a.sqlite", "--json")
    assert again["changed"] == 0
    file = tmp_path / "all.jsonl"
    told = chameleon_records("export", file, "--from", tmp_path / "a.sqlite", "--json")
    assert told == {"file": str(file), "records": len(records)}
    told = chameleon_records("merge", tmp_path / "b", file, tmp_path / "a.sqlite", "--json")
    assert told["changed"] == len(records)
    assert contents(open_database(str(tmp_path / "b"))) == contents(open_database(str(file)))


def test_what_a_run_took_is_not_its_own(chameleon_records, run, tmp_path):
    place = str(tmp_path / "db.sqlite")
    run("one", seed=1, records=place)
    run("two", seed=2, records=place)
    told = chameleon_records("add", tmp_path / "two", "--to", tmp_path / "b.sqlite", "--json")
    assert told["changed"] == 0


def test_a_list_tells_tasks_counts_and_best_times(chameleon_records, full):
    found = chameleon_records("list", full, "--json")["tasks"]
    assert {one["key"]: (one["records"], one["failed"]) for one in found} == {
        key_of().digest: (7, 1),
        key_of(target='{"kind":"llvm","mcpu":"znver2"}').digest: (2, 0),
        key_of(conditions={"versions": {"apache-tvm": "0.26.0"}}).digest: (1, 0),
    }
    (own,) = (one for one in found if one["key"] == key_of().digest)
    assert own["best_seconds"] == 1e-4
    assert own["arguments"] == key_of().arguments
    assert "3 tasks" in chameleon_records("list", full)
    assert "0 tasks" in chameleon_records("list", full, "--operator", "other")
    assert chameleon_records("list", full, "--operator", "other", "--json")["tasks"] == []


@pytest.mark.parametrize(
    ("options", "left"),
    [
        (["--version", "apache-tvm=0.26.0"], [2, 7]),
        (["--target", "znver2"], [1, 7]),
        (["--older-than", "1h"], [1, 2, 6]),
        (["--best", "3"], [1, 2, 3]),
        (["--best", "1", "--target", "znver2", "--version", "apache-tvm=0.26.0"], [1]),
    ],
)
@pytest.mark.parametrize("place", ["copy.sqlite", "copy"])
def test_pruning_removes_what_is_named(chameleon_records, full, place, options, left):
    place = full.with_name(place)
    chameleon_records("merge", place, full)
    tried = chameleon_records("prune", place, *options, "--dry-run", "--json")
    assert sum(map(len, contents(open_database(str(place))).values())) == 10
    told = chameleon_records("prune", place, *options, "--json")
    assert told == tried
    assert sorted(map(len, contents(open_database(str(place))).values())) == left
    assert told["removed"] == 10 - sum(left)


def test_pruning_wants_to_be_told_what(chameleon_records, full):
    told_of = {
        "name what is to go": "",
        "'--older-than': 'soon' is no duration": "--older-than soon",
        "write NAME=VERSION": "--version apache-tvm",
        "nothing was removed": "--best 1 --dry-run",
    }
    for told, options in told_of.items():
        words = ["prune", str(full), *options.split()]
        assert told in CliRunner().invoke(command, words).output


def test_commands_say_what_they_cannot_do(chameleon_records, full, tmp_path):
    with pytest.raises(ChameleonError, match="there are no records at"):
        chameleon_records("list", tmp_path / "none.sqlite")
    with pytest.raises(ChameleonError, match="does not end with"):
        chameleon_records("export", tmp_path / "all.txt", "--from", full)
    chameleon_records("export", tmp_path / "all.jsonl", "--from", full)
    exported = tmp_path / "all.jsonl"
    for words in (("merge", exported, full), ("prune", exported, "--best", "1")):
        with pytest.raises(ChameleonError, match="can only be read"):
            chameleon_records(*words)
    with pytest.raises(ChameleonError, match="no run folder"):
        chameleon_records("add", tmp_path)


# -- the pipeline's key ----------------------------------------------------------------------------


def pipeline(tmp_path, **more):
    document = synthetic_document(tmp_path / "run", **more)
    return from_dict(document, registry=synthetic_registry(hooks), folder=tmp_path)


def test_a_place_is_a_file_or_a_server(tmp_path):
    resolved = pipeline(tmp_path, records=["here.sqlite", "https://host/records"])
    places = [spec.options.location for spec in resolved.records]
    assert places == [str(tmp_path / "here.sqlite"), "https://host/records"]


def test_where_the_users_own_records_are(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert user_location() == tmp_path / "chameleon" / "records.sqlite"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert user_location() == tmp_path / "home/.local/share/chameleon/records.sqlite"
    monkeypatch.setenv("CHAMELEON_RECORDS", str(tmp_path / "elsewhere"))
    assert default_place() == str(tmp_path / "elsewhere")
    monkeypatch.setenv("CHAMELEON_RECORDS", "none")
    assert default_place() == str(user_location()), "commands work on it all the same"


def test_no_folder_is_bound_by_its_databases(tmp_path):
    plain, sharing = pipeline(tmp_path), pipeline(tmp_path, records="there.sqlite")
    assert plain.digest == sharing.digest
