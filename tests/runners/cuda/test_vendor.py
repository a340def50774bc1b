"""The vendor's kernels on a device of this machine; without a GPU, what says that there is none."""

import numpy as np
import pytest
from chameleon_core._plugins.registry import Registry
from chameleon_core.plugin_api import NoOptions
from chameleon_runners._cuda.cudnn import VARIANTS, CudnnBaseline, StandInBaseline
from chameleon_runners._cuda.device import CudaDevice
from chameleon_runners._cuda.options import CudaDeviceOptions
from chameleon_runners._cuda.vendor import read_vendor_recipe
from chameleon_tvm._building.remote.artifact import read_recipe
from chameleon_tvm._operators.base import operator_of
from chameleon_tvm.api import BatchMatmulSpec, Conv2dSpec, DenseSpec

GPU, CPU = '{"arch": "sm_80", "kind": "cuda"}', '{"kind": "llvm"}'
CONVOLUTION = Conv2dSpec(input=[1, 16, 8, 8], filters=16, kernel=3, padding=1)


def test_it_is_a_baseline_for_plain_operators_on_gpus():
    baseline = Registry.default().create("baselines", "cudnn")
    assert baseline.vendor
    assert baseline.supports(CONVOLUTION.task("t", GPU))
    assert not baseline.supports(CONVOLUTION.task("t", CPU))
    fused = Conv2dSpec(input=[1, 16, 8, 8], filters=16, kernel=3, bias=True)
    assert not baseline.supports(fused.task("t", GPU))
    assert set(VARIANTS) == {"conv2d", "depthwise_conv2d", "dense", "batch_matmul"}


@pytest.mark.parametrize(
    "spec",
    [CONVOLUTION, DenseSpec(input=[4, 16], units=8), BatchMatmulSpec(a=[2, 4, 8], b=[2, 8, 8])],
    ids=lambda spec: spec.kind,
)
def test_a_device_computes_what_a_builder_without_it_named(spec, tmp_path):
    pytest.importorskip("torch")
    task, baseline = spec.task("t", CPU), StandInBaseline(NoOptions())
    device = CudaDevice(CudaDeviceOptions(kind="cpu"))
    for number, variant in enumerate(baseline.variants(task)):
        artifact = tmp_path / str(number)
        artifact.mkdir()
        baseline.builder(task, variant, threads=1).export((), artifact)
        kernel = device.load(artifact)
        (got,) = kernel.outputs()
        (expected,) = operator_of(task).reference(operator_of(task).inputs())
        np.testing.assert_allclose(got, expected, atol=1e-4 * np.abs(expected).max())
        assert len(kernel.repeats(1, 2, cold_bytes=1 << 16)) == 2


def test_pytorch_without_cuda_is_a_sentence(tmp_path):
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this PyTorch has a GPU")
    CudnnBaseline(NoOptions()).builder(CONVOLUTION.task("t", GPU), "nhwc", threads=1).export(
        (), tmp_path
    )
    with pytest.raises(RuntimeError, match=r"without CUDA|no usable GPU"):
        CudaDevice(CudaDeviceOptions()).load(tmp_path)


def test_other_devices_say_that_they_take_no_library(tmp_path):
    builder = CudnnBaseline(NoOptions()).builder(CONVOLUTION.task("t", GPU), "nchw", threads=1)
    builder.export((), tmp_path)
    assert read_vendor_recipe(tmp_path).variant == "nchw"
    with pytest.raises(FileNotFoundError, match="this machine's own devices"):
        read_recipe(tmp_path)
