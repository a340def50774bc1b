"""oneDNN through PyTorch computes what the operators say, in every variant."""

import json
import os

import attrs
import numpy as np
import pytest
from chameleon_core._task import Task
from chameleon_core.plugin_api import NoOptions
from chameleon_runners._baselines.onednn import VARIANTS, OneDNNBaseline
from chameleon_testing.conformance import check_baseline
from chameleon_tvm import api as specs
from chameleon_tvm._operators import convolution_specs

CPU = json.dumps({"kind": "llvm", "mcpu": "x86-64-v3"})

SPECS = {
    "3x3": specs.Conv2dSpec(input=(1, 32, 14, 14), filters=48, kernel=3, padding=1),
    "strided": specs.Conv2dSpec(input=(2, 16, 15, 13), filters=32, kernel=(3, 1), stride=(2, 1)),
    "nhwc": specs.Conv2dSpec(input=(1, 16, 8, 8), filters=16, kernel=1, layout="NHWC"),
    "blocked": specs.Conv2dSpec(input=(1, 32, 8, 8), filters=16, kernel=3, layout="NCHW16c"),
    "uneven padding": specs.Conv2dSpec(
        input=(1, 16, 8, 8), filters=16, kernel=3, stride=2, padding=(0, 1, 2, 1)
    ),
    "grouped and dilated": specs.Conv2dSpec(
        input=(1, 32, 12, 12), filters=32, kernel=3, padding=2, dilation=2, groups=4
    ),
    "depthwise": specs.DepthwiseConv2dSpec(input=(1, 32, 14, 14), kernel=3, padding=1),
    "depthwise multiplied": specs.DepthwiseConv2dSpec(
        input=(1, 16, 9, 9), kernel=5, stride=2, padding=2, multiplier=2
    ),
    "1-D": convolution_specs.Conv1dSpec(
        input=(1, 8, 30), filters=16, kernel=5, padding=(1, 2), layout="NWC"
    ),
    "1-D depthwise": convolution_specs.DepthwiseConv1dSpec(input=(1, 8, 30), kernel=3, dilation=2),
    "3-D": convolution_specs.Conv3dSpec(
        input=(1, 8, 5, 6, 7), filters=16, kernel=(3, 2, 1), stride=(1, 2, 1), padding=(1, 0, 0)
    ),
    "3-D uneven padding": convolution_specs.Conv3dSpec(
        input=(1, 8, 4, 6, 7), filters=16, kernel=3, padding=(1, 0, 2, 1, 1, 1), layout="NDHWC"
    ),
    "3-D depthwise": convolution_specs.DepthwiseConv3dSpec(
        input=(1, 8, 5, 6, 7), kernel=3, padding=1
    ),
    "dense": specs.DenseSpec(input=(3, 128), units=40),
    "bmm": specs.BatchMatmulSpec(a=(3, 8, 16), b=(3, 16, 24)),
    "attention": specs.AttentionSpec(
        query=(2, 3, 20, 16), key=(2, 3, 30, 16), value=(2, 3, 30, 24), scale=0.25
    ),
    "bmm transposed": specs.BatchMatmulSpec(a=(3, 8, 16), b=(3, 24, 16), transpose_b=True),
}


def baseline():
    return OneDNNBaseline(NoOptions())


@pytest.mark.parametrize("name", SPECS)
def test_every_variant_computes_the_operator(name):
    pytest.importorskip("torch")
    check_baseline(baseline, SPECS[name].task(name, CPU))


def test_every_operator_with_variants_is_tested():
    assert {spec.kind for spec in SPECS.values()} == set(VARIANTS)


def test_outputs_are_logical_and_contiguous():
    pytest.importorskip("torch")
    task = SPECS["nhwc"].task("nhwc", CPU)
    for variant in baseline().variants(task):
        (output,) = baseline().builder(task, variant, threads=1).build(()).outputs()
        assert output.shape == (1, 16, 8, 8)
        assert output.flags["C_CONTIGUOUS"]
        assert output.dtype == np.float32


