"""A SQLite file: what one commit is, which versions it takes, and what it says goes wrong."""

import sqlite3

import pytest
from chameleon_core._errors import ChameleonError
from chameleon_core._store import sqlite_file
from chameleon_core._store.sqlite_file import SQLiteFile


class NotesError(ChameleonError):
    """What a file of notes says."""


class Notes(SQLiteFile):
    version = 3
    schema = "CREATE TABLE IF NOT EXISTS notes (id INTEGER PRIMARY KEY, text TEXT UNIQUE);"
    error = NotesError
    newer = "upgrade"
    later = "try again"
    damaged = "restore it"


INSERT = "INSERT INTO notes (text) VALUES (?)"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "notes.sqlite"


@pytest.fixture
def notes(path):
    with Notes(path) as notes:
        yield notes


def test_a_connection_knows_whether_it_may_write(notes, path):
    with Notes(path, read_only=True) as reader:
        assert (notes.read_only, reader.read_only) == (False, True)


def texts(notes):
    return [text for (text,) in notes.read("SELECT text FROM notes ORDER BY id")]


def write(execute, *texts, then=None):
    for text in texts:
        execute(INSERT, (text,))
    if then is not None:
        raise then


def test_writing_tells_the_row(notes):
    assert [notes.write(INSERT, (text,)) for text in "ab"] == [1, 2]
    assert notes.read("SELECT id, text FROM notes WHERE text = ?", ("b",)) == [(2, "b")]
    assert texts(notes) == ["a", "b"]


def test_a_statement_that_inserts_nothing_tells_no_row(notes):
    assert notes.write("DELETE FROM notes") == 0


def test_readers_wait_for_nobody(notes):
    assert notes.read("PRAGMA journal_mode") == [("wal",)]
    # NORMAL: a commit outlives the process, not the power.
    assert notes.read("PRAGMA synchronous") == [(1,)]


def test_a_file_whose_process_was_killed_before_the_tables_has_none(path):
    path.touch()
    with pytest.raises(NotesError, match="is empty: its writer"):
        Notes(path, read_only=True)


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("version", [2, 3, 4])
def test_files_of_newer_versions_are_refused(notes, path, version, read_only, monkeypatch):
    notes.write(INSERT, ("a",))
    assert notes.read("PRAGMA user_version") == [(3,)]
    notes.write(f"PRAGMA user_version={version}")
    notes.close()
    if version <= 3:
        with Notes(path, read_only=read_only) as again:
            assert texts(again) == ["a"]
            written = again.read("PRAGMA user_version")
        assert written == [(version if read_only else 3,)]
        return
    connections, connect = [], sqlite3.connect
    monkeypatch.setattr(
        sqlite3, "connect", lambda *a, **o: connections.append(connect(*a, **o)) or connections[0]
    )
    with pytest.raises(NotesError, match="newer version of chameleon") as refused:
        Notes(path, read_only=read_only)
    assert str(path) in str(refused.value)
    assert refused.value.hint == "upgrade"
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        connections[0].execute("SELECT 1")


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_transaction_that_raises_leaves_nothing(notes, error):
    with pytest.raises(error), notes.statements() as execute:
        write(execute, "a", then=error)
    assert texts(notes) == []
    notes.write(INSERT, ("b",))
    assert texts(notes) == ["b"]


def test_a_statement_that_fails_takes_its_transaction_along(notes):
    with (
        pytest.raises(NotesError, match=r"cannot write to .*UNIQUE") as refused,
        notes.statements() as execute,
    ):
        write(execute, "a", "a")
    assert refused.value.hint == "try again"
    assert texts(notes) == []


def test_a_transaction_within_joins_the_one_around_it(notes, path):
    with Notes(path, read_only=True) as reader:
        with notes.transaction():
            with notes.statements() as execute:
                execute(INSERT, ("a",))
            notes.write(INSERT, ("b",))
            assert texts(reader) == []
        assert texts(reader) == ["a", "b"]
        notes.write(INSERT, ("c",))
        assert texts(reader) == ["a", "b", "c"]


def test_what_was_written_together_is_kept_whatever_comes(notes, path):
    with pytest.raises(KeyboardInterrupt), notes.transaction():
        write(notes.write, "a", then=KeyboardInterrupt)
    with Notes(path, read_only=True) as reader:
        assert texts(reader) == ["a"]


def test_a_transaction_that_sqlite_itself_ended_is_over(notes):
    with notes.transaction():
        notes.write(INSERT, ("a",))
        notes.write("ROLLBACK")
    assert texts(notes) == []


def test_one_writes_at_a_time(notes, path):
    with Notes(path) as other:
        other.read("PRAGMA busy_timeout=0")
        with notes.transaction():
            for begin in (other.transaction, other.statements):
                with pytest.raises(NotesError, match=r"cannot write to .*locked"), begin():
                    raise AssertionError("two write at once")
        with other.statements() as execute:
            execute(INSERT, ("mine",))
    assert texts(notes) == ["mine"]


