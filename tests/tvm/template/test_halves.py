"""Templates on tensors of two bytes: sums and epilogue in float32, rounded once."""

from functools import partial

import attrs
import computing
import numpy as np
import pytest
from chameleon_core._errors import ConfigError
from chameleon_tvm import api as specs
from chameleon_tvm._baselines.unscheduled import UnscheduledBuilder
from chameleon_tvm._building.kernel import Program, TVMKernel
from chameleon_tvm._emit import rounding
from chameleon_tvm._instructions.base import BFLOAT16_BITS
from chameleon_tvm._operators import convolution_specs
from chameleon_tvm._quick_tvm import te
from chameleon_tvm._spaces.template import arithmetic
from chameleon_tvm._spaces.template.provider import template_of
from chameleon_tvm._types import STORAGE, array_type
from computing import (
    HALF_PLACE,
    NATIVE,
    PROVIDER,
    X86,
    arithmetic_in,
    assembly_of,
    first_of,
    resolved,
)

from ..two_bytes import (  # noqa: TID252 - shared by folders
    ATTENTIONS,
    CONSTANT,
    IN_TWO_BYTES,
    PRODUCTS,
    in_type,
)

HALVES = ("bfloat16", "float16")
check = partial(computing.check, rounded=HALF_PLACE)


def name_of(value):
    return f"{value.kind}-{value.sizes}" if hasattr(value, "kind") else str(value)


@pytest.mark.full
@pytest.mark.parametrize("spec", IN_TWO_BYTES, ids=name_of)
@pytest.mark.parametrize("dtype", HALVES)
def test_outputs_are_rounded_once(spec, dtype):
    check(in_type(spec, dtype), count=2)


@pytest.mark.full
@pytest.mark.parametrize(
    "spec", [PRODUCTS[0], ATTENTIONS[0], CONSTANT[0], CONSTANT[6]], ids=name_of
)
@pytest.mark.parametrize("dtype", HALVES)
def test_outputs_in_float32_are_not_rounded(spec, dtype):
    check(in_type(spec, dtype, "float32"), count=1)


@pytest.mark.full
@pytest.mark.usefixtures("only_pairs")
@pytest.mark.parametrize("spec", IN_TWO_BYTES, ids=name_of)
def test_pairs_are_multiplied_as_they_are(spec):
    check(in_type(spec, "bfloat16"), count=2)


INT8 = specs.Conv2dSpec(
    input=[1, 16, 9, 9], filters=32, kernel=3, padding=1, layout="NHWC", dtype="int8"
)


@pytest.mark.parametrize(
    ("spec", "cpu", "mnemonic"),
    [
        (in_type(PRODUCTS[1], "bfloat16"), "znver4", "vdpbf16ps"),
        (in_type(ATTENTIONS[0], "bfloat16"), "znver4", "vdpbf16ps"),
        (in_type(CONSTANT[0], "bfloat16"), "znver4", "vdpbf16ps"),
        (in_type(PRODUCTS[0], "float16"), "haswell", "vcvtph2ps"),
        (in_type(ATTENTIONS[0], "float16"), "haswell", "vcvtps2ph"),
        (INT8, "znver4", "vpdpbusd"),
        (INT8, "haswell", "vpmaddwd"),
        (attrs.evolve(INT8, dtype="int7"), "haswell", "vpmaddubsw"),
    ],
    ids=name_of,
)
def test_the_code_holds_the_instructions_of_its_cpu(spec, cpu, mnemonic):
    target = resolved(f"{X86}{cpu}")
    _, function = first_of(template_of(spec.task("t", target)))
    assert mnemonic in assembly_of(function, target)


def test_sums_are_never_float16():
    """Where a CPU multiplies and adds up in float16, products are still added up in float32."""
    target = resolved("llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids")
    assert {row.sums for row in arithmetic.dots_of(target, data="float16", weights="float16")} == {
        "float16",
        "float32",
    }
    assert {dot.sums for dot in arithmetic.half_dots("float16", target)} == {"float32"}


def computed(spec, inputs):
    builder = PROVIDER.builder(spec.task("t", NATIVE), threads=1)
    builder.use(inputs)
    (got,) = builder.build(builder.space.first_guesses[0].tolist()).outputs()
    return got


