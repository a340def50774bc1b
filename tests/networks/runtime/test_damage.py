"""Folders that are cut off or changed: a sentence or the right answer, and never a crash."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from chameleon_networks._artifact.load import check_files
from hypothesis import given, settings
from hypothesis import strategies as st

KINDS = ("called", "operator", "packing", "bucketed", "interpreted")


@pytest.fixture(params=KINDS)
def whole(request):
    """A folder and what tries it."""
    trying = "trying_tvm" if request.param == "interpreted" else "trying"
    return request.getfixturevalue(request.param), request.getfixturevalue(trying)


def _cut(content, rng):
    yield from (content[:size] for size in sorted({0, 1, *rng.integers(0, len(content), 8)}))


def _flipped(content, rng):
    for offset in rng.integers(0, len(content), 10):
        yield _changed(content, int(offset), 1 << int(rng.integers(8)))


def _changed(content, offset, bits):
    return b"%b%c%b" % (content[:offset], content[offset] ^ bits, content[offset + 1 :])


def _is_answered(file, said):
    """Whether that may come of damage to a file."""
    if said == "right":
        return True
    if file.name in {"load.py", "pack.py"}:  # Python reads them first
        return ": " in said
    return said.startswith("RuntimeError: ") and len(said) > 30


@pytest.mark.full
@pytest.mark.parametrize("damaged", [_cut, _flipped])
def test_damage_is_told(whole, tmp_path, damaged):
    folder, trying = whole
    copy = folder.copy(tmp_path / "copy")
    assert trying(copy) == "right"
    answers = {}
    for file in sorted(copy.path.rglob("*.*")):
        content = file.read_bytes()
        said = answers.setdefault(file.name, [])
        for changed in damaged(content, np.random.default_rng(len(content))):
            file.write_bytes(changed)
            said.append(trying(copy))
            assert _is_answered(file, said[-1]), (file, said[-1])
        file.write_bytes(content)
    assert trying(copy) == "right"
    # Damage to what this loader does not read changes nothing.
    refused = {name for name, said in answers.items() if set(said) != {"right"}}
    assert refused >= {"packing.json"} if folder.pack else {"manifest.json"}


def _as_folder(file):
    file.unlink()
    file.mkdir()


def _unreadable(file):
    file.unlink()
    file.symlink_to(file)


@pytest.mark.full
@pytest.mark.parametrize("replaced", [Path.unlink, _as_folder, _unreadable])
def test_missing_files_are_told(whole, tmp_path, replaced):
    folder, trying = whole
    for number, file in enumerate(sorted(folder.path.rglob("*.*"))):
        copy = folder.copy(tmp_path / f"copy{number}")
        own = copy.path / file.relative_to(folder.path)
        replaced(own)
        said = trying(copy)
        assert _is_answered(own, said), (own, said)
        shutil.rmtree(copy.path)


def test_files_of_buckets_are_checked_without_loading_them(bucketed, tmp_path):
    folder = bucketed.copy(tmp_path / "copy").path
    check_files(folder)
    (folder / "rows4" / "manifest.json").unlink()
    with pytest.raises(RuntimeError, match=r"rows4/manifest\.json cannot be read"):
        check_files(folder)


@settings(max_examples=25)
@given(data=st.data())
def test_no_damage_is_silent(scratch, trying, data):
    # Python may have left what it compiled of the loader.
    files = sorted(file for file in scratch.path.iterdir() if file.is_file())
    file = data.draw(st.sampled_from(files))
    content = file.read_bytes()
    offset = data.draw(st.integers(0, len(content) - 1))
    bits = data.draw(st.integers(1, 255))
    end = data.draw(st.integers(offset + 1, len(content)))
    file.write_bytes(_changed(content, offset, bits)[:end])
    try:
        said = trying(scratch)
    finally:
        file.write_bytes(content)
    assert _is_answered(file, said), (file, said)
