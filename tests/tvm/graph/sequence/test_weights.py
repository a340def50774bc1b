"""Weights of call sequences: one file, which several networks may share."""

from __future__ import annotations

import gc
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from chameleon_tvm.graph.load import HELD, WEIGHTS, called, load, weights_of
from chameleon_tvm.graph.relaxed import relax
from chameleon_tvm.graph.sequence.weights import write_weights
from hypothesis import given
from hypothesis import strategies as st
from tvm.relax import op

from .conftest import module_of

RNG = np.random.default_rng(0)
TABLES = [RNG.standard_normal((3, 5)).astype(np.float32) for _ in range(2)]
X = RNG.standard_normal((3, 5)).astype(np.float32)


def _build(emit: Any, x: Any) -> Any:
    total = emit(op.add(emit(op.nn.softmax(x)), relax.const(TABLES[0])))
    return emit(op.multiply(emit(op.nn.softmax(total)), relax.const(TABLES[1])))


def _opened(folder: Path, manifest: dict[str, Any]) -> Any:
    module = tvm.runtime.load_module(str(folder / "network.so"))
    return called(module, weights_of(folder / WEIGHTS), manifest)


@given(st.lists(st.integers(0, 300), max_size=5))
def test_every_constant_begins_on_a_unit_of_its_own(tmp_path_factory: Any, sizes: list[int]):
    file = tmp_path_factory.mktemp("weights") / WEIGHTS
    constants = [RNG.integers(0, 255, size, dtype=np.uint8) for size in sizes]
    write_weights(constants, file)
    data = weights_of(file)
    count, *offsets = data[: 8 * (len(sizes) + 2)].view(np.int64)
    assert count == len(sizes)
    assert offsets[-1] == len(data) == file.stat().st_size
    assert all(offset % 64 == 0 for offset in offsets)
    for constant, offset in zip(constants, offsets, strict=False):
        np.testing.assert_array_equal(data[offset : offset + len(constant)], constant)


def test_networks_of_one_file_share_its_memory(deliver: Any):
    network = deliver(module_of(_build, ((3, 5), "float32")))
    file = network.folder / WEIGHTS
    first, second = load(network.folder), load(network.folder)
    assert len([key for key in HELD if key[0] == str(file.resolve())]) == 1
    np.testing.assert_array_equal(first(X), second(X))
    del first
    gc.collect()
    np.testing.assert_array_equal(second(X), network.run(X))
    del second, network
    gc.collect()
    assert not [key for key in HELD if key[0] == str(file.resolve())]


def test_a_network_may_use_some_constants_of_a_larger_file(deliver: Any):
    network = deliver(module_of(_build, ((3, 5), "float32")))
    expected = load(network.folder)(X)
    own = weights_of(network.folder / WEIGHTS)
    offsets = own[8:32].view(np.int64)
    mine = [own[offsets[k] : offsets[k] + 60].copy() for k in range(2)]
    other = np.zeros(100, np.uint8)
    shared = network.folder / "shared.bin"
    write_weights([other, mine[1], other, mine[0]], shared)
    file = network.folder / "manifest.json"
    told = {**json.loads(file.read_text()), "weights": shared.name, "constants": [3, 1]}
    file.write_text(json.dumps(told))
    np.testing.assert_array_equal(load(network.folder)(X), expected)


def test_weights_of_another_network_are_refused(deliver: Any):
    network = deliver(module_of(_build, ((3, 5), "float32")))
    manifest = json.loads((network.folder / "manifest.json").read_text())
    with pytest.raises(ValueError, match="weights are not those of this network"):
        _opened(network.folder, {**manifest, "constants": [0]})


def test_a_folder_may_be_moved(deliver: Any, tmp_path: Path):
    network = deliver(module_of(_build, ((3, 5), "float32")))
    expected = load(network.folder)(X)
    shutil.move(network.folder, tmp_path / "elsewhere")
    np.testing.assert_array_equal(load(tmp_path / "elsewhere")(X), expected)
