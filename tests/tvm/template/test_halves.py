"""Templates on tensors of two bytes: float16, products of two tensors, attention, float32 out."""

from __future__ import annotations

from functools import partial

import attrs
import numpy as np
import pytest
from chameleon_core.plugins import NoOptions
from chameleon_tvm.baselines.unscheduled import UnscheduledBuilder
from chameleon_tvm.building.lowering import lower_function
from chameleon_tvm.device.targets import TVMTargets, tvm_target
from chameleon_tvm.operators.specs import (
    AttentionSpec,
    BatchMatmulSpec,
    Conv2dSpec,
    DenseSpec,
    DepthwiseConv2dSpec,
)
from chameleon_tvm.spaces.template import arithmetic
from chameleon_tvm.spaces.template.provider import template_of
from chameleon_tvm.types import array_type

from . import computing
from .computing import HALF_PLACE, NATIVE, PROVIDER, check_unscheduled

HALVES = ("bfloat16", "float16")
FULL = {"bias": True, "residual": True, "activation": "relu"}
check = partial(computing.check, rounded=HALF_PLACE)
SUMS = 1e-5
PACKED = {
    "packed": True,
    **dict.fromkeys(("query_layout", "key_layout", "value_layout", "output_layout"), "BSHD"),
}

PRODUCTS = [
    BatchMatmulSpec(a=[2, 5, 33], b=[2, 33, 20]),
    BatchMatmulSpec(a=[3, 9, 16], b=[3, 21, 16], transpose_b=True),
]
ATTENTIONS = [
    AttentionSpec(
        query=[1, 4, 21, 16],
        key=[1, 2, 37, 16],
        value=[1, 2, 37, 24],
        scale=0.3,
        mask=[1, 1, 21, 37],
        key_layout="BSHD",
    ),
    AttentionSpec(
        query=[2, 2, 9, 8], key=[2, 2, 9, 8], value=[2, 2, 9, 8], scale=0.3, causal=True, **PACKED
    ),
    AttentionSpec(
        query=[1, 2, 7, 6],
        key=[1, 2, 70, 6],
        value=[1, 2, 70, 5],
        key_layout="BHDS",
        mask=[1, 1, 1, 70],
    ),
]
CONSTANT = [
    Conv2dSpec(input=[1, 16, 9, 9], filters=24, kernel=3, padding=1, layout="NHWC", **FULL,
               dtype="float32"),
    Conv2dSpec(input=[2, 3, 13, 13], filters=20, kernel=5, padding=2, stride=2),
    DepthwiseConv2dSpec(input=[1, 20, 9, 9], kernel=3, padding=1, layout="NHWC", **FULL),
    DenseSpec(input=[3, 33], units=20, **FULL),
]  # fmt: skip


def in_type(spec, dtype, written=""):
    return attrs.evolve(spec, dtype=dtype, output_dtype=written or dtype)


def name_of(value):
    return f"{value.kind}-{value.sizes}" if hasattr(value, "kind") else str(value)


@pytest.mark.parametrize("spec", [*PRODUCTS, *ATTENTIONS], ids=name_of)
@pytest.mark.parametrize("dtype", HALVES)
def test_operators_of_tensors_that_vary_are_rounded_once(spec, dtype):
    check(in_type(spec, dtype))


@pytest.mark.parametrize("spec", CONSTANT, ids=name_of)
def test_operators_with_weights_are_rounded_once_to_float16(spec):
    check(in_type(spec, "float16"))


@pytest.mark.parametrize(
    "spec", [PRODUCTS[0], ATTENTIONS[0], CONSTANT[0], CONSTANT[3]], ids=name_of
)
@pytest.mark.parametrize("dtype", HALVES)
def test_outputs_in_float32_are_not_rounded(spec, dtype):
    check(in_type(spec, dtype, "float32"), count=1)


@pytest.mark.parametrize(
    "spec",
    [
        in_type(PRODUCTS[0], "float16"),
        in_type(PRODUCTS[1], "bfloat16", "float32"),
        in_type(ATTENTIONS[0], "bfloat16"),
        in_type(ATTENTIONS[1], "float16", "float32"),
        in_type(CONSTANT[0], "float16", "float32"),
    ],
    ids=name_of,
)
def test_the_unscheduled_function_computes_the_reference(spec):
    check_unscheduled(spec)


@pytest.mark.usefixtures("only_pairs")
@pytest.mark.parametrize("spec", [*PRODUCTS, *ATTENTIONS], ids=name_of)
def test_pairs_are_multiplied_as_they_are(spec):
    check(in_type(spec, "bfloat16"), count=2)


@pytest.mark.parametrize(
    ("spec", "cpu", "mnemonic"),
    [
        (in_type(PRODUCTS[1], "bfloat16"), "znver4", "vdpbf16ps"),
        (in_type(ATTENTIONS[0], "bfloat16"), "znver4", "vdpbf16ps"),
        (in_type(PRODUCTS[0], "float16"), "haswell", "vcvtph2ps"),
        (in_type(ATTENTIONS[0], "float16"), "haswell", "vcvtps2ph"),
    ],
    ids=name_of,
)
def test_the_code_holds_the_instructions_of_its_cpu(spec, cpu, mnemonic):
    target = TVMTargets(NoOptions()).resolve(f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu}")
    template = template_of(spec.task("t", target))
    space = template.space()
    function = template.function(space.decode(space.first_guesses[0]))
    made = lower_function(function, tvm_target(target), plain_loops=True)
    assert mnemonic in made.mod.inspect_source("asm")


