"""A network with tile kernels runs others where the CPU or the system has no tiles."""

import ctypes
import errno
import json
import logging
import shutil
from types import SimpleNamespace

import attrs
import numpy as np
import pytest
from chameleon_core.plugin_api import ChameleonError, Delivery, NoOptions
from chameleon_networks._artifact import load as loading
from chameleon_networks._artifact.shared_weights import share_weights
from chameleon_networks._artifact.writer import (
    manifest_of,
    read_manifest,
    write_artifact,
    write_manifest,
)
from chameleon_networks._compile.compile import compile_network
from chameleon_networks._compile.kernels import Kernels
from chameleon_networks._delivery import other_kernels, vector_kernels
from chameleon_networks._delivery.delivery_steps import GraphWithKernels
from chameleon_networks._graph.fusion import find_fusions
from chameleon_networks._graph.prepare import prepare_module
from chameleon_networks._graph.relax_utils import relax
from chameleon_system._permissions import AMX, request_permission
from chameleon_system._processor import own_architecture
from chameleon_tvm._device.targets import TVMTargets
from chameleon_tvm._spaces.auto import AutoSpace
from chameleon_tvm._spaces.options import AutoOptions
from chameleon_tvm.api import host_features

from ...modules import expected, module_of  # noqa: TID252 - shared by folders
from .conftest import THREADS

pytestmark = pytest.mark.skipif(own_architecture() != "x86_64", reason="tiles are of x86 CPUs")

SHAPE = (1, 44, 9, 10)
RNG = np.random.default_rng(0)
# Channels that fill no blocks: the last ones are packed twice, or beside zeros.
POINTWISE = 0.1 * RNG.standard_normal((48, 44, 1, 1), np.float32)
FILTERS = 0.1 * RNG.standard_normal((48, 48, 3, 3), np.float32)
BIAS = RNG.standard_normal((1, 48, 1, 1), np.float32)
INPUTS = RNG.standard_normal(SHAPE, np.float32)
TILES = frozenset({"amx-tile", "amx-bf16", "amx-int8"})


def _convolutions(emit, x):
    y = emit(relax.op.nn.conv2d(x, relax.const(POINTWISE)))
    y = emit(relax.op.nn.conv2d(y, relax.const(FILTERS), padding=1))
    return emit(relax.op.nn.relu(emit(relax.op.add(y, relax.const(BIAS)))))


MODULE = module_of(_convolutions, (SHAPE, "float32"))


@attrs.frozen(kw_only=True, eq=False)
class Network:
    """A network with kernels that use tiles, for this CPU with tiles, which may lack them."""

    target: str
    graph: GraphWithKernels

    @classmethod
    def of(cls, algorithm):
        options = json.loads(TVMTargets(NoOptions()).resolve("native"))
        tiles = [*options.get("mattr", ()), *(f"+{feature}" for feature in sorted(TILES))]
        target = json.dumps({**options, "mattr": tiles}, sort_keys=True)
        module = prepare_module(MODULE, "NHWC")
        fusions = find_fusions(module)
        space, winners = _space(algorithm), {}
        for fusion in fusions:
            task = fusion.spec.task("layer", target)
            config = _guesses(space, task, algorithm)[0]
            winners[task.key] = Delivery.Winner(task=task, config=config, seconds=1e-3)
        kernels = Kernels(winners, space, target)
        graph = GraphWithKernels(module=module, fusions=fusions, kernels=kernels)
        return cls(target=target, graph=graph)

    def written(self, folder):
        """Its folder, with vector kernels, and the bytes of its own weights."""
        graph = self.graph
        built = compile_network(graph.module, graph.fusions, graph.kernels, self.target)
        facts = manifest_of(graph.module, graph.fusions, graph.kernels, self.target, THREADS)
        write_artifact(folder, built.executable, {**facts, **built.facts})
        size = (folder / "weights.bin").stat().st_size
        inner = folder / vector_kernels.VECTORS
        chosen, _ = vector_kernels.write_vector_kernels(
            inner, graph, self.target, THREADS, built.permissions
        )
        assert chosen.replaced == len(graph.kernels.winners)
        share_weights(folder, [folder, inner])
        write_manifest(folder, {**read_manifest(folder), "vectors": vector_kernels.VECTORS})
        return folder, size


def _space(algorithm):
    return AutoSpace(AutoOptions(algorithms=("direct", "winograd4", algorithm)))


def _guesses(space, task, algorithm):
    configs = space.design_space(task)
    guesses = [tuple(config) for config in configs.first_guesses.tolist()]
    return [config for config in guesses if configs.decode(config)["algorithm"] == algorithm]


