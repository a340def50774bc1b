"""Templates on bfloat16 tensors of CPUs: sums and epilogue in float32, rounded once."""

from functools import partial

import attrs
import numpy as np
import pytest
from chameleon_core.errors import ConfigError
from chameleon_core.plugins import NoOptions
from chameleon_tvm.building.kernel import Program, TVMKernel
from chameleon_tvm.building.lowering import lower_function
from chameleon_tvm.device.targets import TVMTargets, tvm_target
from chameleon_tvm.instructions.base import BFLOAT16_BITS
from chameleon_tvm.instructions.conversions import rounding
from chameleon_tvm.operators.specs import (
    Conv1dSpec,
    Conv2dSpec,
    Conv3dSpec,
    DenseSpec,
    DepthwiseConv2dSpec,
)
from chameleon_tvm.quick_tvm import te
from chameleon_tvm.spaces.template.provider import template_of
from chameleon_tvm.types import STORAGE

from . import computing
from .computing import NATIVE, check_unscheduled

BF16 = {"dtype": "bfloat16"}
KIND = STORAGE["bfloat16"]
FULL = {**BF16, "bias": True, "residual": True, "activation": "relu"}
check = partial(computing.check, count=2, rounded=["bfloat16"])

SPECS = [
    Conv2dSpec(input=[1, 16, 9, 9], filters=24, kernel=3, padding=1, layout="NHWC", **FULL),
    Conv2dSpec(input=[2, 3, 13, 13], filters=20, kernel=5, padding=2, stride=2, **FULL),
    Conv2dSpec(input=[1, 10, 9, 9], filters=48, kernel=3, padding=1, groups=2, **BF16),
    Conv1dSpec(input=[1, 21, 30], filters=16, kernel=5, padding=2, layout="NWC", **BF16),
    Conv3dSpec(input=[1, 6, 4, 7, 7], filters=24, kernel=3, padding=1, layout="NDHWC", **FULL),
    DepthwiseConv2dSpec(input=[1, 20, 9, 9], kernel=3, padding=1, layout="NHWC", **FULL),
    DenseSpec(input=[3, 33], units=20, **FULL),
    DenseSpec(input=[1, 64], units=48, dtype="bfloat16", activation="gelu"),
]


def name_of(spec):
    return f"{spec.kind}-{spec.sizes}"


@pytest.mark.parametrize("spec", SPECS, ids=name_of)
def test_outputs_are_rounded_once(spec):
    check(spec)


@pytest.mark.parametrize("spec", SPECS, ids=name_of)
def test_the_unscheduled_function_computes_the_reference(spec):
    check_unscheduled(spec)


@pytest.mark.usefixtures("only_pairs")
@pytest.mark.parametrize("spec", SPECS, ids=name_of)
def test_pairs_of_channels_are_multiplied_as_they_are(spec):
    check(spec, count=4)


def test_the_code_of_a_cpu_with_bfloat16_holds_its_instruction():
    target = TVMTargets(NoOptions()).resolve("llvm -mtriple=x86_64-linux-gnu -mcpu=znver4")
    template = template_of(SPECS[0].task("t", target))
    space = template.space()
    assert set(space.knobs[space.index["input"]].options) == {"copy", "in_place"}
    function = template.function(space.decode(space.first_guesses[0]))
    made = lower_function(function, tvm_target(target), plain_loops=True)
    assert "vdpbf16ps" in made.mod.inspect_source("asm")


def test_a_network_may_pack_weights_of_float32():
    spec = attrs.evolve(SPECS[0], residual=False)
    template = template_of(spec.task("t", NATIVE))
    space = template.space()
    values = space.decode(space.first_guesses[0])
    rng = np.random.default_rng(0)
    weights = rng.normal(size=spec.filter_shape).astype(np.float32)
    bias = rng.normal(size=24).astype(np.float32)
    near = KIND.rounded(weights)
    packed = template.pack(values, [weights, bias])
    again = template.pack(values, [near, bias])
    bits = template.pack(values, [KIND.stored(weights), bias])
    for one, other, third in zip(packed, again, bits, strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(one, third)
    np.testing.assert_array_equal(KIND.real(KIND.stored(weights)), near)


def test_what_nothing_computes_is_refused():
    with pytest.raises(ConfigError, match="dtype 'bfloat16' is for") as caught:
        Conv1dSpec(input=[1, 4, 9], filters=4, kernel=3, **BF16).task("t", '{"kind": "cuda"}')
    assert caught.value.hint


def test_weights_that_are_waited_for_stay_small():
    """A product with one row reads each weight once; of many rows arithmetic takes longer."""
    target = TVMTargets(NoOptions()).resolve("llvm -mtriple=x86_64-linux-gnu -mcpu=haswell")
    for rows, expected in ((1, BFLOAT16_BITS), (64, "float32")):
        spec = DenseSpec(input=[rows, 2048], units=1000, **BF16)
        assert template_of(spec.task("t", target)).arithmetic.dot.weights == expected
    check(DenseSpec(input=[1, 2048], units=1000, **BF16), count=1)


def test_rounding_is_to_the_nearest_and_keeps_what_is_no_number():
    numbers = np.random.default_rng(0).normal(size=64).astype(np.float32) * 1e3
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 3.4e38, 1e-40, 1.00390625, 1.01171875]
    numbers[: len(special)] = special
    data = te.placeholder(numbers.shape, "float32", name="data")
    out = te.compute(numbers.shape, lambda i: rounding(KIND, data(i)), name="out")
    program = Program(function=te.create_prim_func([data, out]), inputs=[numbers])
    (got,) = TVMKernel(program, NATIVE).outputs()
    np.testing.assert_array_equal(got, KIND.stored(numbers))
