"""Random legal configurations of the CUDA templates compute the reference's numbers, emulated."""

import math

import numpy as np
import pytest
from chameleon_tvm._building.lowering import cuda_source
from chameleon_tvm._device.targets import tvm_target
from chameleon_tvm._instructions.fragments import FRAGMENTS, SIDE
from chameleon_tvm._opaque import opaque
from chameleon_tvm._operators.base import operator_of
from chameleon_tvm._quick_tvm import Schedule, te, tirx
from chameleon_tvm._spaces.cuda.tensor_core import TensorCoreTemplate
from chameleon_tvm._spaces.template.provider import template_of
from chameleon_tvm._types import array_type
from chameleon_tvm.api import BatchMatmulSpec, Conv2dSpec, DenseSpec, DepthwiseConv2dSpec
from computing import first_of
from marks import full

SM_80 = '{"arch": "sm_80", "kind": "cuda"}'
FUSED = {"bias": True, "residual": True}
LAYER = {"input": [1, 16, 8, 8], "filters": 32, "kernel": 3, "padding": 1, "layout": "NHWC"}
HALF = {"dtype": "float16"}
BFLOAT = {"dtype": "bfloat16"}
SPECS = {
    "plain": Conv2dSpec(input=[1, 8, 10, 12], filters=16, kernel=3),
    "padded-strided": Conv2dSpec(input=[2, 6, 9, 13], filters=12, kernel=3, stride=2, padding=1),
    "pointwise": Conv2dSpec(input=[1, 16, 8, 8], filters=8, kernel=1),
    "grouped-dilated": Conv2dSpec(
        input=[1, 8, 12, 12], filters=12, kernel=(3, 2), padding=(1, 0, 2, 1), dilation=2, groups=2
    ),
    "nhwc-fused": Conv2dSpec(
        **{**LAYER, "input": [1, 8, 8, 8], "filters": 16}, **FUSED, activation="relu6"
    ),
    "mixed-layouts": Conv2dSpec(
        input=[1, 4, 8, 8], filters=8, kernel=3, output_layout="NHWC", bias=True, activation="relu"
    ),
    "depthwise": DepthwiseConv2dSpec(input=[2, 12, 9, 10], kernel=3, stride=2, padding=1),
    "depthwise-nhwc": DepthwiseConv2dSpec(
        input=[1, 16, 8, 8], kernel=(5, 3), padding=1, layout="NHWC", bias=True, activation="relu6"
    ),
    "dense": DenseSpec(input=[8, 24], units=36),
    "dense-fused": DenseSpec(input=[6, 16], units=20, **FUSED, activation="gelu"),
    "dense-one-row": DenseSpec(input=[1, 64], units=10, bias=True),
    "batch-matmul": BatchMatmulSpec(a=[3, 8, 12], b=[3, 12, 16]),
    "batch-matmul-transposed": BatchMatmulSpec(a=[2, 10, 8], b=[2, 12, 8], transpose_b=True),
    "half-dense": DenseSpec(input=[32, 64], units=48, **FUSED, activation="relu", **HALF),
    "half-dense-plain": DenseSpec(input=[48, 32], units=32, **HALF),
    "half-batch-matmul": BatchMatmulSpec(a=[2, 32, 32], b=[2, 32, 64], **HALF),
    "half-batch-matmul-transposed": BatchMatmulSpec(
        a=[2, 32, 48], b=[2, 32, 48], transpose_b=True, **HALF
    ),
    "bfloat-dense": DenseSpec(input=[32, 48], units=32, bias=True, activation="gelu", **BFLOAT),
    "bfloat-batch-matmul-transposed": BatchMatmulSpec(
        a=[2, 16, 32], b=[2, 32, 32], transpose_b=True, **BFLOAT
    ),
    "half-convolution": Conv2dSpec(**{**LAYER, "input": [1, 32, 8, 8]}, **HALF),
    "half-convolution-fused": Conv2dSpec(
        input=[2, 32, 9, 7],
        filters=16,
        kernel=(3, 2),
        padding=(1, 0, 1, 1),
        **{"stride": 2, "layout": "NHWC", "activation": "relu", **FUSED, **HALF},
    ),
    "bfloat-convolution": Conv2dSpec(
        **{**LAYER, "input": [1, 16, 10, 10], "padding": 0}, dilation=2, residual=True, **BFLOAT
    ),
    "half-convolution-pointwise": Conv2dSpec(
        input=[1, 48, 4, 4], filters=32, kernel=1, layout="NHWC", **HALF
    ),
}


def blocks_of(template, values):
    """Blocks of threads that a configuration is launched with."""
    if isinstance(template, TensorCoreTemplate):
        return template.sizes.batch * values["tile_m"][0] * values["tile_n"][0]
    nest = template.nest
    return nest.copies * math.prod(values[axis.knob][0] for axis in nest.outputs)


def check(spec, config_of, emulate, folder):
    """Emulate one configuration and compare it with the operator's reference."""
    task = spec.task("t", SM_80)
    template, operator = template_of(task), operator_of(task)
    space = template.space()
    values = space.decode(config_of(space))
    inputs = operator.inputs()
    program = template.program(values, operator, inputs)
    parameters = list(program.function.params)
    arrays = {str(p.name): a for p, a in zip(parameters, program.inputs, strict=False)}
    out = parameters[-1]
    dtype = array_type(str(out.dtype))
    arrays[str(out.name)] = np.full([int(extent) for extent in out.shape], np.nan, dtype)
    source = cuda_source(program.function, tvm_target(SM_80))
    (expected,) = operator.reference(inputs)
    for physical in emulate(source, blocks_of(template, values), arrays, str(out.name), folder):
        (got,) = program.unpack([physical])
        error = np.abs(got - expected).max() / np.abs(expected).max()
        assert error <= operator.tolerance, values


