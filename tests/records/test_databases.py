"""Every kind of database: merging, several writers, and what is broken or a stranger's."""

import functools
import http.server
import json
import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import attrs
import pytest
from chameleon_records._databases.folder import FolderDatabase
from chameleon_records._databases.parts import INDEX, is_part, parts_of
from chameleon_records._format import RecordsError, Table, dump, load
from chameleon_records._locations import open_database
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from .synthetic import contents, found, key_of, record_of

PLACES = ["db.sqlite", "folder"]


@pytest.fixture(params=PLACES)
def place(request, tmp_path):
    return str(tmp_path / request.param)


@settings(max_examples=12)
@given(parts=st.lists(found, min_size=1, max_size=4), order=st.randoms(use_true_random=False))
@pytest.mark.parametrize("name", PLACES)
def test_merging_is_idempotent_and_in_any_order(tmp_path_factory, name, parts, order):
    folder = tmp_path_factory.mktemp("merged")
    one, other = (open_database(str(folder / f"{which}-{name}")) for which in ("one", "other"))
    for part in parts:
        one.add(part)
    shuffled = [*parts, parts[0]]
    order.shuffle(shuffled)
    for part in shuffled:
        other.add(part)
    assert other.add(one.all_records()) == 0
    assert one.add(other.all_records()) == 0
    again = open_database(str(folder / f"one-{name}"))
    assert contents(again) == contents(open_database(str(folder / f"other-{name}")))
    assert dump(again.all_records()) == dump(Table(reversed(parts)).all_records())
    for database in (one, other, again):
        database.close()


@given(found)
def test_a_file_holds_what_was_written(records):
    written = dump(Table([records]).all_records())
    assert dump(load(written, "file")) == written
    assert b"\x1b" not in written, "what would control a terminal is no part of a message"


def test_of_two_the_faster_stays_and_a_success_before_a_failure(place):
    key = key_of()
    database = open_database(place)
    failed = record_of((1, 1), (), failure="crash")
    assert database.add({key: [failed]}) == 1
    assert database.add({key: [record_of((1, 1), (2e-3,))]}) == 1
    assert database.add({key: [failed]}) == 0
    assert database.add({key: [record_of((1, 1), (1e-3,)), record_of((1, 1), (3e-3,))]}) == 1
    (kept,) = open_database(place).records(key)
    assert kept.measurement.seconds == (1e-3,)


WRITER = """
import sys
from tests.records.synthetic import key_of, record_of
from chameleon_records._locations import open_database
first = int(sys.argv[1])
for line in sys.stdin:
    for index in range(first, first + 20):
        open_database(line.strip()).add({key_of(): [record_of((index, 0))]})
    print("added", flush=True)
"""


def test_two_processes_write_at_once(place):
    """Each makes the database, which the other may be about to do, or to open."""
    root = str(Path(__file__).parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, root])}
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", WRITER, str(first)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        for first in (0, 20)
    ]
    places = [f"{index}-{Path(place).name}" for index in range(12 if "." in place else 1)]
    for name in places:
        for writer in writers:
            writer.stdin.write(f"{Path(place).with_name(name)}\n")
            writer.stdin.flush()
        assert [writer.stdout.readline() for writer in writers] == ["added\n"] * 2
        assert len(open_database(str(Path(place).with_name(name))).records(key_of())) == 40
    for writer in writers:
        writer.communicate()


def test_nearest_keys_are_of_one_family(place):
    database = open_database(place)
    own, near, other = key_of(), key_of((9, 8), fingerprint="g"), key_of(target="elsewhere")
    database.add({key: [record_of((0, 0))] for key in (own, near, other)})
    assert set(open_database(place).keys(own)) == {own, near}
    assert set(open_database(place).keys()) == {own, near, other}


# -- what is broken --------------------------------------------------------------------------------


def test_a_run_folders_file_is_none(tmp_path):
    path = tmp_path / "records.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE measurements (id INTEGER)")
    with pytest.raises(RecordsError, match="is no record database"):
        open_database(str(path))


def test_a_file_with_programs_in_it_is_refused(tmp_path):
    path = tmp_path / "db.sqlite"
    database = open_database(str(path))
    database.add({key_of(): [record_of((0, 0))]})
    database.close()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TRIGGER t AFTER INSERT ON keys BEGIN DELETE FROM records; END")
    with pytest.raises(RecordsError, match="triggers or views"):
        open_database(str(path))


def test_every_cut_of_a_file_is_noticed():
    whole = dump({key_of(): [record_of((0, 0)), record_of((1, 0))]})
    for length in range(len(whole) - 1):
        with pytest.raises(RecordsError):
            load(whole[:length], "file")
    lines = whole.splitlines(keepends=True)
    with pytest.raises(RecordsError, match="cut off"):
        load(b"".join([*lines[:2], *lines[3:]]), "file")


