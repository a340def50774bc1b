"""A network for tests to which its size does not matter, and processes that start quickly."""

import sys
from functools import partial

import numpy as np
import pytest
from chameleon_core.plugin_api import Delivery, NoOptions
from chameleon_networks._evaluation import latency, processes
from chameleon_networks._importers.options import OnnxOptions
from chameleon_networks._importers.sources import OnnxNetwork
from chameleon_tvm._device.targets import TVMTargets
from chameleon_tvm._spaces.auto import AutoSpace
from chameleon_tvm._spaces.options import AutoOptions

from .forked_children import ForkedChild, ForkServer
from .onnx_files import onnx_file


@pytest.fixture(scope="session")
def _fork_server():
    server = ForkServer()
    yield server
    server.close()


@pytest.fixture(scope="module")
def forked_networks(request):
    """Processes of networks are forked from one that has imported TVM and torch, on Linux.

    For modules of tests whose subject is not how such a process is started.
    """
    if sys.platform != "linux":  # only there can one be a child of who has not forked it
        yield
        return
    server = request.getfixturevalue("_fork_server")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "ChildProcess", partial(ForkedChild, server))
        yield


@pytest.fixture(scope="session", autouse=True)
def _turns_of_networks_are_short():
    """No test asserts anything on times, and on busy cores each turn is taken three times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(latency, "TURN_SECONDS", 0.002)
        yield


@pytest.fixture
def chameleon(command_line):
    return command_line


@pytest.fixture(scope="session")
def target():
    return TVMTargets(NoOptions()).resolve("native")


@pytest.fixture(scope="session")
def delivery_into(target):
    """Makes a delivery with a random configuration for every task, or with its first guess."""

    def delivery(source, folder, *, guessed=False):
        space = AutoSpace(AutoOptions())
        rng = np.random.default_rng(0)
        winners = []
        for task in source.tasks(target):
            design = space.design_space(task)
            config = design.first_guesses[0] if guessed else design.sample(1, rng)[0]
            indices = tuple(int(index) for index in config)
            winners.append(Delivery.Winner(task=task, config=indices, seconds=1e-3))
        return Delivery(target=target, winners=winners, space=space, folder=folder, threads=2)

    return delivery


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """Three convolutions and a dense layer, in a file: onnxruntime starts sooner than torch."""
    text = """(float[1, 3, 8, 8] image) => (float[1, 10] gemm8) {
        [conv0] conv0 = Conv <pads = [1, 1, 1, 1]> (image, conv0_weights)
        relu1 = Relu(conv0)
        [conv2] conv2 = Conv <pads = [1, 1, 1, 1], strides = [2, 2]> (relu1, conv2_weights)
        relu3 = Relu(conv2)
        [conv4] conv4 = Conv(relu3, conv4_weights)
        relu5 = Relu(conv4)
        pool6 = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (relu5)
        flat7 = Flatten(pool6)
        [gemm8] gemm8 = Gemm <transB = 1> (flat7, gemm8_weights)
    }"""
    shapes = {
        "conv0": (16, 3, 3, 3),
        "conv2": (24, 16, 3, 3),
        "conv4": (32, 24, 1, 1),
        "gemm8": (10, 128),
    }
    rng = np.random.default_rng(0)
    weights = {
        f"{name}_weights": rng.standard_normal(shape, np.float32)
        / np.float32(np.sqrt(np.prod(shape[1:])))
        for name, shape in shapes.items()
    }
    file = onnx_file(tmp_path_factory.mktemp("tiny") / "tiny.onnx", text, **weights)
    return OnnxNetwork(OnnxOptions(source=str(file), compare=False))
