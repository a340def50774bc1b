"""Weights of call sequences: one file, which several networks may share."""

import shutil
import zlib

import numpy as np
import pytest
from chameleon_networks._artifact.load import load
from chameleon_networks._artifact.writer import read_manifest, write_manifest
from chameleon_networks._compile.sequence import weights
from chameleon_networks._compile.sequence.weights import (
    WEIGHTS,
    copy_weights,
    link_weights,
    read_weights,
    write_weights,
)
from chameleon_networks._graph.relax_utils import relax
from hypothesis import given
from hypothesis import strategies as st
from tvm.relax import op

from ...modules import module_of  # noqa: TID252 - shared by folders

RNG = np.random.default_rng(0)
TABLES = [RNG.standard_normal((3, 5)).astype(np.float32) for _ in range(2)]
X = RNG.standard_normal((3, 5)).astype(np.float32)


def _build(emit, x):
    total = emit(op.add(emit(op.nn.softmax(x)), relax.const(TABLES[0])))
    return emit(op.multiply(emit(op.nn.softmax(total)), relax.const(TABLES[1])))


@given(st.lists(st.integers(0, 300), max_size=5))
def test_every_constant_begins_on_a_unit_of_its_own(tmp_path_factory, sizes):
    file = tmp_path_factory.mktemp("weights") / WEIGHTS
    constants = [RNG.integers(0, 255, size, dtype=np.uint8) for size in sizes]
    write_weights(constants, file)
    data = np.fromfile(file, np.uint8)
    words = data[: 8 * (2 * len(sizes) + 5)].view(np.int64).tolist()
    offsets, sums = words[3 : 4 + len(sizes)], words[4 + len(sizes) : -1]
    assert words[2] == len(sizes)
    assert offsets[-1] == len(data)
    assert all(offset % 64 == 0 for offset in offsets)
    for constant, start, end, total in zip(constants, offsets, offsets[1:], sums, strict=False):
        np.testing.assert_array_equal(data[start : start + len(constant)], constant)
        assert zlib.crc32(data[start:end]) == total
    assert zlib.crc32(data[: 8 * len(words) - 8]) == words[-1]
    for constant, same in zip(constants, read_weights(file), strict=True):
        np.testing.assert_array_equal(same[: len(constant)], constant)


def test_weights_are_written_in_few_large_writes(tmp_path, monkeypatch):
    constants = [RNG.integers(0, 255, size, dtype=np.uint8) for size in (70, 100, 1000, 0, 64)]
    write_weights(constants, tmp_path / "at once")
    monkeypatch.setattr(weights, "_CHUNK", 128)
    lengths = []

    def counted(data, stream, write=weights._write_all):
        lengths.append(len(data))
        write(data, stream)

    monkeypatch.setattr(weights, "_write_all", counted)
    write_weights(constants, tmp_path / "in parts")
    copy_weights(tmp_path / "in parts", tmp_path / "copy")
    whole = (tmp_path / "at once").read_bytes()
    assert set(lengths[:-1]) <= {128, len(whole) % 128}
    assert (tmp_path / "in parts").read_bytes() == whole
    assert (tmp_path / "copy").read_bytes() == whole


def test_weights_have_a_second_place_without_a_copy(tmp_path, monkeypatch):
    write_weights([RNG.integers(0, 255, 100, dtype=np.uint8)], tmp_path / "first")
    link_weights(tmp_path / "first", tmp_path / "same")
    assert (tmp_path / "same").samefile(tmp_path / "first")

    def refused(*_):
        raise OSError

    monkeypatch.setattr(weights.os, "link", refused)
    link_weights(tmp_path / "first", tmp_path / "copy")
    assert not (tmp_path / "copy").samefile(tmp_path / "first")
    assert (tmp_path / "copy").read_bytes() == (tmp_path / "first").read_bytes()


def test_a_network_may_use_some_constants_of_a_larger_file(deliver):
    network = deliver(module_of(_build, ((3, 5), "float32")))
    wanted = network.run(X)
    mine = read_weights(network.folder / WEIGHTS)
    manifest = read_manifest(network.folder)
    write_weights([np.zeros(100, np.uint8), mine[1], mine[0]], network.folder / "shared.bin")

    def with_constants(*numbers):
        shared = {"shared_weights": "shared.bin", "constants": numbers}
        write_manifest(network.folder, {**manifest, **shared})
        return load(network.folder)

    np.testing.assert_array_equal(with_constants(2, 1)(X), wanted)
    for numbers in ((1, 2), (0, 1), (2, 3), (-1, 1)):
        with pytest.raises(RuntimeError, match="does not hold the weights of this library"):
            with_constants(*numbers)


def test_a_folder_may_be_moved(deliver, tmp_path):
    network = deliver(module_of(_build, ((3, 5), "float32")))
    expected = load(network.folder)(X)
    shutil.move(network.folder, tmp_path / "elsewhere")
    np.testing.assert_array_equal(load(tmp_path / "elsewhere")(X), expected)