def test_an_index_has_the_parts_that_others_add_meanwhile(tmp_path, monkeypatch):
    folder = tmp_path / "folder"
    one, other = FolderDatabase(folder), FolderDatabase(folder)
    names = FolderDatabase._names

    def late(self):
        """The names, after which the other writer adds its own part."""
        found = names(self)
        monkeypatch.setattr(FolderDatabase, "_names", names)
        other.add({key_of(): [record_of((1, 0))]})
        return found

    monkeypatch.setattr(FolderDatabase, "_names", late)
    one.add({key_of(): [record_of((0, 0))]})
    written = sorted(file.name for file in folder.iterdir() if is_part(file.name))
    assert len(written) == 2
    assert parts_of((folder / INDEX).read_bytes(), INDEX) == written


def test_a_half_written_part_is_named_and_the_others_count(tmp_path):
    folder = tmp_path / "folder"
    for index in range(2):
        open_database(str(folder)).add({key_of(): [record_of((index, 0))]})
    parts = sorted(one.name for one in folder.iterdir() if is_part(one.name))
    (folder / parts[0]).write_bytes((folder / parts[0]).read_bytes()[:50])
    (folder / ".part-of-somebody").write_bytes(b"not yet whole")
    with capture_logs() as logs:
        database = open_database(str(folder))
    assert [(one["event"], one["part"]) for one in logs] == [("records_left_out", parts[0])]
    assert len(database.records(key_of())) == 1
    # Pruning leaves alone what it could not read.
    assert database.prune(lambda key, records: []) == 1
    assert [one.name for one in folder.iterdir() if is_part(one.name)] == [parts[0]]


def without_permission(path):
    """A database that cannot be written, whoever runs the tests."""
    path.chmod(0o555)
    return os.access(path, os.W_OK)


@pytest.mark.parametrize("name", PLACES)
def test_a_read_only_share_is_read_and_not_added_to(tmp_path, name, monkeypatch):
    folder = tmp_path / "share"
    place = str(folder / name)
    database = open_database(place)
    database.add({key_of(): [record_of((0, 0))]})
    database.close()
    if without_permission(folder / name) | without_permission(folder):
        # The superuser may write everywhere, but for this.
        monkeypatch.setattr("chameleon_records._databases.folder.os.access", lambda *_: False)
        monkeypatch.setattr(
            "chameleon_records._databases.sqlite.RecordsFile._open_to_write", refuse
        )
    try:
        database = open_database(place)
        assert len(database.records(key_of())) == 1
        assert not database.writable
        database.close()
    finally:
        folder.chmod(0o755)
        (folder / name).chmod(0o755)