def drawn(seed):
    return lambda space: space.sample(1, np.random.default_rng(seed))[0]


@pytest.mark.full
@pytest.mark.parametrize("name", SPECS)
def test_programs_compute_the_reference(name, emulate, tmp_path):
    check(SPECS[name], drawn(0), emulate, tmp_path)


def test_opaque_arithmetic_reaches_the_gpu(emulate, tmp_path):
    """TVM's simplifier must not replace ``(x + c) - c`` by ``x``."""
    x = te.placeholder((64,), "float32", "x")
    n = te.placeholder((64,), "int32", "n")
    large, seven = tirx.const(12582912.0, "float32"), tirx.const(7, "int32")

    def value(i):
        parts = opaque("floor_modulo", n(i), seven), opaque("floor_divide", n(i), seven)
        rounded = opaque("subtract", opaque("add", x(i), large), large)
        return opaque("maximum", rounded, tirx.Cast("float32", opaque("add", *parts)))

    out = te.compute((64,), value, "out")
    schedule = Schedule(te.create_prim_func([x, n, out]))
    [loop] = schedule.get_loops(schedule.get_sblock("out"))
    outer, inner = schedule.split(loop, [None, 32])
    schedule.bind(outer, "blockIdx.x")
    schedule.bind(inner, "threadIdx.x")
    source = cuda_source(schedule.mod["main"], tvm_target(SM_80))
    rng = np.random.default_rng(0)
    numbers = (20 * rng.standard_normal(64)).astype(np.float32)
    integers = rng.integers(-100, 100, 64).astype(np.int32)
    arrays = {"x": numbers, "n": integers, "out": np.zeros_like(numbers)}
    wanted = np.maximum(np.round(numbers), integers % 7 + integers // 7)
    for got in emulate(source, 2, arrays, "out", tmp_path):
        np.testing.assert_array_equal(got, wanted)


FIRST, *OTHERS = FRAGMENTS.values()


@pytest.mark.parametrize("one", [full(FIRST), *OTHERS], ids=lambda one: one.name)
def test_fragments_compute_their_meaning(one, emulate, tmp_path):
    task = DenseSpec(input=[SIDE, SIDE], units=SIDE, dtype=one.data).task("t", SM_80)
    template, operator = template_of(task), operator_of(task)
    values = template.space().decode(template.space().first_guesses[0])
    data, weights = inputs = operator.inputs()
    program = template.program(values, operator, inputs)
    source = cuda_source(program.function, tvm_target(SM_80))
    assert any(mnemonic in source for mnemonic in one.mnemonics)
    names = [str(parameter.name) for parameter in program.function.params]
    empty = np.zeros((SIDE, SIDE), array_type(one.data))
    arrays = dict(zip(names, [*program.inputs, empty], strict=True))
    sides = [side.astype(np.float32) for side in (data, weights.T)]
    expected = one.meaning(np.zeros((SIDE, SIDE), np.float32), *sides)
    for physical in emulate(source, 1, arrays, names[-1], tmp_path):
        (got,) = program.unpack([physical])
        assert np.abs(got - expected).max() <= operator.tolerance * np.abs(expected).max()


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1, 13))
@pytest.mark.parametrize("name", SPECS)
def test_many_configurations(name, seed, emulate, tmp_path):
    check(SPECS[name], drawn(seed), emulate, tmp_path)


def test_first_guesses_of_a_convolution(emulate, tmp_path):
    check(SPECS["padded-strided"], lambda space: space.first_guesses[0], emulate, tmp_path)


def test_the_emulation_finds_a_missing_barrier_and_reading_beyond_the_end(emulate, tmp_path):
    source = """
extern "C" __global__ void __launch_bounds__(8) main_kernel(float* __restrict__ a, float* b) {
  __shared__ float held[8];
  held[threadIdx.x] = a[threadIdx.x + OFFSET];
  b[threadIdx.x] = held[7 - threadIdx.x];
}"""
    arrays = {"a": np.arange(8, dtype="float32"), "b": np.zeros(8, "float32")}
    racing = emulate(source.replace("OFFSET", "0"), 1, arrays, "b", tmp_path)
    assert not np.array_equal(*racing, equal_nan=True)
    with pytest.raises(AssertionError, match="heap-buffer-overflow"):
        emulate(source.replace("OFFSET", "1"), 1, arrays, "b", tmp_path)


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "arch"),
    [
        ("nhwc-fused", "sm_75"),
        ("depthwise", "sm_80"),
        ("dense-fused", "sm_90"),
        ("half-dense", "sm_80"),
        ("half-batch-matmul-transposed", "sm_90"),
        ("half-convolution-fused", "sm_75"),
        ("bfloat-dense", "sm_90"),
        ("bfloat-convolution", "sm_80"),
    ],
)
def test_nvcc_compiles_what_is_generated(name, arch, nvcc):
    task = SPECS[name].task("t", f'{{"arch": "{arch}", "kind": "cuda"}}')
    nvcc(first_of(template_of(task))[1], task.target)
