"""A network that was delivered with tile kernels runs where the system refuses AMX."""

import ctypes
import json
import sys
from pathlib import Path

import attrs
import numpy as np
import pytest
from chameleon_networks._artifact.load import load
from chameleon_networks._compile.sequence.repacking import repacking_of
from chameleon_networks._delivery import other_kernels
from chameleon_networks._export.bundles import write_c_bundle
from chameleon_networks._frontends.bucketed import make_frontend
from chameleon_networks._frontends.network import NetworkFrontend
from chameleon_networks._importers.options import TorchOptions
from chameleon_networks._importers.sources import OnnxNetwork
from chameleon_networks._shapes import Buckets
from chameleon_system._permissions import AMX, request_permission
from chameleon_tvm.api import host_features
from programs import completed

from .. import refused  # noqa: TID252 - shared by folders

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        "amx-bf16" not in host_features() or bool(request_permission(AMX)),
        reason="this CPU has no tiles, or the system refuses them",
    ),
]


def _with_tiles(delivery):
    """A delivery with products of split numbers for all tasks that may have them."""

    def tiles(winner):
        space = delivery.space.design_space(winner.task)
        for config in map(tuple, space.first_guesses.tolist()):
            if space.decode(config).get("algorithm") == "split3":
                return attrs.evolve(winner, config=config)
        return winner

    return attrs.evolve(delivery, winners=[*map(tiles, delivery.winners)])


def _manifest(folder):
    return json.loads((folder / "manifest.json").read_text())


def test_it_runs_where_they_are_refused(tiny, delivery_of, tmp_path):
    delivery = _with_tiles(delivery_of(NetworkFrontend(tiny)))
    result = NetworkFrontend(tiny).deliver(delivery)
    assert result.failure is None
    assert result.vectors == "without AMX, 1 of its kernels run with vectors instead"
    assert _manifest(delivery.folder)["permissions"] == [AMX]
    inputs = np.random.default_rng(0).standard_normal((1, 3, 8, 8), np.float32)
    with load(delivery.folder) as network:
        assert network.vectors == ""
        wanted = network(inputs)
    files = tmp_path / "inputs.npy", tmp_path / "outputs.npy"
    np.save(files[0], inputs)
    done = completed([sys.executable, Path(refused.__file__), delivery.folder, *files])
    assert done.stdout.endswith("the system refuses arch_prctl: Operation not permitted")
    assert "runs its kernels with vectors, because the network needs AMX" in done.stderr
    got = np.load(files[1])
    assert 0 < np.abs(got - wanted).max() < 1e-4 * np.abs(wanted).max(), "other sums, but right"


ROWS = """
import torch


def rows():
    torch.manual_seed(0)
    return torch.nn.Linear(64, 48), (torch.randn(4, 64),)
"""


def test_the_largest_bucket_takes_smaller_calls_where_they_are_refused(delivery_into, tmp_path):
    (tmp_path / "nets.py").write_text(ROWS)
    shapes = {"input": (Buckets(range=(2, 40), count=3, name="rows"), 64)}
    source = make_frontend(
        TorchOptions(source=f"{tmp_path / 'nets.py'}:rows", shapes=shapes, compare=False)
    )
    result = source.deliver(_with_tiles(delivery_into(source, tmp_path / "network")))
    assert result.failure is None
    *smaller, _ = buckets = _manifest(tmp_path / "network")["buckets"]
    assert [bucket["needs_tiles"] for bucket in buckets] == [*[True] * len(smaller), False]
    inputs = np.random.default_rng(0).standard_normal((2, 64), np.float32)
    with load(tmp_path / "network") as network:
        wanted = network(inputs)
    files = tmp_path / "inputs.npy", tmp_path / "outputs.npy"
    np.save(files[0], inputs)
    done = completed([sys.executable, Path(refused.__file__), tmp_path / "network", *files])
    assert "rows=40 runs its kernels with vectors, because the network needs AMX" in done.stderr
    without = np.load(files[1])
    assert 0 < np.abs(without - wanted).max() < 1e-4 * np.abs(wanted).max()
    bundle = tmp_path / "bundle"
    write_c_bundle(tmp_path / "network", bundle, "net")
    links = ("-std=c++17", "-L.", "-lnet", "-Wl,-rpath,.", "-o", "example")
    completed(["c++", "main.cpp", *links], cwd=bundle)
    command = ("./example", "weights.bin", str(files[0]))
    for words, expected in (
        (command, wanted),
        ((sys.executable, "-c", REFUSED, str(Path(refused.__file__).parent), *command), without),
    ):
        completed(words, cwd=bundle)
        np.testing.assert_array_equal(np.load(bundle / "output0.npy"), expected)


REFUSED = """
import os, sys
sys.path.insert(0, sys.argv[1])
import refused

refused.refuse()
os.execv(sys.argv[2], sys.argv[2:])
"""


def test_a_bundle_for_c_has_the_tiles_alone(tiny, delivery_of, tmp_path):
    delivery = _with_tiles(delivery_of(NetworkFrontend(tiny)))
    assert NetworkFrontend(tiny).deliver(delivery).vectors
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    write_c_bundle(delivery.folder, bundle, "net")
    library = ctypes.CDLL(str(bundle / "libnet.so"))
    library.net_create.restype, library.net_destroy.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    handle = library.net_create(str(bundle / "weights.bin").encode(), 1)
    assert handle, "constants of other kernels may follow in the file"
    library.net_destroy(handle)


def test_wrong_vector_kernels_are_not_delivered(tiny, delivery_of, monkeypatch):
    def lying(*arguments):
        found = repacking_of(*arguments)
        return found and attrs.evolve(found, rows=np.array([found.rows[0], found.rows[1][::-1]]))

    monkeypatch.setattr(other_kernels, "repacking_of", lying)
    delivery = _with_tiles(delivery_of(NetworkFrontend(tiny)))
    result = NetworkFrontend(tiny).deliver(delivery)
    assert result.failure is None
    words = "the network loads only where the system permits AMX, since their outputs are wrong"
    assert result.vectors.startswith(words)
    assert "vectors" not in _manifest(delivery.folder)
    assert not (delivery.folder / "vectors").exists()


def test_they_are_left_out_if_nobody_wants_them(tiny, delivery_of):
    network = OnnxNetwork(attrs.evolve(tiny.options, vectors=False))
    delivery = _with_tiles(delivery_of(NetworkFrontend(network)))
    result = NetworkFrontend(network).deliver(delivery)
    assert (result.failure, result.vectors) == (None, None)
    assert not (delivery.folder / "vectors").exists()
