"""TVM's own server, which knows nothing of Chameleon, runs kernels for `native`, tiles included."""

import subprocess
import sys

import numpy as np
import pytest
from chameleon_core._errors import DeviceLostError
from chameleon_runners._rpc.device import RpcDevice
from chameleon_runners._rpc.options import RpcDeviceOptions
from chameleon_tvm._device.cpus.naming import native_name
from chameleon_tvm._instructions.selection import tile_products_of
from chameleon_tvm._spaces.template.options import TemplateOptions
from chameleon_tvm._spaces.template.provider import TemplateSpace
from chameleon_tvm._types import BFLOAT16, FLOAT32, INT8, UINT8
from chameleon_tvm.api import DenseSpec

from ..conftest import eventually  # noqa: TID252 - tests are no package
from .conftest import free_port

pytestmark = pytest.mark.full

KEY = "plain"


@pytest.fixture(scope="module")
def address():
    port = free_port()
    words = ["--host", "127.0.0.1", "--port", str(port), "--port-end", str(port + 1)]
    command = [sys.executable, "-m", "tvm.exec.rpc_server", *words, "--key", KEY, "--silent"]
    with subprocess.Popen(command) as server:
        yield f"127.0.0.1:{port}"
        server.kill()


@pytest.fixture(scope="module")
def connected(address, native):
    """A device of the server, and the server's facts."""
    device = RpcDevice(RpcDeviceOptions(address=address, key=KEY, connect_timeout=60.0))
    descriptions = []

    def answers():
        try:
            descriptions.append(device.connect(native))
        except DeviceLostError:
            return False
        return True

    assert eventually(answers), "the server does not start"
    yield device, descriptions[-1]
    device.close()


def test_it_goes_by_the_flags_of_its_processor(connected):
    _, description = connected
    name = native_name()
    assert description["cpu"] == name.mcpu
    assert tuple(description.get("mattr", ())) == name.mattr
    assert "guessed" not in description


@pytest.mark.parametrize("dtype", [FLOAT32, BFLOAT16, INT8])
def test_kernels_for_native_compute_there(connected, native, dtype, tmp_path):
    """The first guess of a reduced dtype is a kernel with tiles if this CPU has them."""
    device, _ = connected
    task = DenseSpec(input=(32, 64), units=32, dtype=dtype).task("dense", native)
    provider = TemplateSpace(TemplateOptions())
    space, builder = provider.design_space(task), provider.builder(task, threads=1)
    config = space.first_guesses[0]
    has_tiles = dtype != FLOAT32 and bool(
        tile_products_of(native, data=UINT8 if dtype == INT8 else dtype, weights=dtype)
    )
    assert space.decode(config).get("algorithm", "direct").startswith("tile") == has_tiles
    builder.export([int(index) for index in config], tmp_path)
    (expected,), tolerance = builder.reference()
    (output,) = device.load(tmp_path).outputs()
    assert np.abs(output - expected).max() <= tolerance * np.abs(expected).max()
