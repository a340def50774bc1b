"""Bundles for C: a damaged file of weights is refused with a sentence."""

import shutil
import zlib

import numpy as np
import pytest
from chameleon_core._errors import RunFolderError
from chameleon_networks._c_runtime.linking import OBJECTS
from chameleon_networks._export.bundles import write_c_bundle

from ..export.test_c_bundle import Library  # noqa: TID252 - its helper
from .conftest import in_child


@pytest.fixture(scope="module")
def bundle(called, tmp_path_factory):
    """The bundle of a network."""
    folder = tmp_path_factory.mktemp("bundle") / "net"
    write_c_bundle(called.path, folder, "net")
    return folder


def _answer(bundle, weights, samples):
    library = Library(bundle, "net")
    handle = library.create(str(weights).encode(), 2)
    if handle is None:
        return str(library.error().decode())
    with np.load(samples) as arrays:
        data, wanted = (arrays[name] for name in arrays.files)
    output = np.empty_like(wanted)
    status = library.called(handle, [data], output)
    library.destroy(handle)
    return "right" if status == 0 and output.tobytes() == wanted.tobytes() else "wrong"


def _variants(content):
    rng = np.random.default_rng(1)
    variants = {f"cut at {size}": content[:size] for size in rng.integers(0, len(content), 10)}
    # The table, which pointers come of, as well as constants.
    for offset in (*range(0, 200, 3), *rng.integers(0, len(content), 10)):
        flipped = bytearray(content)
        flipped[offset] ^= 1 << int(rng.integers(8))
        variants[f"flipped at {offset}"] = bytes(flipped)
    return {"empty": b"", **variants, "longer": content + bytes(64)}


@pytest.mark.full
def test_damage_is_told(bundle, called, tmp_path):
    content = (bundle / "weights.bin").read_bytes()
    words = np.frombuffer(content[:64], np.int64)
    unused = range(8 * (5 + 2 * words[2]), words[3])  # between the table and the constants
    weights = tmp_path / "weights.bin"
    for name, variant in _variants(content).items():
        weights.write_bytes(variant)
        said = in_child(lambda: _answer(bundle, weights, called.samples))
        if name in {f"flipped at {offset}" for offset in unused}:
            assert said == "right"
        else:
            assert said.startswith(("the file of weights ", "the weights ")), (name, said)


@pytest.mark.parametrize(
    ("number", "value"),
    [(2, 0), (2, 1 << 60), (2, -1), (3, 8), (3, -64), (3, 1 << 62), (4, 3), (4, 1 << 62), (1, 5)],
)
def test_tables_of_any_content_are_refused(bundle, called, tmp_path, number, value):
    content = np.fromfile(bundle / "weights.bin", np.uint8)
    words = content[: len(content) // 8 * 8].view(np.int64)
    end = 4 + 2 * int(words[2])
    words[number] = value
    words[end] = zlib.crc32(words[:end].tobytes())  # of the table, which is right again
    content.tofile(tmp_path / "weights.bin")
    said = in_child(lambda: _answer(bundle, tmp_path / "weights.bin", called.samples))
    assert said.startswith("the file of weights"), said


@pytest.mark.parametrize(
    "replaced", [lambda _: None, lambda file: file.mkdir(), lambda file: file.symlink_to(file)]
)
def test_a_file_that_is_none_is_told(bundle, called, tmp_path, replaced):
    replaced(tmp_path / "weights.bin")
    said = in_child(lambda: _answer(bundle, tmp_path / "weights.bin", called.samples))
    assert said.startswith("the weights "), said


def test_a_call_without_a_handle_is_an_error(bundle):
    library = Library(bundle, "net")
    array = np.zeros(4, np.float32)
    assert library.called(None, [array], array) == -1
    assert library.error() == b"the handle is NULL"


def test_weights_that_are_packed_anew_are_the_bundle_s_own(called, operator, tmp_path):
    write_c_bundle(operator.path, tmp_path / "operator", "operator_")
    write_c_bundle(called.path, tmp_path / "network", "network")
    own = tmp_path / "operator" / "weights.bin"
    assert not own.samefile(operator.path / "weights.bin")
    assert (tmp_path / "network" / "weights.bin").samefile(called.path / "weights.bin")


def test_changed_objects_are_not_linked(called, tmp_path):
    shutil.copytree(called.path, tmp_path / "network")
    with (tmp_path / "network" / OBJECTS).open("r+b") as stream:
        stream.seek(2000)
        stream.write(b"?")
    for _ in range(2):
        with pytest.raises(RunFolderError, match="was changed or deleted since it was delivered"):
            write_c_bundle(tmp_path / "network", tmp_path / "bundle", "net")
        (tmp_path / "network" / OBJECTS).unlink(missing_ok=True)