def test_a_file_that_is_locked_is_read_and_added_to_later(tmp_path, monkeypatch):
    place = str(tmp_path / "db.sqlite")
    open_database(place).add({key_of(): [record_of((0, 0))]})
    connect = sqlite3.connect
    writer = connect(place, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    monkeypatch.setattr(
        sqlite3, "connect", lambda *words, **more: connect(*words, **{**more, "timeout": 0.0})
    )
    database, pruned = open_database(place), open_database(place)
    assert len(database.records(key_of())) == 1
    assert database.writable
    with pytest.raises(RecordsError, match="locked"):
        database.add({key_of(): [record_of((1, 0))]})
    writer.execute("COMMIT")
    assert database.add({key_of(): [record_of((1, 0))]}) == 1
    assert len(database.records(key_of())) == 2
    assert pruned.prune(lambda key, records: []) == 2
    for one in (database, pruned, writer):
        one.close()


def refuse(_self):
    error = sqlite3.OperationalError("attempt to write a readonly database")
    error.sqlite_errorname = "SQLITE_READONLY"
    raise error


HOSTILE = [
    ('{"config":[0,0],"knobs":{},"seconds":[NaN],"measured_at":1}', "NaN is no number"),
    ('{"config":[0,0],"knobs":{},"seconds":[1e999],"measured_at":1}', "finite"),
    ('{"config":[0,0],"knobs":{},"seconds":[-1.0],"measured_at":1}', "not negative"),
    ('{"config":[0,0],"knobs":{},"seconds":[0],"measured_at":1}', "times are positive"),
    ('{"config":[0,true],"knobs":{},"seconds":[1],"measured_at":1}', "list of indices"),
    ('{"config":[-1],"knobs":{},"seconds":[1],"measured_at":1}', "not negative"),
    ('{"config":["__import__(\'os\')"],"knobs":{},"seconds":[1],"measured_at":1}', "indices"),
    ('{"config":[0],"knobs":{},"measured_at":1}', "times or a failure"),
    ('{"config":[0],"knobs":{},"failure":"luck","measured_at":1}', "not a valid FailureKind"),
    ('{"config":[0],"seconds":[1],"measured_at":1}', "knobs"),
    ('{"key":{"operator":3}}', "target|text"),
    ('{"key":{"operator":"o","target":"t","space":"s","fingerprint":"f","arguments":'
     '{"a":' + "[" * 100 + "]" * 100 + '},"conditions":{}}}', "nested"),
    ("[" * 100_000, "no JSON"),
    ("!!python/object/apply:os.system ['true']", "no JSON"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "said"), HOSTILE, ids=[said for _, said in HOSTILE])
def test_what_no_record_can_be_is_refused(line, said):
    head, key, _, end = dump({key_of(): [record_of((0, 0))]}).decode().splitlines()
    with pytest.raises(RecordsError, match=said):
        load(f"{head}\n{key}\n{line}\n{end}".encode(), "file")


def test_a_file_that_is_none_or_newer():
    for content in (b"", b"\x80\x04pickle", b"[]\n", b'{"format":"other","version":1}\n'):
        with pytest.raises(RecordsError, match="holds no records"):
            load(content, "file")
    with pytest.raises(RecordsError, match="has the format 2"):
        load(b'{"format":"chameleon-records","version":2}\n{"end":0}\n', "file")
    with pytest.raises(RecordsError, match="cannot be read from"):
        open_database("ftp://somewhere/records")


def test_a_row_that_is_none_is_left_out(tmp_path):
    path = tmp_path / "db.sqlite"
    database = open_database(str(path))
    database.add({key_of(): [record_of((0, 0)), record_of((1, 0))]})
    database.close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE records SET record = '{}' WHERE config = '[0,0]'")
    with capture_logs() as logs:
        (kept,) = open_database(str(path)).records(key_of())
    assert kept.measurement.config == (1, 0)
    assert [one["event"] for one in logs] == ["record_left_out"]


# -- over HTTP -------------------------------------------------------------------------------------


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def server(tmp_path):
    """A server of a folder: its URL, and the folder."""
    folder = tmp_path / "hosted"
    folder.mkdir()
    handler = functools.partial(Quiet, directory=str(folder))
    served = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=served.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{served.server_port}", folder
    served.shutdown()
    served.server_close()
    thread.join()


def test_an_exported_file_and_a_folder_are_read_over_http(server):
    url, folder = server
    records = {key_of(): [record_of((0, 0))], key_of((9, 8)): [record_of((1, 0))]}
    (folder / "all.jsonl").write_bytes(dump(records))
    FolderDatabase(folder / "parts").add(records)
    for place in (f"{url}/all.jsonl", f"{url}/parts", f"{url}/parts/"):
        database = open_database(place)
        assert contents(database) == contents(open_database(str(folder / "all.jsonl")))
        assert not database.writable
        with pytest.raises(RecordsError, match="can only be read"):
            database.add(records)


def test_what_a_server_has_wrong_is_refused_or_left_out(server):
    url, folder = server
    with pytest.raises(RecordsError, match="cannot read"):
        open_database(f"{url}/none")
    parts = folder / "parts"
    FolderDatabase(parts).add({key_of(): [record_of((0, 0))]})
    FolderDatabase(parts).add({key_of(): [record_of((1, 0))]})
    name = min(one.name for one in parts.iterdir() if is_part(one.name))
    (parts / name).write_bytes(dump({key_of(): [record_of((2, 0))]}))
    with capture_logs() as logs:
        assert len(open_database(f"{url}/parts").records(key_of())) == 1
    assert [one["part"] for one in logs] == [f"{url}/parts/{name}"]
    index = json.loads((parts / INDEX).read_text())
    for parts_named in (["../../etc/passwd"], "x", [3]):
        (parts / INDEX).write_text(json.dumps({**index, "parts": parts_named}))
        with pytest.raises(RecordsError, match="no part"):
            open_database(f"{url}/parts")
    (parts / INDEX).write_text(json.dumps({**index, "version": 2}))
    with pytest.raises(RecordsError, match="has the format 2"):
        open_database(f"{url}/parts")


def test_a_server_that_is_not_there(server, monkeypatch):
    with pytest.raises(RecordsError, match="cannot read") as caught:
        open_database("http://127.0.0.1:9/records")
    assert "goes on without it" in caught.value.hint


def test_a_server_that_sends_without_end(server, monkeypatch):
    url, folder = server
    (folder / "all.jsonl").write_bytes(b"x" * 2000)
    monkeypatch.setattr("chameleon_records._databases.http.LARGEST_BYTES", 1000)
    with pytest.raises(RecordsError, match="is larger than"):
        open_database(f"{url}/all.jsonl")


def test_a_server_that_takes_its_time(server, monkeypatch):
    url, folder = server
    (folder / "all.jsonl").write_bytes(dump({key_of(): [record_of((0, 0))]}))
    monkeypatch.setattr("chameleon_records._databases.http.TOTAL_TIMEOUT", -1.0)
    with pytest.raises(RecordsError, match="not whole"):
        open_database(f"{url}/all.jsonl")


def test_ranks_order_whatever_there_is():
    one = record_of((0, 0))
    tables = [Table(), Table()]
    variants = [one, attrs.evolve(one, spent_seconds=1.0), attrs.evolve(one, measured_at=2.0)]
    for table, order in zip(tables, (variants, variants[::-1]), strict=True):
        for variant in order:
            table.merge({key_of(): [variant]})
    assert tables[0].all_records() == tables[1].all_records()
