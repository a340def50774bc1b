"""Templates built for ARM compute the reference's numbers, under an emulator behind ``rpc``.

``CHAMELEON_AARCH64`` names a folder that ``prepare_aarch64.py`` has filled. A server of TVM's RPC
runs in ``qemu-aarch64``, and is used as a board would be: libraries are cross-compiled here.
"""

import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from chameleon_core._errors import DeviceLostError
from chameleon_core._plugins.registry import Registry
from chameleon_runners._rpc.device import RpcDevice, RpcDeviceOptions
from chameleon_tvm._spaces.template.options import TemplateOptions
from chameleon_tvm._spaces.template.provider import TemplateSpace
from chameleon_tvm.api import BatchMatmulSpec, Conv2dSpec, DenseSpec, DepthwiseConv2dSpec

from .conftest import free_port

VARIABLE = "CHAMELEON_AARCH64"
CPUINFO = Path(__file__).parents[2] / "tvm" / "cpus" / "cpuinfo"
KEY = "emulated"
START_SECONDS = 240.0
SERVER = f"""
import sys
import tvm
from tvm.rpc.server import PopenRPCServerState
port = int(sys.argv[1])
PopenRPCServerState("127.0.0.1", port, port + 1, key="{KEY}", silent=True).thread.join()
"""
# SVE's registers are as long as those of the processor: 256 bits.
EMULATED = {
    "cortex-a72": ("cortex-a72", ""),
    "neoverse-v1": ("max,sve-default-vector-length=32", "neoverse-v1"),
}
CONVOLUTION = Conv2dSpec(
    input=[1, 24, 9, 9], filters=16, kernel=3, padding=1, layout="NHWC", output_layout="NHWC"
)
CASES = [
    pytest.param(CONVOLUTION, ("direct",), id="direct"),
    pytest.param(
        attrs.evolve(CONVOLUTION, stride=2, layout="NCHW", output_layout="NCHW"),
        ("direct",),
        id="direct-nchw",
    ),
    pytest.param(CONVOLUTION, ("winograd2",), id="winograd2"),
    pytest.param(CONVOLUTION, ("winograd4",), id="winograd4"),
    pytest.param(
        DepthwiseConv2dSpec(input=[1, 20, 9, 9], kernel=3, padding=1, layout="NHWC"),
        ("direct",),
        id="depthwise",
    ),
    pytest.param(DenseSpec(input=[3, 40], units=24), ("direct",), id="dense"),
    pytest.param(BatchMatmulSpec(a=[2, 7, 12], b=[2, 12, 10]), ("direct",), id="batch-matmul"),
]

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


@attrs.frozen(kw_only=True)
class Board:
    """An emulated processor: the target of its kernels, the device, and what it said of itself."""

    target: str
    device: RpcDevice
    described: dict[str, Any]


def _prepared():
    """The emulator and the folder, or a skipped test with the reason."""
    emulator = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    if emulator is None:
        pytest.skip("there is no qemu-aarch64 (Debian's package qemu-user)")
    if shutil.which("aarch64-linux-gnu-g++") is None:
        pytest.skip("there is no aarch64-linux-gnu-g++ (Debian's g++-aarch64-linux-gnu)")
    folder = os.environ.get(VARIABLE, "")
    if not folder:
        pytest.skip(f"{VARIABLE} names no folder that prepare_aarch64.py has filled")
    return emulator, Path(folder)


@pytest.fixture(scope="module", params=sorted(EMULATED))
def board(request):
    emulator, folder = _prepared()
    cpu, cpuinfo = EMULATED[request.param]
    shown = folder / "root" / "proc" / "cpuinfo"
    shown.parent.mkdir(exist_ok=True)
    shown.write_text((CPUINFO / cpuinfo).read_text() if cpuinfo else "processor : 0\n")
    port = free_port()
    python = folder / "root" / "usr" / "bin" / "python3.11"
    command = [emulator, "-L", folder / "root", "-cpu", cpu, python, "-c", SERVER, port]
    environment = {**os.environ, "PYTHONPATH": str(folder / "site"), "TVM_NUM_THREADS": "2"}
    with subprocess.Popen([str(word) for word in command], env=environment) as server:
        text = f"llvm -mtriple=aarch64-linux-gnu -mcpu={request.param} -num-cores=2"
        target = Registry.default().create("targets", "tvm").resolve(text)
        device = RpcDevice(RpcDeviceOptions(address=f"127.0.0.1:{port}", key=KEY, threads=2))
        try:
            described = _connect(device, target, server)
            yield Board(target=target, device=device, described=described)
        finally:
            device.close()
            server.kill()


def _connect(device, target, server):
    """What the device says of itself, once its server has started."""
    limit = time.monotonic() + START_SECONDS
    while True:
        try:
            return device.connect(target)
        except DeviceLostError:
            if server.poll() is not None or time.monotonic() > limit:
                raise
            time.sleep(1.0)


@pytest.mark.parametrize(("spec", "algorithms"), CASES)
def test_a_template_computes_the_numbers_of_the_reference(board, spec, algorithms, tmp_path):
    provider = TemplateSpace(TemplateOptions(algorithms=algorithms))
    task = spec.task("t", board.target)
    builder = provider.builder(task, threads=2)
    (expected,), tolerance = builder.reference()
    space = provider.design_space(task)
    drawn = space.sample(2, np.random.default_rng(0))
    for number, config in enumerate([*space.first_guesses[:2], *drawn]):
        folder = tmp_path / str(number)
        folder.mkdir()
        builder.export(config.tolist(), folder)
        (got,) = board.device.load(folder).outputs()
        error = np.abs(got - expected).max() / np.abs(expected).max()
        assert error <= tolerance, space.decode(config)


def test_the_emulated_processor_is_asked(board):
    """The name is that of the part, or of the faked description that LLVM reads there."""
    expected = "neoverse-v1" if "neoverse-v1" in board.target else "cortex-a72"
    assert board.described["cpu"] == expected
    assert "guessed" not in board.described
    assert board.described["triple"].startswith("aarch64")
