"""Files are replaced as a whole, or not at all."""

from __future__ import annotations

import pytest
from chameleon_system.files import replacing, unused, write_whole


@pytest.mark.parametrize("content", ["a text: µs\n", b"\x00\xff bytes"])
def test_it_holds_what_was_written_and_nothing_is_beside_it(tmp_path, content):
    file = tmp_path / "kept.txt"
    write_whole(file, "longer than what comes after it")
    assert write_whole(file, content) == file
    assert file.read_bytes() == (content.encode() if isinstance(content, str) else content)
    assert list(tmp_path.iterdir()) == [file]


def test_an_error_half_way_leaves_the_old_content(tmp_path):
    file = tmp_path / "kept.txt"
    write_whole(file, "old")

    def interrupted():
        with replacing(file) as stream:
            stream.write(b"new, and not")
            stream.flush()
            assert file.read_text() == "old"
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_folder_that_is_not_there_is_an_error_of_the_system(tmp_path):
    with pytest.raises(FileNotFoundError):
        write_whole(tmp_path / "none" / "kept.txt", "text")


def test_an_unused_name_is_the_first_that_nothing_has(tmp_path):
    assert unused(tmp_path, "earlier-{}") == tmp_path / "earlier-1"
    (tmp_path / "earlier-1").touch()
    (tmp_path / "earlier-3").mkdir()
    assert unused(tmp_path, "earlier-{}") == tmp_path / "earlier-2"
