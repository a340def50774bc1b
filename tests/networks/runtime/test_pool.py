"""The thread pool of delivered networks, under the sanitizers of the C compiler."""

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from chameleon_networks._c_runtime.linking import SOURCES
from programs import completed
from tvm_ffi.libinfo import include_paths

DRIVER = Path(__file__).with_name("pool_test.c")
COMPILER = shutil.which("gcc") or shutil.which("cc")
RACES, MEMORY = "-fsanitize=thread", "-fsanitize=address,undefined"
ABORT = "-fno-sanitize-recover=all"

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")


def compiled(target, *flags):
    """The pool and the driver, which delays what they do now and then."""
    assert COMPILER is not None
    headers = [f"-I{folder}" for folder in (SOURCES, *include_paths())]
    delays = ("-include", str(DRIVER.with_name("pool_delays.h")))
    words = ("-std=gnu11", "-O1", "-g", *headers, *flags, *delays)
    sources = (str(DRIVER), str(SOURCES / "pool.c"))
    links = ("-Wl,--wrap=pthread_create,--wrap=syscall", "-lpthread", "-lm", "-o", str(target))
    completed([COMPILER, *words, *sources, *links])
    return target


def lacks(flag, folder):
    """Whether the compiler has no run time for a sanitizer."""
    assert COMPILER is not None
    empty = folder / "empty.c"
    empty.write_text("int main(void) { return 0; }\n")
    program = folder / "empty"
    words = [COMPILER, flag, str(empty), "-o", str(program)]
    if subprocess.run(words, check=False, capture_output=True).returncode:
        return True
    return subprocess.run([program], check=False, capture_output=True).returncode != 0


@pytest.fixture(scope="module", params=[RACES, MEMORY], ids=["races", "memory"])
def program(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pool")
    if lacks(request.param, folder):
        pytest.skip(f"the compiler lacks {request.param}")
    return compiled(folder / "pool", request.param, ABORT)


def run(program, scenario):
    environment = {
        **os.environ,
        "TSAN_OPTIONS": "halt_on_error=1",
        "ASAN_OPTIONS": "detect_leaks=0",  # which some containers forbid
    }
    completed([program, scenario], env=environment)


@pytest.mark.full
@pytest.mark.parametrize(
    "scenario", ["callers", "sleepers", "shared", "destroy", "refused", "most_pieces"]
)
def test_pieces_run_once_and_in_order(program, scenario):
    run(program, scenario)


def test_a_child_process_goes_on_and_threads_take_the_floating_point_mode_of_the_caller(tmp_path):
    # Locks of the sanitizers do not survive a fork.
    program = compiled(tmp_path / "pool")
    run(program, "fork")
    run(program, "modes")


def test_pieces_make_no_thread_wait_longer(tmp_path):
    library = ctypes.CDLL(str(compiled(tmp_path / "pool.so", "-shared", "-fPIC")))
    pool_pieces = library.pool_pieces
    pool_pieces.argtypes = (ctypes.c_int64, ctypes.c_int)
    extents = np.arange(1, 3001)
    for threads in range(1, 65):
        pieces = np.array([pool_pieces(extent, threads) for extent in extents.tolist()])
        assert pieces.min() >= 1
        assert (pieces <= extents).all()
        size = -(-extents // pieces)
        # TVM gives each piece this many iterations, so that none is without any.
        assert (-(-extents // size) == pieces).all()
        assert (-(-pieces // threads) * size <= -(-extents // threads)).all()
        # A loop without a known extent has a piece for each thread.
        assert pool_pieces(0, threads) == threads
