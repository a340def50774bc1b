"""Handles of delivered networks whose kernels, files of weights or mappings fail."""

import numpy as np
import pytest
from chameleon_networks._c_runtime.linking import _SHARED, SOURCES
from chameleon_networks._compile.sequence.weights import write_weights
from programs import completed
from tvm_ffi.libinfo import include_paths

from .test_pool import COMPILER, DRIVER

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")
CHUNK = 1 << 20


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """A network of one kernel that fails, with the shared code of the run time."""
    target = tmp_path_factory.mktemp("handle") / "handle"
    headers = [f"-I{folder}" for folder in (SOURCES, *include_paths())]
    sources = [str(DRIVER.with_name("handle_test.c")), *(str(SOURCES / name) for name in _SHARED)]
    links = ("-Wl,--wrap=pthread_create,--wrap=mmap,--wrap=munmap", "-lpthread", "-lm")
    completed([COMPILER, "-std=gnu11", "-O1", *headers, *sources, *links, "-o", str(target)])
    return target


def weights(folder, size):
    """A file with one constant of a number of bytes."""
    file = folder / "weights.bin"
    write_weights([np.random.default_rng(0).integers(0, 256, size, np.uint8)], file)
    return file


def test_kernels_that_fail_give_back_their_workspaces(program, tmp_path):
    completed([program, str(weights(tmp_path, 1000)), "workspaces"])


def test_a_file_that_cannot_be_mapped_leaves_no_mapping(program, tmp_path):
    ended = completed([program, str(weights(tmp_path, 1000)), "unmapped"])
    assert "cannot be mapped" in ended.stdout


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 5 * CHUNK + 777])
def test_chunks_of_a_constant_have_its_checksum(size, program, tmp_path):
    file = weights(tmp_path, size)
    assert completed([program, str(file), "open"]).stdout == ""
    content = bytearray(file.read_bytes())
    for place in {-size, -(size + 1) // 2, -1} if size else ():
        content[place] ^= 1
        file.write_bytes(content)
        assert "its content was changed" in completed([program, str(file), "open"]).stdout
        content[place] ^= 1