@pytest.fixture(scope="module", params=["split3", "split6"])
def delivered(request, tmp_path_factory):
    return Network.of(request.param).written(tmp_path_factory.mktemp(request.param) / "network")


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Makes the loader see a CPU with all features of a network but some, and a system."""

    def make(folder, *, lacking=frozenset(), refused=0):
        features = read_manifest(folder)["cpu_flags"]
        cpuinfo = tmp_path / "cpuinfo"
        flags = [flag for feature, flag in features.items() if feature not in lacking]
        cpuinfo.write_text(f"flags\t\t: {' '.join(flags)}\n")
        monkeypatch.setattr(loading, "CPUINFO", cpuinfo)
        library = SimpleNamespace(syscall=lambda *_: -1 if refused else 0)
        system = SimpleNamespace(
            CDLL=lambda *_, **__: library, c_long=ctypes.c_long, get_errno=lambda: refused
        )
        monkeypatch.setattr(loading, "ctypes", system)

    return make


def _check(network):
    (wanted,) = expected(MODULE, INPUTS)
    error = np.abs(network(INPUTS) - wanted).max() / np.abs(wanted).max()
    assert error < 2e-5


@pytest.mark.full
@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"lacking": TILES}, "this CPU lacks amx-bf16, amx-int8, amx-tile, which the network was"),
        ({"refused": errno.EPERM}, "the network needs AMX, and the system refuses arch_prctl: Op"),
    ],
)
def test_vectors_run_and_the_reason_is_told(delivered, machine, caplog, facts, reason):
    folder, _ = delivered
    machine(folder, **facts)
    with loading.load(folder, threads=2, instances=2) as network:
        assert network.vectors.startswith(reason)
        _check(network)
    said, *_ = [record for record in caplog.records if record.name == "chameleon.network"]
    assert said.levelno == logging.WARNING
    assert f"runs its kernels with vectors, because {reason}" in said.getMessage()


@pytest.mark.full
def test_tiles_run_where_they_are_permitted(delivered):
    if not host_features() >= TILES or request_permission(AMX):
        pytest.skip("this CPU has no tiles, or the system refuses them")
    with loading.load(delivered[0]) as network:
        assert network.vectors == ""
        _check(network)


@pytest.mark.full
def test_weights_are_in_the_file_once(delivered):
    folder, size = delivered
    whole = (folder / "weights.bin").stat().st_size
    padded_biases = 2 * 4 * 128
    assert whole <= size + padded_biases
    assert not (folder / "vectors" / "weights.bin").exists()


@pytest.mark.full
def test_damaged_vector_kernels_are_noticed(delivered, tmp_path):
    folder = shutil.copytree(delivered[0], tmp_path / "network")
    loading.check_files(folder)
    with (folder / "vectors" / "network.so").open("r+b") as library:
        library.write(b"damaged")
    with pytest.raises(RuntimeError, match=r"vectors/network.so was changed"):
        loading.check_files(folder)


@pytest.fixture(scope="module")
def network():
    return Network.of("split3")


def test_the_fastest_measured_kernel_is_taken_whose_weights_can_be_made(network):
    *_, (key, winner) = network.graph.kernels.winners.items()
    space = _space("split3")
    *_, direct = _guesses(space, winner.task, "direct")
    winograd, *_ = _guesses(space, winner.task, "winograd4")
    others = tuple(
        Delivery.Winner(task=winner.task, config=config, seconds=2e-3)
        for config in (winograd, direct)
    )
    winners = {**network.graph.kernels.winners, key: attrs.evolve(winner, others=others)}
    kernels = attrs.evolve(network.graph.kernels, winners=winners)
    chosen = vector_kernels.vector_kernels(attrs.evolve(network.graph, kernels=kernels))
    assert chosen.kernels.winners[key] == others[1]
    assert len(chosen.repackings) == 2


@pytest.mark.full
def test_weights_that_cannot_be_made_are_stored(network, machine, tmp_path, monkeypatch):
    monkeypatch.setattr(other_kernels, "repacking_of", lambda *_: None)
    folder, size = network.written(tmp_path / "network")
    assert (folder / "weights.bin").stat().st_size > 1.5 * size
    machine(folder, lacking=TILES)
    with loading.load(folder) as loaded:
        _check(loaded)


def test_a_space_without_such_kernels_has_none(network):
    space = AutoSpace(AutoOptions(algorithms=("split3",)))
    winners = {}
    for key, winner in network.graph.kernels.winners.items():
        config = tuple(space.design_space(winner.task).first_guesses[0].tolist())
        winners[key] = attrs.evolve(winner, config=config)
    kernels = Kernels(winners, space, network.target)
    with pytest.raises(ChameleonError, match="task layer has no other kernel"):
        vector_kernels.vector_kernels(attrs.evolve(network.graph, kernels=kernels))
