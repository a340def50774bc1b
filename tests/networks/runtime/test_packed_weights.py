"""Weights that a library packs otherwise are kept in a file, which later loads map."""

import os
import resource
import shutil
import subprocess
import time

import numpy as np
import pytest
from chameleon_networks._c_runtime.linking import _SHARED, SOURCES
from chameleon_networks._compile.sequence.weights import read_weights, write_weights
from programs import completed
from tvm_ffi.libinfo import include_paths

from .test_pool import COMPILER, DRIVER

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")
SHAPE = ROWS, COLUMNS = 300, 200
NUMBERS = np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(COLUMNS, ROWS)
NAME = "0000000000000abc"
PACKED = "its weights are packed for these kernels"


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """A library that transposes one of two constants, with the shared code of the run time."""
    target = tmp_path_factory.mktemp("packed") / "packed"
    headers = [f"-I{folder}" for folder in (SOURCES, *include_paths())]
    shared = [str(SOURCES / name) for name in _SHARED if name != "handle.c"]
    sources = [str(DRIVER.with_name("packed_test.c")), *shared]
    links = ("-Wl,--wrap=geteuid,--wrap=write", "-lpthread", "-lm")
    completed([COMPILER, "-std=gnu11", "-O1", *headers, *sources, *links, "-o", str(target)])
    return target


@pytest.fixture
def weights(tmp_path):
    file = tmp_path / "weights.bin"
    write_weights([np.arange(1000), NUMBERS], file)
    return file


@pytest.fixture
def load(program, weights, tmp_path, monkeypatch):
    """Loads the weights in a process; what it says, which has compared the packed numbers."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def load(scenario="", status=0, **more):
        done = subprocess.run(
            [program, weights, scenario], capture_output=True, text=True, check=False, **more
        )
        assert done.returncode == status, done
        return done.stdout

    return load


@pytest.fixture
def kept(tmp_path):
    return tmp_path / "cache" / "chameleon" / "weights" / NAME


def _flip(file, place):
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)


def _names(kept):
    return [file.name for file in kept.parent.iterdir()]


def test_the_first_load_writes_what_later_ones_map(load, kept):
    assert load() == f"{PACKED}, and kept in {kept}"
    [constant] = read_weights(kept)
    assert (constant.view(np.float32)[: NUMBERS.size] == NUMBERS.T.reshape(-1)).all()
    assert kept.stat().st_mode & 0o777 == 0o600
    os.utime(kept, (0, 0))
    before = kept.stat().st_ino
    assert load() == ""
    assert kept.stat().st_ino == before
    assert time.time() - kept.stat().st_mtime < 600
    assert _names(kept) == [NAME]


def test_a_later_load_checks_what_it_reads(load, kept, weights):
    load()
    _flip(weights, -1)  # of the constant that is kept packed
    assert load() == ""
    _flip(weights, 200)  # of the other one
    assert "weights.bin is damaged: its content was changed" in load(status=1)
    _flip(weights, 200)
    kept.unlink()
    assert "weights.bin is damaged: its content was changed" in load(status=1)


def _cut(kept):
    kept.write_bytes(kept.read_bytes()[:-64])


def _of_another_library(kept):
    write_weights([np.zeros(SHAPE, np.float32)], kept, 0xABD)


def _too_short(kept):
    write_weights([np.zeros(5, np.float32)], kept, 0xABC)


def _without_constants(kept):
    write_weights([], kept, 0xABC)


def _link(kept):
    shutil.move(kept, kept.with_name("target"))
    kept.symlink_to("target")


@pytest.mark.parametrize(
    "damage",
    [
        *(lambda kept: kept.write_bytes(b""), lambda kept: _flip(kept, -64), _cut, _link),
        *(lambda kept: _flip(kept, 3), lambda kept: _flip(kept, 30), os.mkfifo),
        *(_of_another_library, _too_short, _without_constants),
        *(lambda kept: kept.chmod(0o620), lambda kept: kept.chmod(0o602)),
    ],
)
def test_a_wrong_file_is_replaced(load, kept, damage):
    load()
    if damage is os.mkfifo:
        kept.unlink()
    damage(kept)
    assert load().startswith(f"{PACKED}, and kept in ")
    assert kept.stat().st_mode & 0o777 == 0o600
    assert load() == ""


@pytest.mark.parametrize(
    ("scenario", "reason"),
    [("other user", "Operation not permitted"), ("full disk", "No space left on device")],
)
def test_a_load_that_cannot_write_goes_on(load, kept, scenario, reason):
    wanted = f"{PACKED} at each load, because {kept} cannot be written: {reason}"
    assert load(scenario) == wanted
    assert _names(kept) == []
    load()
    assert load(scenario) == (wanted if scenario == "other user" else "")
    assert load() == ""


def test_a_limit_of_file_sizes_does_not_end_the_process(load, kept):
    limit = 200_000
    said = load(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    assert said == f"{PACKED} at each load, because {kept} cannot be written: File too large"


def test_a_process_that_is_killed_leaves_nothing_that_is_used(load, kept):
    load("killed", status=9)
    [part] = _names(kept)
    assert part.startswith(NAME)
    assert part.endswith(".part")
    assert load().startswith(f"{PACKED}, and kept in ")


def test_without_a_cache_folder_weights_stay_in_memory(load, tmp_path, monkeypatch):
    (tmp_path / "cache").write_text("a file")
    assert load().endswith("cannot be written: Not a directory")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert load().endswith(f"kept in {tmp_path}/home/.cache/chameleon/weights/{NAME}")
    monkeypatch.delenv("HOME")
    assert load().endswith("because neither XDG_CACHE_HOME nor HOME names a folder")


def test_processes_that_load_at_once_agree(program, weights, load, kept):
    words = [str(program), str(weights), ""]
    processes = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(8)]
    said = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes)
    assert {"", f"{PACKED}, and kept in {kept}"} >= set(said)
    assert _names(kept) == [NAME]
    assert load() == ""


def test_files_that_nobody_used_lately_make_room(load, kept):
    load()
    for name, days in (("old", 2), ("newer", 1)):
        with kept.with_name(name).open("wb") as file:
            file.truncate(3 << 30)
        then = time.time() - days * 86_400
        os.utime(kept.with_name(name), (then, then))
    kept.unlink()
    load()
    assert set(_names(kept)) == {"newer", NAME}
