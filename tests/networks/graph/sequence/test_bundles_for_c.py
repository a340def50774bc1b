"""A small network as a bundle for C: the same bits as its loader in Python."""

import shutil

import numpy as np
import pytest
from chameleon_networks._export.bundles import write_c_bundle
from chameleon_networks._graph.relax_utils import relax
from programs import completed

from ...modules import module_of  # noqa: TID252 - shared by folders

CC, CXX = shutil.which("gcc") or "cc", shutil.which("g++") or "c++"
RNG = np.random.default_rng(5)


def _weights(*shape):
    return relax.const(RNG.standard_normal(shape).astype(np.float32))


@pytest.mark.full
def test_a_network_gives_the_same_bits(deliver, tmp_path):
    first, second, product = _weights(16, 3, 3, 3), _weights(16, 16, 3, 3), _weights(16, 10)

    def build(emit, image, scale):
        x = emit(relax.op.nn.relu(relax.op.nn.conv2d(image, first, padding=1)))
        y = emit(relax.op.add(x, relax.op.nn.conv2d(x, second, padding=1)))
        answers = emit(relax.op.matmul(emit(relax.op.mean(y, axis=[2, 3])), product))
        return emit(relax.op.multiply(answers, scale)), emit(relax.op.nn.softmax(answers))

    network = deliver(
        module_of(build, ((1, 3, 16, 16), "float32"), ((1, 10), "float32")), guesses=True
    )
    inputs = [RNG.standard_normal((1, 3, 16, 16)), RNG.standard_normal((1, 10))]
    inputs = [array.astype(np.float32) for array in inputs]
    wanted = network.run(*inputs)
    bundle = tmp_path / "bundle"
    write_c_bundle(network.folder, bundle, "bundle")
    flags = ("-std=c++17", "-Wall", "-Werror", "-L.", "-Wl,-rpath,$ORIGIN", "-o", "example")
    completed([CXX, "main.cpp", *flags, "-lbundle"], cwd=bundle)
    for number, array in enumerate(inputs):
        np.save(bundle / f"{number}.npy", array)
    words = ("./example", "weights.bin", "0.npy", "1.npy")
    ran = completed(words, cwd=bundle, env={}, timeout=240)
    assert ran.stdout.splitlines()[:2] == ["output0.npy", "output1.npy"]
    for number, array in enumerate(wanted):
        assert np.load(bundle / f"output{number}.npy").tobytes() == array.tobytes()
    completed([CC, "-std=c99", "-Wall", "-Werror", "-fsyntax-only", "bundle.h"], cwd=bundle)
