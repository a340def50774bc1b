"""Files are replaced as a whole, or not at all."""

import errno
from pathlib import Path

import pytest
from chameleon_system import _files as files
from chameleon_system import _permissions as permissions
from chameleon_system._files import open_atomic, replace_folder, unused_path, write_atomic
from chameleon_system._permissions import AMX, request_permission


@pytest.mark.parametrize("content", ["a text: µs\n", b"\x00\xff bytes"])
def test_it_holds_what_was_written_and_nothing_is_beside_it(tmp_path, content):
    file = tmp_path / "kept.txt"
    write_atomic(file, "longer than what comes after it")
    assert write_atomic(file, content) == file
    assert file.read_bytes() == (content.encode() if isinstance(content, str) else content)
    assert list(tmp_path.iterdir()) == [file]


def test_an_error_half_way_leaves_the_old_content(tmp_path):
    file = tmp_path / "kept.txt"
    write_atomic(file, "old")

    def interrupted():
        with open_atomic(file) as stream:
            stream.write(b"new, and not")
            stream.flush()
            assert file.read_text() == "old"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_two_writers_of_one_process_id_do_not_share_a_file(tmp_path):
    file = tmp_path / "kept.txt"
    with open_atomic(file) as stream:
        stream.write(b"the first")
        stream.flush()
        write_atomic(file, "another container's")
        assert file.read_text() == "another container's"
    assert file.read_text() == "the first"
    assert list(tmp_path.iterdir()) == [file]


def test_a_folder_that_is_not_there_is_an_error_of_the_system(tmp_path):
    with pytest.raises(FileNotFoundError):
        write_atomic(tmp_path / "none" / "kept.txt", "text")


def test_an_unused_name_is_the_first_that_nothing_has(tmp_path):
    assert unused_path(tmp_path, "earlier-{}") == tmp_path / "earlier-1"
    (tmp_path / "earlier-1").touch()
    (tmp_path / "earlier-3").mkdir()
    assert unused_path(tmp_path, "earlier-{}") == tmp_path / "earlier-2"


@pytest.fixture(params=[True, False], ids=["exchange", "two renames"])
def folders(request, tmp_path, monkeypatch):
    """A new folder and the one whose place it takes, on systems of both kinds."""
    if not request.param:
        monkeypatch.setattr(files, "_exchange", lambda *_: False)
    for name in ("new", "kept"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "text").write_text(name)
    return tmp_path / "new", tmp_path / "kept"


def test_a_folder_takes_the_place_of_another_one(folders):
    new, old = folders
    with (old / "text").open() as reader:
        replace_folder(new, old)
        assert reader.read() == "kept"
    assert (old / "text").read_text() == "new"
    assert list(old.parent.iterdir()) == [old]


@pytest.mark.parametrize("interrupted", [1, 2])
def test_an_interrupted_replacement_leaves_the_old_folder(folders, monkeypatch, interrupted):
    new, old = folders
    monkeypatch.setattr(files, "_exchange", lambda *_: False)
    renames = []

    def rename(self, target, rename=Path.rename):
        renames.append(target)
        if len(renames) == interrupted:
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(KeyboardInterrupt):
        replace_folder(new, old)
    assert (old / "text").read_text() == "kept"
    assert {row.name for row in old.parent.iterdir()} == {"new", "kept"}


def test_what_a_killed_process_left_aside_comes_back(folders):
    new, old = folders
    old.rename(old.with_name(".kept.old"))
    new.joinpath("text").unlink()
    new.rmdir()
    with pytest.raises(FileNotFoundError):
        replace_folder(new, old)
    assert (old / "text").read_text() == "kept"


@pytest.fixture
def calls(monkeypatch):
    """Calls of the system, on x86-64; each succeeds unless ``answers`` has a number for it."""
    result, answers = [], []

    def system_call(*words):
        result.append(words)
        return answers.pop() if answers else 0

    monkeypatch.setattr(permissions, "system_call", system_call)
    monkeypatch.setattr(permissions.sys, "platform", "linux")
    monkeypatch.setattr(permissions.platform, "machine", lambda: "x86_64")
    return result, answers


def test_tiles_are_asked_for(calls):
    result, _ = calls
    assert request_permission(AMX) == ""
    assert request_permission(AMX) == ""
    assert result == [(158, 0x1023, 18)] * 2


def test_a_refusal_is_said(calls):
    calls[1].append(errno.EPERM)
    assert request_permission(AMX) == "Operation not permitted"


def test_no_other_system_is_asked(calls, monkeypatch):
    monkeypatch.setattr(permissions.platform, "machine", lambda: "aarch64")
    assert request_permission(AMX) == "only Linux on x86-64 grants AMX"
    assert request_permission("sme") == "no system knows the permission 'sme'"
    assert not calls[0]


def test_the_number_of_an_error_is_that_of_the_system():
    assert permissions.system_call(1 << 20) == errno.ENOSYS
