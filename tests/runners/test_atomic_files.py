"""A file has its name once all of it is written."""

from __future__ import annotations

import pytest
from chameleon_runners.atomic_files import written_whole


def test_nobody_sees_half_a_file(tmp_path):
    path = tmp_path / "numbers.npz"
    with written_whole(path) as file:
        file.write(b"some")
        assert not path.exists()
        file.write(b"thing")
    assert path.read_bytes() == b"something"
    assert [one.name for one in tmp_path.iterdir()] == ["numbers.npz"]


def break_off(path):
    with written_whole(path) as file:
        file.write(b"half")
        raise RuntimeError


def test_what_was_there_stays_when_writing_fails(tmp_path):
    path = tmp_path / "numbers.npz"
    path.write_bytes(b"before")
    with pytest.raises(RuntimeError):
        break_off(path)
    assert path.read_bytes() == b"before"