@pytest.mark.parametrize(
    "change",
    [
        {"operator": "primfunc"},
        {"target": json.dumps({"kind": "cuda"})},
        {"target": "not JSON"},
        {"target": "[]"},
    ],
)
def test_it_declines_what_it_cannot_do(change):
    task = SPECS["3x3"].task("3x3", CPU)
    assert not baseline().supports(attrs.evolve(task, **change))


@pytest.mark.parametrize(
    "change",
    [{"mask": (1, 1, 20, 30)}, {"output_layout": "BSHD"}, {"key": (2, 1, 30, 16)}],
    ids=["mask", "layout", "heads"],
)
def test_attention_that_pytorch_would_rearrange_is_not_supported(change):
    value = {"value": (2, 1, 30, 24)} if "key" in change else {}
    spec = attrs.evolve(SPECS["attention"], **change, **value)
    assert not baseline().supports(spec.task("attention", CPU))


def test_it_declines_int8_which_it_saturates_without_vnni():
    quantized = attrs.evolve(SPECS["3x3"], dtype="int8", output_dtype="uint8")
    assert not baseline().supports(quantized.task("3x3", CPU))


def test_asking_imports_neither_torch_nor_tvm(run_python):
    task = SPECS["3x3"].task("3x3", CPU)
    assert isinstance(task, Task)
    code = f"""
import json, sys
from chameleon_core.plugin_api import NoOptions
from chameleon_core._task import Task
from chameleon_runners._baselines.onednn import OneDNNBaseline
baseline = OneDNNBaseline(NoOptions())
task = Task(**json.loads({json.dumps(task.to_json())!r}))
baseline.supports(task) and baseline.variants(task)
print(*{{"torch", "tvm"}} & set(sys.modules))
"""
    assert run_python(code).split() == []


@pytest.mark.full
@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no affinities here")
def test_threads_do_not_share_the_core_of_a_bound_main_thread(run_python):
    pytest.importorskip("torch")
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("this process may use one core alone")
    task = SPECS["3x3"].task("3x3", CPU)
    code = f"""
import json, os, pathlib
from chameleon_core.plugin_api import NoOptions
from chameleon_core._task import Task
from chameleon_runners._baselines.onednn import OneDNNBaseline
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
os.cpu_count = lambda: 1  # a container may say less than the number of its last core
task = Task(**json.loads({json.dumps(task.to_json())!r}))
OneDNNBaseline(NoOptions()).builder(task, "nchw", threads=2).build(()).outputs()
threads = [int(p.name) for p in pathlib.Path("/proc/self/task").iterdir()]
used = [os.sched_getaffinity(thread) for thread in threads]
print(len(os.sched_getaffinity(0)), len(set().union(*used)))
"""
    # NumPy's threads start before the main thread is bound.
    alone = {"OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "1"}
    done = run_python(code, env={**os.environ, **alone})
    main, together = map(int, done.split())
    assert main == 1
    assert together >= 2


@pytest.mark.parametrize("epilogue", [{"bias": True}, {"residual": True}, {"activation": "relu"}])
def test_an_epilogue_that_it_would_not_fuse_is_not_supported(epilogue):
    baseline = OneDNNBaseline(NoOptions())
    spec = SPECS["3x3"]
    assert baseline.supports(spec.task("t", CPU))
    assert not baseline.supports(attrs.evolve(spec, **epilogue).task("t", CPU))


def test_cold_caches_are_cold_for_the_weights_alone():
    import torch  # noqa: PLC0415 - as in the builder, after TVM
    from chameleon_runners._baselines.torch_builder import TorchKernel  # noqa: PLC0415

    result = []

    def arguments():
        result.append((torch.ones(4), torch.ones(8)))
        return result[-1]

    kernel = TorchKernel(lambda data, weights: data.sum() + weights.sum(), arguments, [16, 32], {1})
    kernel.time(2, cold_bytes=90)
    data, weights = zip(*kernel._copies, strict=True)
    assert len(weights) == len({id(weight) for weight in weights}) == 1 + 3
    assert len({id(row) for row in data}) == 1