@pytest.mark.parametrize("dtype", HALVES)
def test_infinities_nan_denormals_and_ties(dtype):
    kind = array_type(dtype)
    offset = 2 * HALF_PLACE[dtype]
    least = 2.0**-24 if dtype == "float16" else 2.0**-133
    largest = 65504.0 if dtype == "float16" else float(np.float32(3.3895314e38))
    left = np.zeros((1, 8, 2), np.float32)
    left[0] = [
        [np.inf, 1.0],
        [-np.inf, 1.0],
        [np.nan, 1.0],
        [least, 0.0],
        [1.0, offset / 2],  # a tie, down to the even number
        [1.0 + offset, offset / 2],  # a tie, up to the even number
        [largest, largest],
        [-largest, -largest],
    ]
    right = np.ones((1, 2, 17), np.float32)
    spec = in_type(specs.BatchMatmulSpec(a=[1, 8, 2], b=[1, 2, 17]), dtype)
    got = computed(spec, [left.astype(kind), right.astype(kind)])
    if arithmetic.half_dots(dtype, NATIVE)[0].flushes:
        least = 0.0  # as the CPU's own product of this type has it
    expected = [np.inf, -np.inf, np.nan, least, 1.0, 1.0 + 2 * offset, np.inf, -np.inf]
    np.testing.assert_array_equal(got, np.repeat(np.float32(expected)[None, :, None], 17, axis=2))
    wide = computed(in_type(spec, dtype, "float32"), [left.astype(kind), right.astype(kind)])
    if dtype == "float16":
        assert (wide[0, 6] == 2 * largest).all()
    assert (wide[0, 4] == np.float32(1.0 + offset / 2)).all()


@pytest.mark.parametrize("dtype", HALVES)
def test_attention_with_hidden_keys_and_infinities(dtype):
    kind = array_type(dtype)
    spec = in_type(
        specs.AttentionSpec(
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


@pytest.mark.full
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
    spec = in_type(specs.BatchMatmulSpec(a=[1, 1, depth], b=[1, depth, 1]), "int8", "float32")
    sides = [np.full((1, 1, depth), 255, np.uint8), np.zeros((1, depth, 1), np.uint8)]
    numbers = np.array([0.0, 255.0, 1.0, 0.0], np.float32)
    assert computed(spec, [*sides, numbers]).item() == np.float32(-(255**2) * depth)


def test_data_of_bfloat16_may_be_read_in_place():
    task = in_type(CONSTANT[0], "bfloat16").task("t", resolved(f"{X86}znver4"))
    space = PROVIDER.design_space(task)
    assert set(space.knobs[space.index["input"]].options) == {"copy", "in_place"}


def test_a_network_may_pack_weights_of_float32():
    spec = attrs.evolve(in_type(CONSTANT[0], "bfloat16"), residual=False)
    template = template_of(spec.task("t", NATIVE))
    values, _ = first_of(template)
    rng = np.random.default_rng(0)
    weights = rng.normal(size=spec.filter_shape).astype(np.float32)
    bias = rng.normal(size=24).astype(np.float32)
    near = STORAGE["bfloat16"].rounded(weights)
    packed = template.pack(values, [weights, bias])
    again = template.pack(values, [near, bias])
    bits = template.pack(values, [STORAGE["bfloat16"].stored(weights), bias])
    for row, other, third in zip(packed, again, bits, strict=True):
        np.testing.assert_array_equal(row, other)
        np.testing.assert_array_equal(row, third)
    np.testing.assert_array_equal(
        STORAGE["bfloat16"].real(STORAGE["bfloat16"].stored(weights)), near
    )


def test_what_nothing_computes_is_refused():
    with pytest.raises(ConfigError, match="dtype 'bfloat16' is for") as caught:
        convolution_specs.Conv1dSpec(input=[1, 4, 9], filters=4, kernel=3, dtype="bfloat16").task(
            "t", '{"kind": "cuda"}'
        )
    assert caught.value.hint


def test_weights_that_are_waited_for_stay_small():
    """A product with one row reads each weight once; of many rows arithmetic takes longer."""
    target = resolved(f"{X86}haswell")
    for rows, expected in ((1, BFLOAT16_BITS), (64, "float32")):
        spec = specs.DenseSpec(input=[rows, 2048], units=1000, dtype="bfloat16")
        assert arithmetic_in(template_of(spec.task("t", target))).dot.weights == expected
    check(specs.DenseSpec(input=[1, 2048], units=1000, dtype="bfloat16"), count=1)


def test_rounding_is_to_the_nearest_and_keeps_what_is_no_number():
    numbers = np.random.default_rng(0).normal(size=64).astype(np.float32) * 1e3
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 3.4e38, 1e-40, 1.00390625, 1.01171875]
    numbers[: len(special)] = special
    data = te.placeholder(numbers.shape, "float32", name="data")
    out = te.compute(numbers.shape, lambda i: rounding(STORAGE["bfloat16"], data(i)), name="out")
    program = Program(function=te.create_prim_func([data, out]), inputs=[numbers])
    (got,) = TVMKernel(program, NATIVE).outputs()
    np.testing.assert_array_equal(got, STORAGE["bfloat16"].stored(numbers))