def test_sums_are_never_float16():
    """Where a CPU multiplies and adds up in float16, products are still added up in float32."""
    target = TVMTargets(NoOptions()).resolve("llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids")
    assert {one.sums for one in arithmetic.dots_of(target, data="float16", weights="float16")} == {
        "float16",
        "float32",
    }
    assert {one.sums for one in arithmetic.half_dots("float16", target)} == {"float32"}


def computed(spec, inputs):
    builder = PROVIDER.builder(spec.task("t", NATIVE), threads=1)
    builder.use(inputs)
    (got,) = builder.build(builder.space.first_guesses[0].tolist()).outputs()
    return got


@pytest.mark.parametrize("dtype", HALVES)
def test_infinities_nan_denormals_and_ties(dtype):
    kind = array_type(dtype)
    place = 2 * HALF_PLACE[dtype]
    least = 2.0**-24 if dtype == "float16" else 2.0**-133
    largest = 65504.0 if dtype == "float16" else float(np.float32(3.3895314e38))
    left = np.zeros((1, 8, 2), np.float32)
    left[0] = [
        [np.inf, 1.0],
        [-np.inf, 1.0],
        [np.nan, 1.0],
        [least, 0.0],
        [1.0, place / 2],  # a tie, down to the even number
        [1.0 + place, place / 2],  # a tie, up to the even number
        [largest, largest],
        [-largest, -largest],
    ]
    right = np.ones((1, 2, 17), np.float32)
    spec = in_type(BatchMatmulSpec(a=[1, 8, 2], b=[1, 2, 17]), dtype)
    got = computed(spec, [left.astype(kind), right.astype(kind)])
    if arithmetic.half_dots(dtype, NATIVE)[0].flushes:
        least = 0.0  # as the CPU's own product of this type has it
    expected = [np.inf, -np.inf, np.nan, least, 1.0, 1.0 + 2 * place, np.inf, -np.inf]
    np.testing.assert_array_equal(got, np.repeat(np.float32(expected)[None, :, None], 17, axis=2))
    wide = computed(in_type(spec, dtype, "float32"), [left.astype(kind), right.astype(kind)])
    if dtype == "float16":
        assert (wide[0, 6] == 2 * largest).all()
    assert (wide[0, 4] == np.float32(1.0 + place / 2)).all()


@pytest.mark.parametrize("dtype", HALVES)
def test_attention_with_hidden_keys_and_infinities(dtype):
    kind = array_type(dtype)
    spec = in_type(
        AttentionSpec(
            query=[1, 1, 16, 8], key=[1, 1, 20, 8], value=[1, 1, 20, 8], mask=[1, 1, 16, 20]
        ),
        dtype,
    )
    rng = np.random.default_rng(0)
    query, key = (rng.normal(size=(1, 1, n, 8)).astype(kind) for n in (16, 20))
    value = rng.normal(size=(1, 1, 20, 8)).astype(kind)
    mask = np.zeros((1, 1, 16, 20), np.float32)
    mask[0, 0, 0] = -np.inf
    mask[0, 0, 1, 1:] = -np.inf
    got = computed(spec, [query, key, value, mask])
    assert (got[0, 0, 0] == 0).all()
    np.testing.assert_array_equal(got[0, 0, 1], value[0, 0, 0].astype(np.float32))
    value[0, 0, 2, 3] = np.inf
    got = computed(spec, [query, key, value, mask])
    assert got[0, 0, 2, 3] == np.inf
    assert np.isfinite(np.delete(got[0, 0, 2], 3)).all()


@pytest.mark.parametrize("spec", PRODUCTS, ids=name_of)
@pytest.mark.parametrize("written", ["float32", "uint8"])
def test_products_of_quantized_tensors_are_exact(spec, written):
    spec = in_type(spec, "int8", written)
    builder = PROVIDER.builder(spec.task("t", NATIVE), threads=2)
    (expected,), _ = builder.reference()
    for config in builder.space.sample(3, np.random.default_rng(0)):
        (got,) = builder.build(config.tolist()).outputs()
        np.testing.assert_array_equal(got, expected)
    (got,) = UnscheduledBuilder(spec.task("t", NATIVE), threads=1).build([]).outputs()
    np.testing.assert_array_equal(got, expected)


def test_quantized_sums_of_the_largest_depth_do_not_overflow():
    depth = (2**31 - 1) // 255**2
    spec = in_type(BatchMatmulSpec(a=[1, 1, depth], b=[1, depth, 1]), "int8", "float32")
    sides = [np.full((1, 1, depth), 255, np.uint8), np.zeros((1, depth, 1), np.uint8)]
    numbers = np.array([0.0, 255.0, 1.0, 0.0], np.float32)
    got = computed(spec, [*sides, numbers])
    assert got.item() == np.float32(-(255**2) * depth)