def test_a_writer_waits_ten_seconds_for_another(notes, path):
    assert notes.read("PRAGMA busy_timeout") == [(10_000,)]
    with Notes(path, read_only=True) as reader:
        assert reader.read("PRAGMA busy_timeout") == [(10_000,)]


def test_a_reader_writes_nothing(notes, path):
    said = r"cannot write to .*the folder is read-only"
    with Notes(path, read_only=True) as reader, pytest.raises(NotesError, match=said):
        reader.write(INSERT, ("a",))
    assert texts(notes) == []


def test_a_reader_makes_no_file(path):
    with pytest.raises(NotesError, match=r"cannot open .*there is no such file") as refused:
        Notes(path, read_only=True)
    assert refused.value.hint == "try again"
    assert not path.exists()


def test_another_file_is_no_database(path):
    path.write_text("notes on paper, as long as a page of a database\n" * 20)
    for read_only in (False, True):
        with pytest.raises(NotesError, match="it is not a SQLite file") as refused:
            Notes(path, read_only=read_only)
        assert refused.value.hint == "restore it"


def test_a_damaged_file(notes, path):
    for index in range(500):
        notes.write(INSERT, (f"{index:050}",))
    notes.write("PRAGMA wal_checkpoint(TRUNCATE)")
    notes.close()
    pages = bytearray(path.read_bytes())
    pages[4096:] = b"\x07" * (len(pages) - 4096)
    path.write_bytes(pages)
    said = r"cannot read .*the file is damaged"
    with Notes(path, read_only=True) as again, pytest.raises(NotesError, match=said) as refused:
        texts(again)
    assert refused.value.hint == "restore it"


@pytest.mark.parametrize("left", ["", "-wal"])
def test_a_file_whose_log_cannot_be_read(notes, path, monkeypatch, left):
    """In a folder that is read-only, SQLite cannot make what it reads a log through."""
    notes.write(INSERT, ("a",))
    notes.close()
    if left:
        path.with_name(path.name + left).write_bytes(b"a log")
    asked = []
    connect = sqlite3.connect

    class Blind(sqlite3.Connection):
        def execute(self, *given):
            raise sqlite3.OperationalError("unable to open database file")

    def connecting(place, **more):
        asked.append(place)
        return connect(place, **more) if "immutable" in place else Blind(":memory:")

    monkeypatch.setattr(sqlite_file.sqlite3, "connect", connecting)
    if left:
        with pytest.raises(NotesError, match=r"cannot open .*unable to open"):
            Notes(path, read_only=True)
        assert len(asked) == 1
        return
    with Notes(path, read_only=True) as reader:
        assert texts(reader) == ["a"]
    assert [place.partition("?")[2] for place in asked] == ["mode=ro", "immutable=1"]


@pytest.mark.parametrize(
    ("code", "said", "hint"),
    [
        ("SQLITE_FULL", "the disk is full", "try again"),
        ("SQLITE_IOERR_WRITE", "sqlite's words (the disk may be full, or a size", "try again"),
        ("SQLITE_CORRUPT_INDEX", "the file is damaged (sqlite's words)", "restore it"),
        ("SQLITE_NOTADB", "it is not a SQLite file", "restore it"),
        ("SQLITE_READONLY_DBMOVED", "the folder is read-only", "try again"),
        ("SQLITE_CANTOPEN", "Permission denied", "try again"),
        ("SQLITE_BUSY", "sqlite's words", "try again"),
        (None, "sqlite's words", "try again"),
    ],
)
def test_what_sqlite_says_in_words(notes, path, code, said, hint):
    error = sqlite3.OperationalError("sqlite's words")
    if code is not None:
        error.sqlite_errorname = code
    with pytest.raises(NotesError) as refused, notes._translate_errors("read"):
        raise error
    assert str(refused.value).startswith(f"cannot read {path}: {said}")
    assert refused.value.hint == hint
    assert refused.value.__cause__ is error


def test_a_folder_that_takes_no_file(path, monkeypatch):
    monkeypatch.setattr(sqlite_file.os, "access", lambda *_: False)
    path.parent.joinpath(path.name).mkdir()
    with pytest.raises(NotesError, match=r"cannot open .*the folder is read-only"):
        Notes(path)


@pytest.mark.parametrize(
    "program",
    [
        "CREATE VIEW other AS SELECT text FROM notes",
        "CREATE TRIGGER t AFTER INSERT ON notes BEGIN DELETE FROM notes; END",
    ],
)
def test_a_file_with_programs_is_refused(path, program):
    with Notes(path) as notes:
        notes.write(program)
    with pytest.raises(NotesError, match="triggers or views") as caught:
        Notes(path, read_only=True)
    assert caught.value.hint == "restore it"


def test_a_schema_that_is_no_text_is_damaged(path):
    with Notes(path) as notes:
        notes.write("PRAGMA journal_mode=DELETE")
    path.write_bytes(path.read_bytes().replace(b"notes (id", b"no\xc4es )id"))
    with pytest.raises(NotesError, match="damaged") as caught:
        Notes(path, read_only=True).read("SELECT text FROM notes")
    assert caught.value.hint == "restore it"
